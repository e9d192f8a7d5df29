//! Is the pool well, and is a volume?

use std::sync::{Arc, Mutex};

use orlop_model::{
    Condition, Error, Health, HealthReason, Problem, Result, SnapshotId, SnapshotRecord,
    StorageProbe, VolumeId, VolumeRecord,
};
use orlop_sys::file;

use super::PoolDirectory;
use super::attach::LoopDevices;
use super::capacity::ImageCapacity;
use super::catalogue::{ImageCatalogue, problem_of_data, problem_of_snapshot};
use super::failure::cannot;
use super::managed::Managed;
use crate::poison::lock;
use crate::recorded::Recorded;

#[derive(Debug)]
pub(super) struct ImageHealth {
    directory: Arc<PoolDirectory>,
    catalogue: Arc<ImageCatalogue>,
    capacity: Arc<ImageCapacity>,
    devices: Arc<LoopDevices>,
    /// Why the last probe of the storage failed.
    refusal: Mutex<Option<Error>>,
}

impl Health for ImageHealth {
    /// An operator has to act, so Probe reports a failure with its reason, although other calls answer
    /// UNAVAILABLE, which only asks callers to retry.
    fn check(&self) -> Result<()> {
        match self.capacity.check_writable() {
            Err(Error::Unreachable { doing, reason }) => Err(Error::Failed { doing, reason }),
            Ok(()) => lock(&self.refusal).clone().map_or(Ok(()), Err),
            failed => failed,
        }
    }

    fn shortage(&self) -> Result<Option<String>> {
        self.capacity.below_floor()
    }

    fn storage_probe(&self) -> Option<&dyn StorageProbe> {
        Some(self)
    }

    fn condition(&self, id: &VolumeId) -> Result<Condition> {
        self.condition_within(id, &self.outlook())
    }

    fn conditions(&self, ids: &[VolumeId]) -> Vec<Result<Condition>> {
        let outlook = self.outlook();
        ids.iter().map(|id| self.condition_within(id, &outlook)).collect()
    }

    fn abnormal_snapshots(&self) -> Result<Vec<(SnapshotId, Problem)>> {
        let snapshots = self.catalogue.snapshot_index();
        let problem = |(id, record): (SnapshotId, Result<SnapshotRecord>)| {
            let found = match record {
                Ok(record) => problem_of_snapshot(snapshots, &record),
                Err(error) => Err(error),
            };
            let problem = found.unwrap_or_else(|error| Some(Problem::of(&error)))?;
            Some((id, problem))
        };
        Ok(snapshots.page(None, 0).into_iter().filter_map(problem).collect())
    }

    fn problems(&self) -> Vec<Problem> {
        let outlook = self.outlook();
        outlook.unusable.into_iter().chain(outlook.restricted).collect()
    }
}

impl StorageProbe for ImageHealth {
    fn try_storage(&self) -> Result<()> {
        // Logged by the check itself, also where no call asks for it.
        let _lost_image = self.directory.check_takes_data();
        let _shortage = self.capacity.below_floor();
        let staging = self.directory.layout().staging();
        let tried = file::try_write(&staging)
            .map_err(cannot(|| format!("write to pool {}", self.directory.name())));
        self.note_refusal(tried.clone().err());
        tried
    }
}

impl ImageHealth {
    pub(super) fn new(
        directory: Arc<PoolDirectory>,
        catalogue: Arc<ImageCatalogue>,
        capacity: Arc<ImageCapacity>,
        devices: Arc<LoopDevices>,
    ) -> Self {
        Self { directory, catalogue, capacity, devices, refusal: Mutex::default() }
    }

    /// A full pool is [`Health::shortage`], and one that is unmounted or read-only is found without a write.
    fn note_refusal(&self, error: Option<Error>) {
        let error = error.filter(|error| !matches!(error, Error::Exhausted(_)));
        let pool = self.directory.name();
        let before = std::mem::replace(&mut *lock(&self.refusal), error.clone());
        match (before, error) {
            (None, Some(why)) => tracing::error!(
                pool,
                %why,
                "the pool's storage fails to write; look for errors of its disk in the kernel log"
            ),
            (Some(_), None) => tracing::info!(pool, "the pool's storage takes writes again"),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn outlook(&self) -> Outlook {
        let unusable = |problem| Outlook { unusable: Some(problem), restricted: Vec::new() };
        let managed = self.directory.managed();
        if let Some(lost) = managed.and_then(Managed::problem_of_image) {
            return unusable(lost);
        }
        let unreachable =
            |error: Error| Problem::new(HealthReason::PoolUnreachable, error.to_string());
        let checked = self.directory.check_takes_data().and_then(|()| self.restrictions());
        match checked {
            Ok(restricted) => Outlook { unusable: None, restricted },
            Err(error) => unusable(unreachable(error)),
        }
    }

    fn restrictions(&self) -> Result<Vec<Problem>> {
        let mut found = Vec::new();
        if let Some(refusal) = self.capacity.read_only()? {
            found.push(Problem::new(HealthReason::PoolReadOnly, refusal.to_string()));
        }
        if let Some(text) = self.capacity.below_floor()? {
            found.push(Problem::new(HealthReason::PoolFull, text));
        }
        Ok(found)
    }

    fn condition_within(&self, id: &VolumeId, outlook: &Outlook) -> Result<Condition> {
        let volumes = self.catalogue.volume_index();
        let length = match volumes.length(id) {
            Ok(Some(length)) => length,
            Ok(None) => return Err(VolumeRecord::missing(id)),
            Err(damaged) => return Ok(Condition::of_error(&damaged)),
        };
        if let Some(problem) = &outlook.unusable {
            return Ok(Condition::of(vec![problem.clone()], ""));
        }
        let mut condition = Condition::healthy("the data is there, with room to write");
        // Before the data itself: what is missing there may be saved from the device.
        condition.extend(self.devices.problem_of_data(id));
        match problem_of_data(volumes, id, length) {
            Ok(problem) => condition.extend(problem),
            Err(error) => condition.extend([Problem::of(&error)]),
        }
        // Last: a volume with damaged data has worse to tell.
        condition.extend(outlook.restricted.iter().cloned());
        Ok(condition)
    }
}

/// What is so for all volumes of the pool.
struct Outlook {
    /// Then nothing can be said of the data.
    unusable: Option<Problem>,
    restricted: Vec<Problem>,
}

#[cfg(test)]
mod tests;
