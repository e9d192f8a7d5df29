//! Growing a volume: its image first, its record last.
//!
//! librbd refuses to shrink an image, but not if two requests meet at the client that holds the
//! image's lock: there the smaller one, if it comes second, cuts off what the larger one has just
//! added. So whoever changes the size of an image holds a lock of ours meanwhile, which lets go by
//! itself if the holder dies. Should a holder be asleep for longer than that, librbd's own check
//! is still there: both would have to fail in the same instant.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Result, VolumeId, VolumeRecord};
use orlop_sys::ceph::{Access, IoCtx, header_of};
use orlop_sys::rand::random_bytes;

use super::failure::Doing;
use super::store::Store;

const LOCK: &str = "orlop.size";
/// Longer than a resize takes, also when an object store fails meanwhile.
const LEASE: Duration = Duration::from_secs(120);
/// For another to be done with what takes an instant.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// While this lives, nobody else changes the size of the image.
#[derive(Debug)]
pub(super) struct SizeLock {
    io: Arc<IoCtx>,
    header: String,
    cookie: String,
}

impl Drop for SizeLock {
    fn drop(&mut self) {
        if let Err(error) = self.io.unlock(&self.header, LOCK, &self.cookie) {
            tracing::warn!(%error, "others wait until the lock lets go by itself");
        }
    }
}

impl Store {
    pub(super) fn lock_size(&self, id: &VolumeId, image_id: &str) -> Result<SizeLock> {
        let locking = || format!("lock the size of volume {id}");
        let nonce: [u8; 8] = random_bytes().doing(locking)?;
        let cookie = format!("{:016x}", u64::from_be_bytes(nonce));
        let header = header_of(image_id);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let held = self.ask(locking, |io| {
                Ok(io.try_lock(&header, LOCK, &cookie, LEASE)?.then(|| Arc::clone(io)))
            })?;
            if let Some(io) = held {
                return Ok(SizeLock { io, header, cookie });
            }
            if Instant::now() >= deadline {
                return Err(Error::Busy(format!("the size of volume {id}")));
            }
            thread::sleep(PAUSE);
        }
    }

    pub(super) fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord> {
        let known = self.require(id)?;
        let growth = bytes.saturating_sub(known.record.capacity_bytes);
        if growth == 0 {
            return Ok(known.record);
        }
        self.check_fits(growth)?;
        let _lock = self.lock_size(id, &known.image_id)?;
        // A crash after this leaves more than the record says, which the next growth takes over.
        self.ensure_image_of(id, &known.image_id, bytes)?;
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
            let _lock = self.lock_size(id, &known.image_id)?;
            self.ensure_image_of(id, &known.image_id, record.capacity_bytes)?;
        }
        Ok(())
    }

    /// The size that the image has then. For a holder of its lock.
    pub(super) fn ensure_image_of(&self, id: &VolumeId, image_id: &str, bytes: u64) -> Result<u64> {
        let growing = || format!("grow volume {id}");
        self.ask(growing, |io| {
            let image = io.open_image_by_id(image_id, None, Access::ReadWrite)?;
            if image.size()? < bytes {
                image.ensure_size(bytes)?;
            }
            image.size()
        })
    }
}
