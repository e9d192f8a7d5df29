//! What a predecessor that was killed may have left, and how it is put right at start.
//!
//! Half-made volumes are the pools' own business, frozen filesystems the host's. What remains
//! is a device that was attached by a call which never got as far as mounting it.

use orlop_model::{DeviceAccess, Error, Result, VolumeId};

use crate::engine::{Engine, PoolRef};

impl Engine {
    pub(crate) fn recover(&self, pool: &PoolRef) -> Result<()> {
        for id in pool.attached_volumes()? {
            match self.release_unless_wanted(pool, &id) {
                Err(away @ Error::Unreachable { .. }) => return Err(away),
                // In nobody's way until its volume is used or deleted, and the next start tries
                // again.
                Err(error) => {
                    tracing::warn!(%error, volume = %id, "a device that nobody wants stays");
                }
                Ok(()) => {}
            }
        }
        self.discard_unpublished_inline(pool)
    }

    /// A device with a node record is in use, or will be cleaned up by the call that comes
    /// again. One without belongs to nobody: records are written before anything is attached.
    fn release_unless_wanted(&self, pool: &PoolRef, id: &VolumeId) -> Result<()> {
        match self.host.node_record(id) {
            Ok(record) if record.is_empty() => {}
            Ok(_) => return Ok(()),
            Err(error) => {
                tracing::warn!(%error, volume = %id, "left a device alone: its record is unreadable");
                return Ok(());
            }
        }
        for access in [DeviceAccess::ReadOnly, DeviceAccess::ReadWrite] {
            let Some(device) = pool.attached(id, access)? else { continue };
            // Records can be lost without the mounts; a device in use is never taken away.
            if self.host.is_mounted(&device)? {
                tracing::warn!(volume = %id, "a volume is in use of which no record is left");
                return Ok(());
            }
            pool.ensure_detached(id, access)?;
            tracing::info!(volume = %id, "released a device that an interrupted call had attached");
        }
        Ok(())
    }
}
