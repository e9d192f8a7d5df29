//! Is the pool well, and is a volume?

use std::sync::Arc;

use orlop_model::{Condition, Error, Health, Result, StorageProbe, VolumeId, VolumeRecord};
use orlop_sys::file;

use super::PoolDirectory;
use super::attach::LoopDevices;
use super::capacity::Capacity;
use super::catalogue::{ImageCatalogue, check_length};
use super::failure::cannot;
use super::managed::Managed;
use crate::recorded::Recorded;

#[derive(Debug)]
pub(super) struct ImageHealth {
    directory: Arc<PoolDirectory>,
    catalogue: Arc<ImageCatalogue>,
    capacity: Arc<Capacity>,
    devices: Arc<LoopDevices>,
}

impl Health for ImageHealth {
    /// An operator has to act, so Probe reports a failure with its reason, although other calls answer
    /// UNAVAILABLE, which only asks callers to retry.
    fn check(&self) -> Result<()> {
        match self.capacity.check_writable() {
            Err(Error::Unreachable { doing, reason }) => Err(Error::Failed { doing, reason }),
            checked => checked,
        }
    }

    fn storage_probe(&self) -> Option<&dyn StorageProbe> {
        Some(self)
    }

    fn condition(&self, id: &VolumeId) -> Result<Condition> {
        self.condition_within(id, &self.outlook())
    }

    fn conditions(&self, ids: &[VolumeId]) -> Vec<Condition> {
        let outlook = self.outlook();
        let within = |id| self.condition_within(id, &outlook).unwrap_or_else(abnormal);
        ids.iter().map(within).collect()
    }
}

impl StorageProbe for ImageHealth {
    fn try_storage(&self) -> Result<()> {
        // Logged by the check itself, also where no call asks for it.
        let _lost_image = self.directory.check_takes_data();
        let staging = self.directory.layout().staging();
        file::try_write(&staging)
            .map_err(cannot(|| format!("write to pool {}", self.directory.name())))
    }
}

impl ImageHealth {
    pub(super) fn new(
        directory: Arc<PoolDirectory>,
        catalogue: Arc<ImageCatalogue>,
        capacity: Arc<Capacity>,
        devices: Arc<LoopDevices>,
    ) -> Self {
        Self { directory, catalogue, capacity, devices }
    }

    fn outlook(&self) -> Outlook {
        let managed = self.directory.managed();
        if let Some(lost) = managed.and_then(Managed::condition_of_image) {
            return Outlook::Unwell(lost);
        }
        match self.check().and_then(|()| self.capacity.below_floor()) {
            Ok(None) => Outlook::Well,
            Ok(Some(reason)) => Outlook::Full(reason),
            Err(error) => Outlook::Unwell(abnormal(error)),
        }
    }

    fn condition_within(&self, id: &VolumeId, outlook: &Outlook) -> Result<Condition> {
        let volumes = self.catalogue.volume_index();
        let length = match volumes.length(id) {
            Ok(Some(length)) => length,
            Ok(None) => return Err(VolumeRecord::missing(id)),
            Err(damaged) => return Ok(abnormal(damaged)),
        };
        if let Outlook::Unwell(condition) = outlook {
            return Ok(condition.clone());
        }
        // Before the data itself: what is missing there may be saved from the device.
        if let Some(lost) = self.devices.condition_of_data(id) {
            return Ok(lost);
        }
        if let Err(damaged) = check_length(volumes, id, length) {
            return Ok(abnormal(damaged));
        }
        Ok(match outlook {
            Outlook::Well => Condition::healthy("the data is there, with room to write"),
            Outlook::Full(reason) => Condition::abnormal(reason.clone()),
            Outlook::Unwell(condition) => condition.clone(),
        })
    }
}

/// What is so for all volumes of the pool.
enum Outlook {
    Well,
    /// A volume with damaged data has worse to tell.
    Full(String),
    /// Then nothing can be said of the data.
    Unwell(Condition),
}

fn abnormal(error: Error) -> Condition {
    Condition::abnormal(error.to_string())
}

#[cfg(test)]
mod tests;
