//! What is attached when a pool is taken into service, and of which nothing is recorded.
//!
//! Half-made volumes are the pools' own business, frozen filesystems the host's. A call that was
//! killed leaves nothing else to put right: its record is written before a device is attached and
//! removed after it is detached, so the call that comes again finishes it.
//!
//! A device without a record is therefore no orphan of a call. The run directory or the driver's
//! name was changed, or the records were lost, and the device may well be in use: through a node
//! that was bound in another mount namespace, or that a container runtime made and that is in no
//! mount table. If it were detached, its number would go to another volume, which would then be read
//! and written there. So it is left alone.

use orlop_model::{PoolId, Result, VolumeId};

use crate::engine::{Engine, PoolRef};

impl Engine {
    pub(crate) fn report_unrecorded(&self, pool: &PoolRef) -> Result<()> {
        for id in self.unrecorded_in(pool)? {
            tracing::warn!(
                volume = %id,
                "the volume is attached to this machine, but the run directory has no record of it; \
                 left alone, as it may be in use; check whether the run directory or the driver's \
                 name was changed"
            );
        }
        Ok(())
    }

    /// Volumes that are in use here by their node records, and whose pool is not configured any more.
    /// None while a pool is absent: its id is unknown, and they may be on it.
    pub fn in_use_of_unknown_pools(&self) -> Result<Vec<VolumeId>> {
        if !self.absent.is_empty() {
            return Ok(Vec::new());
        }
        let mut ids = self.host.node_records()?;
        ids.retain(|id| !self.pools.contains_key(id.pool()));
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
                        "the volume is in use here, but its pool is not configured: it cannot be \
                         unpublished or unstaged until the pool is configured again"
                    );
                }
            }
            Err(error) => tracing::warn!(%error, "cannot list the node records"),
        }
    }

    /// Volumes of the pool that are attached to this machine and of which nothing is recorded.
    pub fn unrecorded(&self, pool: &PoolId) -> Result<Vec<VolumeId>> {
        self.pools.get(pool).map_or(Ok(Vec::new()), |pool| self.unrecorded_in(pool))
    }

    fn unrecorded_in(&self, pool: &PoolRef) -> Result<Vec<VolumeId>> {
        let mut found = Vec::new();
        for id in pool.devices().attached_volumes()? {
            match self.host.node_record(&id) {
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
