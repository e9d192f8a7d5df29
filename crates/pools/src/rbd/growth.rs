//! Growing a volume: its image first, its record last.
//!
//! librbd refuses to shrink an image, but not if two requests meet at the client that holds the
//! image's lock: there the smaller one, if it comes second, cuts off what the larger one has just
//! added. So whoever changes the size of an image holds a lock of ours meanwhile.

use orlop_model::{Result, VolumeId, VolumeRecord};
use orlop_sys::ceph::Access;

use super::failure::Doing;
use super::image_lock::ImageLock;
use super::store::Store;

const LOCK: &str = "orlop.size";

/// While this lives, nobody else changes the size of the image.
#[derive(Debug)]
pub(super) struct SizeLock(ImageLock);

impl SizeLock {
    pub(super) fn is_held(&self) -> orlop_sys::Result<bool> {
        self.0.is_held()
    }

    /// The size that the image has then.
    pub(super) fn ensure_size(&self, id: &VolumeId, bytes: u64) -> Result<u64> {
        let image = &self.0.image;
        let grow = || {
            if image.size()? < bytes {
                image.ensure_size(bytes)?;
            }
            image.size()
        };
        grow().doing(|| format!("grow volume {id}"))
    }
}

impl Store {
    pub(super) fn lock_size(&self, id: &VolumeId, image_id: &str) -> Result<SizeLock> {
        let what = format!("the size of volume {id}");
        self.lock_image(image_id, LOCK, &what).map(SizeLock)
    }

    pub(super) fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord> {
        let known = self.require(id)?;
        let growth = bytes.saturating_sub(known.record.capacity_bytes);
        if growth == 0 {
            return Ok(known.record);
        }
        self.check_fits(growth)?;
        let lock = self.lock_size(id, &known.image_id)?;
        // A crash after this leaves more than the record says, which the next growth takes over.
        lock.ensure_size(id, bytes)?;
        self.update_volume(id, &mut |record| {
            record.capacity_bytes = record.capacity_bytes.max(bytes);
            Ok(())
        })
    }

    /// An image that is smaller than its record says: someone has shrunk it by hand.
    pub(super) fn ensure_image_size(&self, record: &VolumeRecord) -> Result<()> {
        let id = &record.id;
        let known = self.require(id)?;
        let looking = || format!("look at the size of volume {id}");
        let size = self.ask(looking, |io| {
            io.open_image_by_id(&known.image_id, None, Access::ReadOnly)?.size()
        })?;
        if size < record.capacity_bytes {
            let lock = self.lock_size(id, &known.image_id)?;
            lock.ensure_size(id, record.capacity_bytes)?;
        }
        Ok(())
    }

    /// After a change that another client made for the holder of the lock: that client was not
    /// stopped when the lock was taken from a holder that was asleep, and may have cut off what was
    /// added since.
    pub(super) fn ensure_not_cut(&self, id: &VolumeId, lock: SizeLock) -> Result<()> {
        if lock.is_held().unwrap_or(false) {
            return Ok(());
        }
        drop(lock);
        let known = self.require(id)?;
        let promised = known.record.capacity_bytes;
        self.lock_size(id, &known.image_id)?.ensure_size(id, promised).map(drop)
    }
}
