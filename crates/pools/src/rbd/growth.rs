//! Growing a volume: its image first, its record last.
//!
//! librbd refuses to shrink an image, but not if two requests meet at the client that holds the
//! image's lock: there the smaller one, if it comes second, cuts off what the larger one has just
//! added. So whoever changes the size of an image holds a lock of ours meanwhile. A holder watches
//! the image; from one that does so no longer the lock is taken away, after it was blocklisted: if
//! it was only asleep, what it does next is refused.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Result, VolumeId, VolumeRecord};
use orlop_sys::ceph::{Access, Image, IoCtx, header_of};
use orlop_sys::rand::random_bytes;

use super::failure::Doing;
use super::fence::open_to_change;
use super::store::Store;

const LOCK: &str = "orlop.size";
/// For another to be done with what takes an instant.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// While this lives, nobody else changes the size of the image.
#[derive(Debug)]
pub(super) struct SizeLock {
    io: Arc<IoCtx>,
    header: String,
    cookie: String,
    /// Open longer than it is locked, so that whoever holds the lock and lives watches it.
    image: Image,
}

impl SizeLock {
    pub(super) fn is_held(&self) -> orlop_sys::Result<bool> {
        let holder = self.io.lock_holder(&self.header, LOCK)?;
        Ok(holder.is_some_and(|holder| holder.cookie == self.cookie))
    }

    /// The size that the image has then.
    pub(super) fn ensure_size(&self, id: &VolumeId, bytes: u64) -> Result<u64> {
        let grow = || {
            if self.image.size()? < bytes {
                self.image.ensure_size(bytes)?;
            }
            self.image.size()
        };
        grow().doing(|| format!("grow volume {id}"))
    }
}

impl Drop for SizeLock {
    fn drop(&mut self) {
        if let Err(error) = self.io.unlock(&self.header, LOCK, &self.cookie) {
            tracing::warn!(%error, "others have to take the lock from a client that is gone");
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
        let open = |io: &Arc<IoCtx>| Ok((Arc::clone(io), open_to_change(io, image_id)?));
        let (io, image) = self.ask(locking, open)?;
        loop {
            if io.try_lock(&header, LOCK, &cookie).doing(locking)? {
                return Ok(SizeLock { io, header, cookie, image });
            }
            take_from_silent_holder(&io, &image, &header).doing(locking)?;
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

fn take_from_silent_holder(io: &IoCtx, image: &Image, header: &str) -> orlop_sys::Result<()> {
    let Some(holder) = io.silent_holder(image, header, LOCK)? else { return Ok(()) };
    tracing::warn!(address = holder.address, "blocklisted: it holds a lock and is silent");
    io.cluster().blocklist(&holder.address)?;
    io.ensure_lock_broken(header, LOCK, &holder)
}
