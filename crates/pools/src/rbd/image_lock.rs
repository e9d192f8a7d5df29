//! Locks of ours on images, for what librbd itself does not keep apart.
//!
//! A holder watches the image; from one that does so no longer the lock is taken away, after it was
//! blocklisted: if it was only asleep, what it does next is refused.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Result};
use orlop_sys::ceph::{Image, IoCtx, header_of};
use orlop_sys::rand::random_bytes;

use super::failure::Doing;
use super::fence::open_to_change;
use super::store::Store;

/// For another to be done with what takes an instant.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// While this lives, nobody else has the image's lock of this name.
#[derive(Debug)]
pub(super) struct ImageLock {
    io: Arc<IoCtx>,
    name: &'static str,
    header: String,
    cookie: String,
    /// Open longer than it is locked, so that whoever holds the lock and lives watches it.
    pub(super) image: Image,
}

impl ImageLock {
    /// The client that has it.
    pub(super) fn io(&self) -> Arc<IoCtx> {
        Arc::clone(&self.io)
    }

    pub(super) fn is_held(&self) -> orlop_sys::Result<bool> {
        let holder = self.io.lock_holder(&self.header, self.name)?;
        Ok(holder.is_some_and(|holder| holder.cookie == self.cookie))
    }
}

impl Drop for ImageLock {
    fn drop(&mut self) {
        if let Err(error) = self.io.unlock(&self.header, self.name, &self.cookie) {
            tracing::warn!(%error, "others have to take the lock from a client that is gone");
        }
    }
}

impl Store {
    /// `what` is locked, for whoever reads of it.
    pub(super) fn lock_image(
        &self,
        image_id: &str,
        name: &'static str,
        what: &str,
    ) -> Result<ImageLock> {
        let locking = || format!("lock {what}");
        let nonce: [u8; 8] = random_bytes().doing(locking)?;
        let cookie = format!("{:016x}", u64::from_be_bytes(nonce));
        let header = header_of(image_id);
        let deadline = Instant::now() + PATIENCE;
        let open = |io: &Arc<IoCtx>| Ok((Arc::clone(io), open_to_change(io, image_id)?));
        let (io, image) = self.ask(locking, open)?;
        loop {
            if io.try_lock(&header, name, &cookie).doing(locking)? {
                return Ok(ImageLock { io, name, header, cookie, image });
            }
            take_from_silent_holder(&io, &image, &header, name).doing(locking)?;
            if Instant::now() >= deadline {
                return Err(Error::Busy(what.to_owned()));
            }
            thread::sleep(PAUSE);
        }
    }
}

fn take_from_silent_holder(
    io: &IoCtx,
    image: &Image,
    header: &str,
    name: &str,
) -> orlop_sys::Result<()> {
    let Some(holder) = io.silent_holder(image, header, name)? else { return Ok(()) };
    tracing::warn!(address = holder.address, "blocklisted: it holds a lock and is silent");
    io.cluster().blocklist(&holder.address)?;
    io.ensure_lock_broken(header, name, &holder)
}
