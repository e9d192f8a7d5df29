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
