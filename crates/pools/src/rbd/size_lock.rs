//! Who may change the size of an image.
//!
//! librbd refuses to shrink an image, but not if two requests meet at the client that holds the
//! image's lock: there the smaller one, if it comes second, cuts off what the larger one has just
//! added. An export even shrinks when it is told so, and it is told the size that it is to show. So
//! whoever changes the size holds a lock of ours meanwhile, for one client that does it: ourselves,
//! or an export.

use std::sync::Arc;
use std::thread;

use orlop_model::{Devices, Error, Result, VolumeId};
use orlop_sys::ceph::header_of;
use orlop_sys::storage_daemon::Export;

use super::failure::Doing;
use super::image_lock::{ImageLock, held_for};
use super::store::Store;
use super::volume_records::named_image;

const LOCK: &str = "orlop.size";
/// While this lives, nobody else changes the size of the image.
#[derive(Debug)]
pub(super) struct SizeLock(ImageLock);

impl SizeLock {
    /// The size that the image has then.
    pub(super) fn ensure_size(&self, id: &VolumeId, bytes: u64) -> Result<u64> {
        let Self(lock) = self;
        // librbd tells what it has last heard of, which may be older than the lock.
        let size = || lock.io().image_size(lock.image_id());
        let grow = || {
            if size()? < bytes {
                lock.image().ensure_size(bytes)?;
            }
            size()
        };
        grow().doing(|| format!("grow volume {id}"))
    }
}

impl Store {
    /// For ourselves.
    pub(super) fn lock_size(&self, id: &VolumeId, image_id: &str) -> Result<SizeLock> {
        self.lock_image(image_id, LOCK, &size_of(id)).map(SizeLock)
    }

    /// For an export of this node, which is then asked to show another size.
    pub(super) fn lock_size_for(
        &self,
        id: &VolumeId,
        image_id: &str,
        export: &Export,
    ) -> Result<SizeLock> {
        self.release_left_lock(id, image_id, export)?;
        let address = address_of(id, export)?.ok_or_else(|| {
            Error::precondition(format!(
                "the export of volume {id} is not known to the cluster yet"
            ))
        })?;
        self.lock_image_for(&address, image_id, LOCK, &size_of(id)).map(SizeLock)
    }

    /// A lock that an earlier process of this node held for the export. What it asked of the export
    /// may still be under way; when that is done, nobody is left whom the lock is for.
    fn release_left_lock(&self, id: &VolumeId, image_id: &str, export: &Export) -> Result<()> {
        let releasing = || format!("release the size of volume {id}");
        let header = header_of(image_id);
        let holder = self.ask(releasing, |io| io.lock_holder(&header, LOCK))?;
        let address = address_of(id, export)?;
        let Some(holder) =
            holder.filter(|it| held_for(it).is_some() && held_for(it) == address.as_deref())
        else {
            return Ok(());
        };
        export.wait_until_idle().doing(releasing)?;
        self.ask(releasing, |io| io.ensure_lock_broken(&header, LOCK, &holder))
    }

    /// At start. Nobody may come who would do it for himself: a volume is grown by controllers first,
    /// which wait for the lock.
    pub(super) fn release_left_locks(self: &Arc<Self>) -> Result<()> {
        let store = Arc::downgrade(self);
        // An export that waits for the cluster must not hold up a start.
        let work = move || {
            let Some(store) = store.upgrade() else { return };
            if let Err(error) = store.release_all_left_locks() {
                tracing::warn!(
                    %error,
                    "cannot release the size lock of a volume; it cannot grow until it is \
                     staged again"
                );
            }
        };
        let started = thread::Builder::new().name("rbd-settle".to_owned()).spawn(work);
        started.map(drop).map_err(|error| Error::failed("start a thread", error))
    }

    fn release_all_left_locks(&self) -> Result<()> {
        for id in self.attached_volumes()? {
            let looking = || format!("look for volume {id}");
            if let Some(image_id) = self.ask(looking, |io| named_image(io, &id))? {
                self.release_left_lock(&id, &image_id, &self.attachments.writers_export(&id))?;
            }
        }
        Ok(())
    }
}

fn size_of(id: &VolumeId) -> String {
    format!("the size of volume {id}")
}

fn address_of(id: &VolumeId, export: &Export) -> Result<Option<String>> {
    export.remembered_address().doing(|| format!("look at the export of volume {id}"))
}
