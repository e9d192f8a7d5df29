//! Whether a volume's pool, or its device, is in a state to do more with it.

use orlop_model::{Error, FsType, Result, Stage, VolumeId};

use crate::engine::PoolRef;

/// To unmount, or to let go of a device, is to write. What waits in the kernel for a pool that is
/// away cannot be called off, so it is better not begun.
pub(super) fn check_answers(pool: &PoolRef, id: &VolumeId) -> Result<()> {
    if !pool.is_shared() {
        return Ok(());
    }
    match pool.volume(id) {
        Err(away @ Error::Unreachable { .. }) => Err(away),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// ext4 writes when it is unmounted, also if nothing was changed; others may have nothing to write.
pub(super) fn check_can_be_unmounted(
    pool: &PoolRef,
    id: &VolumeId,
    stage: Option<&Stage>,
) -> Result<()> {
    let writes = pool.is_shared()
        && stage.is_some_and(|stage| !stage.read_only)
        && pool.volume(id).is_ok_and(|record| {
            record.is_some_and(|record| record.format.fs() == Some(FsType::Ext4))
        });
    if !writes {
        return Ok(());
    }
    match pool.check_takes_writes() {
        Err(why @ (Error::Exhausted(_) | Error::Unreachable { .. })) => Err(why),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(crate) fn check_reachable(pool: &PoolRef, id: &VolumeId) -> Result<()> {
    match pool.device_trouble(id)? {
        None => Ok(()),
        Some(trouble) => Err(Error::precondition(format!(
            "volume {id}: {trouble}; unpublish and unstage it here, then stage it again"
        ))),
    }
}
