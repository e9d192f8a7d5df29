//! What is attached when a pool is taken into service, and of which nothing is recorded.
//!
//! Half-made volumes are the pools' own business, frozen filesystems the host's. A call that was
//! killed leaves nothing else to put right: its record is written before a device is attached and
//! removed after it is detached, so the repeated call finishes it.
//!
//! A device without a record is therefore no orphan of a call. The run directory or the driver's
//! name was changed, or the records were lost, and the device may well be in use: through a node
//! that was bound in another mount namespace, or that a container runtime made and that is in no
//! mount table. If it were detached, its number would go to another volume, which would then be read
//! and written there. So it is left alone.

use orlop_model::{DeviceOnOtherFile, PoolId, Result, Stage, VolumeId};

use crate::engine::{Engine, PoolRef};
use crate::node_stage::stage_access;

impl Engine {
    pub(crate) fn report_unrecorded(&self, pool: &PoolRef) -> Result<()> {
        for id in self.unrecorded_in(pool)? {
            tracing::warn!(
                volume = %id,
                "the volume is attached to this machine, but the run directory has no record of it; \
                 left alone, as it may be in use; check whether the run directory or the driver's \
                 name was changed; if its files were lost, stage and publish the volume again with the \
                 same arguments, or unpublish and unstage it"
            );
        }
        Ok(())
    }

    /// If data was moved, or the pool was replaced by a copy, between two starts, the workload writes to a
    /// device whose file is not the pool's data. That device still counts as the volume's, as it would if this process
    /// had attached it; otherwise the volume would seem unused, and be copied, deleted or staged beside it. A device
    /// of a copy that another daemon serves has no record here.
    pub(crate) fn take_over_moved(&self, pool: &PoolRef) -> Result<()> {
        for other in pool.devices().on_other_files()? {
            match self.is_recorded(pool, &other) {
                Ok(true) => {
                    tracing::error!(
                        volume = %other.volume,
                        device = %other.device.path.display(),
                        file = %other.file.display(),
                        "the device of a volume in use is attached to another file than the volume's data: \
                         the data was moved or replaced, and the workload writes to this file; the volume \
                         can be neither copied, grown nor deleted; move the file back, or unpublish the \
                         volume and copy the device"
                    );
                    pool.devices().take_over(&other);
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(
                    %error,
                    volume = %other.volume,
                    "cannot find out whether a device outside of the pool is in use by this node"
                ),
            }
        }
        Ok(())
    }

    /// Is the device where the node record says that the volume is? A raw volume that is staged and not
    /// published is nowhere: for that the record has to do.
    fn is_recorded(&self, pool: &PoolRef, other: &DeviceOnOtherFile) -> Result<bool> {
        let node = self.host().node_record(&other.volume)?;
        if node.is_empty() {
            return Ok(false);
        }
        let is_raw = |stage: &Stage| {
            stage.capability.is_block() && stage_access(pool, stage) == other.access
        };
        if node.stage.as_ref().is_some_and(is_raw)
            && pool.devices().attached(&other.volume, other.access)?.is_none()
        {
            return Ok(true);
        }
        let targets = node.publications.iter().map(|publication| &publication.target);
        let paths = node.stage.iter().map(|stage| &stage.path).chain(targets);
        let paths: Vec<_> = paths.map(|path| self.host().resolved(path)).collect();
        let used = self.used_of(&other.volume, other.access, other.device.clone())?;
        let mounts = self.host().mounts_of(&used)?;
        Ok(mounts.iter().any(|there| paths.contains(&there.mount_point)))
    }

    /// Volumes that are in use here by their node records, and whose pool is not configured any more.
    /// None while a pool is absent: its id is unknown, and they may be on it.
    pub fn in_use_of_unknown_pools(&self) -> Result<Vec<VolumeId>> {
        if !self.absent().is_empty() {
            return Ok(Vec::new());
        }
        let mut ids = self.host().node_records()?;
        ids.retain(|id| !self.pools().contains_key(id.pool()));
        Ok(ids)
    }

    /// Once all configured pools are open: calls for these volumes are refused, and until one comes
    /// nothing else would say so.
    pub fn report_unknown_pools(&self) {
        match self.in_use_of_unknown_pools() {
            Ok(ids) => {
                for id in ids {
                    tracing::warn!(
                        volume = %id,
                        pool = %id.pool(),
                        "the volume is in use here, but its pool is not configured: it can be unpublished \
                         and unstaged, and not be used again until the pool is configured again"
                    );
                }
            }
            Err(error) => tracing::warn!(%error, "cannot list the node records"),
        }
    }

    /// Volumes of the pool that are attached to this machine and of which nothing is recorded.
    pub fn unrecorded(&self, pool: &PoolId) -> Result<Vec<VolumeId>> {
        self.pools().get(pool).map_or(Ok(Vec::new()), |pool| self.unrecorded_in(pool))
    }

    fn unrecorded_in(&self, pool: &PoolRef) -> Result<Vec<VolumeId>> {
        let mut found = Vec::new();
        for id in pool.devices().attached_volumes()? {
            match self.host().node_record(&id) {
                Ok(record) if record.is_empty() => found.push(id),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(
                        %error,
                        volume = %id,
                        "cannot read the node record of an attached volume"
                    );
                }
            }
        }
        Ok(found)
    }
}
