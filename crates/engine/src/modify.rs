//! ControllerModifyVolume: I/O limits, live on a volume in use.

use orlop_model::{IoLimitsChange, Result, VolumeId};

use crate::engine::{Engine, PoolRef};

impl Engine {
    /// The record comes first: a crash before the device has the limits is mended by the repeated
    /// call, and by the next stage.
    pub fn modify_volume(&self, id: &VolumeId, change: &IoLimitsChange) -> Result<()> {
        let _lock = self.locks().volume(id.digest())?;
        let (pool, record) = self.require_subject(id)?;
        self.host().check_limits_work()?;
        let limits = change.applied_to(record.limits);
        if limits != record.limits {
            pool.catalogue().update_volume(id, &mut |record| {
                record.limits = limits;
                Ok(())
            })?;
        }
        self.apply_limits(pool, id, &limits)
    }

    /// When a pool is taken into service. The kernel has the limits only as long as the workloads' cgroup
    /// stays, which may have been made again; the record has them all the time. A volume without a node
    /// record is left alone.
    pub(crate) fn restore_limits(&self, pool: &PoolRef) -> Result<()> {
        for id in pool.devices().attached_volumes()? {
            if self.host().node_record(&id).is_ok_and(|node| node.is_empty()) {
                continue;
            }
            let restored = match pool.catalogue().volume(&id) {
                Ok(Some(record)) => self.apply_limits(pool, &id, &record.limits),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = restored {
                tracing::warn!(
                    %error,
                    volume = %id,
                    "cannot set the I/O limits of a volume that is in use; they are set again when \
                     it is published"
                );
            }
        }
        Ok(())
    }
}
