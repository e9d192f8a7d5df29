//! Growing a filesystem that is not mounted yet.
//!
//! The tool writes in place: interrupted by a kill or for lack of room, it leaves a filesystem that is repaired only by
//! a check that asks nothing. The record says `growing` from before the tool runs until after it has ended. With that
//! the next stage knows that the filesystem was sound and that nothing else has written to it since.

use orlop_model::{Device, Error, FsType, Reason, Result, VolumeId, VolumeRecord};

use crate::engine::{Engine, PoolRef};

/// What a filesystem writes at most when it is mounted, as far as it is likely: the replay of a log.
const MOUNTING: u64 = 16 << 20;

impl Engine {
    pub(super) fn ensure_grown_unmounted(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        device: &Device,
        fs: FsType,
    ) -> Result<()> {
        let Some(bytes) = self.host().unmounted_growth(device, fs, record.growing)? else {
            return Ok(());
        };
        pool.provisioner().check_takes(&record.id, bytes)?;
        if record.growing {
            tracing::warn!(
                volume = %record.id,
                "the growth of the filesystem was interrupted: repairing it, then growing it again"
            );
            let repaired = self.host().repair_interrupted_growth(device, fs);
            named_by_room(pool, &record.id, bytes, repaired)?;
        }
        // Before the record says `growing`: whatever this finds is not due to the growth, and is not repaired by force.
        let checked = self.host().check_before_growth(device, fs);
        named_by_room(pool, &record.id, bytes, checked)?;
        if !record.growing {
            self.set_growing(pool, &record.id, true)?;
        }
        let grown = self.host().ensure_grown_unmounted(device, fs);
        named_by_room(pool, &record.id, bytes, grown)?;
        self.set_growing(pool, &record.id, false)
    }

    fn set_growing(&self, pool: &PoolRef, id: &VolumeId, growing: bool) -> Result<()> {
        pool.catalogue().update_volume(id, &mut |record| {
            record.growing = growing;
            Ok(())
        })?;
        Ok(())
    }
}

/// A full pool shows on the device as an error of input and output, or not at all by number. So a failure on a device
/// whose pool has no room left is named after that.
fn named_by_room<T>(pool: &PoolRef, id: &VolumeId, bytes: u64, done: Result<T>) -> Result<T> {
    let Err(failure @ Error::Failed { .. }) = done else { return done };
    match pool.provisioner().check_takes(id, bytes) {
        Err(Error::Exhausted(shortage)) => {
            Err(Error::Exhausted(Reason::explained(format!("{shortage} ({failure})"), failure)))
        }
        Ok(()) | Err(_) => Err(failure),
    }
}

/// The same, for mounting a filesystem.
pub(super) fn mounted_or_no_room<T>(pool: &PoolRef, id: &VolumeId, done: Result<T>) -> Result<T> {
    named_by_room(pool, id, MOUNTING, done)
}
