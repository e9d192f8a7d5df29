//! What a daemon does about the exports of the one before it.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use orlop_model::{Devices, Error, Reason, Result, VolumeId};

use super::super::images::named_image;
use super::super::open::RbdPoolConfig;
use super::super::size_lock::release_orphaned;
use super::Exports;

/// Without links, as the kernel gives the files of devices. A daemon that does not serve a node makes
/// no directory, and finds no exports where there is none.
pub(super) fn exports_directory(config: &RbdPoolConfig) -> Result<PathBuf> {
    let exports = config.run_dir.join("exports");
    let failed = |doing: &str, error| {
        Error::failed(format!("{doing} {}", exports.display()), Reason::of(error))
    };
    if config.serves_node {
        std::fs::create_dir_all(&exports).map_err(|error| failed("make", error))?;
    }
    match exports.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(exports),
        resolved => resolved.map_err(|error| failed("resolve", error)),
    }
}

impl Exports {
    pub(in super::super) fn take_over(self: &Arc<Self>) -> Result<()> {
        self.report_exported_elsewhere()?;
        self.release_orphaned_exports()?;
        self.release_orphaned_size_locks()
    }

    /// A call that was killed between the export and the device has left one without the
    /// other. The next call on the volume would remove it as well, but there may be none.
    fn release_orphaned_exports(&self) -> Result<()> {
        for id in self.devices.exported()? {
            if id.pool() == &self.info.id
                && let Err(error) = self.ensure_unexported_if_unused(&id)
            {
                tracing::warn!(%error, volume = %id, "cannot stop an export that has no device");
            }
        }
        Ok(())
    }

    /// Exports of this pool that no device is on.
    pub(in super::super) fn unattached_exports(&self) -> Result<Vec<VolumeId>> {
        let mut found = Vec::new();
        for id in self.devices.exported()? {
            if id.pool() == &self.info.id && !self.devices.is_any_attached(&id)? {
                found.push(id);
            }
        }
        Ok(found)
    }

    /// At start, as no later call may do it: a volume is grown by controllers first, which wait for
    /// the lock.
    fn release_orphaned_size_locks(self: &Arc<Self>) -> Result<()> {
        let exports = Arc::downgrade(self);
        // An export that waits for the cluster must not hold up a start.
        let work = move || {
            let Some(exports) = exports.upgrade() else { return };
            if let Err(error) = exports.release_all_orphaned_size_locks() {
                tracing::warn!(
                    %error,
                    "cannot release the size lock of a volume; it cannot grow until it is \
                     staged again"
                );
            }
        };
        let started = thread::Builder::new().name("rbd-settle".to_owned()).spawn(work);
        started.map(drop).map_err(|error| Error::failed("start a thread", Reason::of(error)))
    }

    fn release_all_orphaned_size_locks(&self) -> Result<()> {
        for id in self.attached_volumes()? {
            let looking = || format!("find volume {id}");
            if let Some(image_id) = self.session.ask(looking, |io| named_image(io, &id))? {
                release_orphaned(&self.session, &id, &image_id, &self.writers_export(&id))?;
            }
        }
        Ok(())
    }
}
