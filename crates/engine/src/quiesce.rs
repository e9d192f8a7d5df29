//! Copying a volume that may be in use: its writers are held still for the cut and no longer.

use orlop_model::{DeviceAccess, Draft, Error, Host, Result, TargetPath, VolumeRecord};

use crate::engine::{Engine, PoolRef};

/// A frozen filesystem. Thawed when dropped, so that no error path and no panic leaves a
/// workload hanging.
struct Frozen<'a> {
    host: &'a dyn Host,
    mount: &'a TargetPath,
}

impl<'a> Frozen<'a> {
    fn freeze(host: &'a dyn Host, mount: &'a TargetPath) -> Result<Self> {
        // Built first: if freezing fails half-way, the drop still thaws.
        let frozen = Self { host, mount };
        host.freeze(mount)?;
        Ok(frozen)
    }

    /// Did writers stay still the whole time?
    fn thaw(self) -> Result<bool> {
        self.host.ensure_thawed(self.mount)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // Thawing what is thawed already is fine; a failure is for the host's watchdog.
        if let Err(error) = self.host.ensure_thawed(self.mount) {
            tracing::error!(%error, path = %self.mount, "could not thaw a filesystem");
        }
    }
}

impl Engine {
    pub(crate) fn cut_quiesced<Record>(
        &self,
        pool: &PoolRef,
        source: &VolumeRecord,
        draft: &mut dyn Draft<Record>,
    ) -> Result<()> {
        let Some(stage) = self.live_stage(pool, &source.id)? else {
            return draft.cut();
        };
        if stage.capability.is_block() {
            if let Some(device) = pool.attached(&source.id, DeviceAccess::ReadWrite)? {
                self.host.sync_device(&device)?;
            }
            return draft.cut();
        }
        if stage.read_only {
            return draft.cut();
        }
        let frozen = Frozen::freeze(self.host.as_ref(), &stage.path)?;
        draft.cut()?;
        if frozen.thaw()? {
            return Ok(());
        }
        Err(Error::failed(
            format!("copying volume {}", source.id),
            "the copy took longer than a filesystem may be held still, so it would not be \
             consistent; use a pool whose filesystem shares extents, or stop the workload first",
        ))
    }
}
