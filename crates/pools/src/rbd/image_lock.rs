//! Orlop's locks on images, for what librbd itself does not serialise.
//!
//! A lock is held for one client: for this daemon, or for an export, whose address is then part of the lock. Another
//! client breaks it only after that client has stopped watching the image and was blocklisted: if it was only
//! suspended, its next write is refused.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Result};
use orlop_sys::ceph::{
    Access, FENCED_FOR, IMAGE_LOCK, Image, IoCtx, LockHolder, Watcher, header_of,
};
use orlop_sys::rand::random_bytes;
use rustix::io::Errno;

use super::capacity::is_full;
use super::session::Session;
use super::session::cannot;

/// In a lock's cookie, between its unique part and the client that holds it.
const COOKIE_SEPARATOR: char = '@';
/// How long another client may keep the lock for an operation that takes an instant.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const WATCHERS_POLLS: usize = 5;
const WATCHERS_POLL_INTERVAL: Duration = Duration::from_millis(150);

/// While this lives, no other client has the image's lock of this name.
#[derive(Debug)]
pub(super) struct ImageLock {
    io: Arc<IoCtx>,
    name: &'static str,
    image_id: String,
    cookie: String,
    /// Open longer than it is locked, so that a client that holds the lock and lives watches it.
    image: Image,
}

impl ImageLock {
    /// For ourselves. `what` is locked, for the reader of an error.
    pub(super) fn acquire(
        session: &Session,
        image_id: &str,
        name: &'static str,
        what: &str,
    ) -> Result<Self> {
        Self::acquire_with(session, image_id, name, what, nonce(what)?)
    }

    /// For the client at this address.
    pub(super) fn acquire_for(
        session: &Session,
        address: &str,
        image_id: &str,
        name: &'static str,
        what: &str,
    ) -> Result<Self> {
        let cookie = format!("{}{COOKIE_SEPARATOR}{address}", nonce(what)?);
        Self::acquire_with(session, image_id, name, what, cookie)
    }

    fn acquire_with(
        session: &Session,
        image_id: &str,
        name: &'static str,
        what: &str,
        cookie: String,
    ) -> Result<Self> {
        let locking = || format!("lock {what}");
        let header = header_of(image_id);
        let deadline = Instant::now() + LOCK_TIMEOUT;
        let open = |io: &Arc<IoCtx>| Ok((Arc::clone(io), open_to_change(io, image_id)?));
        let (io, image) = session.ask(locking, open)?;
        loop {
            if io.try_lock(&header, name, &cookie).map_err(cannot(locking))? {
                return Ok(Self { io, name, image_id: image_id.to_owned(), cookie, image });
            }
            take_from_silent_holder(&io, &image, (&header, name)).map_err(cannot(locking))?;
            if Instant::now() >= deadline {
                return Err(Error::busy(what, "another process holds its lock"));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// The client that has it.
    pub(super) fn io(&self) -> &Arc<IoCtx> {
        &self.io
    }

    pub(super) fn image(&self) -> &Image {
        &self.image
    }

    pub(super) fn image_id(&self) -> &str {
        &self.image_id
    }
}

impl Drop for ImageLock {
    fn drop(&mut self) {
        if let Err(error) = self.io.unlock(&header_of(&self.image_id), self.name, &self.cookie) {
            tracing::warn!(
                %error,
                "cannot release an image lock; other daemons will have to break it"
            );
        }
    }
}

pub(super) fn nonce(what: &str) -> Result<String> {
    let nonce: [u8; 8] = random_bytes().map_err(cannot(|| format!("lock {what}")))?;
    Ok(format!("{:016x}", u64::from_be_bytes(nonce)))
}

/// `None`: for the client that has it.
pub(super) fn held_for(holder: &LockHolder) -> Option<&str> {
    holder.cookie.split_once(COOKIE_SEPARATOR).map(|(_, address)| address)
}

fn is_held_for(holder: &LockHolder, watcher: &Watcher) -> bool {
    held_for(holder).map_or_else(|| holder.is(watcher), |address| address == watcher.address)
}

/// Both are stopped: the client that the lock is for, and the one that has it and would go on as if
/// it still had.
fn take_from_silent_holder(
    io: &IoCtx,
    image: &Image,
    (header, name): (&str, &str),
) -> orlop_sys::Result<()> {
    let look = || io.silent_holder(image, (header, name), is_held_for);
    let Some(holder) = still_silent(look)? else { return Ok(()) };
    for address in [held_for(&holder), Some(holder.address.as_str())].into_iter().flatten() {
        tracing::warn!(address, "blocklisted a client that holds a lock and does not respond");
        io.cluster().blocklist(address, FENCED_FOR)?;
    }
    io.ensure_lock_broken(header, name, &holder)
}

/// An image that is to be changed, which needs its lock. librbd takes the lock from a client that is
/// silent for too long, and blocklists it, but for an hour only, which then could not be prolonged;
/// so it is done here before, and for good.
pub(super) fn open_to_change(io: &Arc<IoCtx>, image_id: &str) -> orlop_sys::Result<Image> {
    io.check_no_hand_lock(image_id)?;
    let image = io.open_image_by_id(image_id, None, Access::ReadWrite)?;
    let header = header_of(image_id);
    let look = || io.silent_holder(&image, (&header, IMAGE_LOCK), LockHolder::is);
    if let Some(holder) = still_silent(look)? {
        let address = holder.address;
        tracing::warn!(
            image = image_id,
            address,
            "blocklisted a client that holds the image's lock and does not respond"
        );
        io.cluster().blocklist(&address, FENCED_FOR)?;
    }
    Ok(image)
}

/// As [`open_to_change`], to remove snapshots. librbd has that done by the client that holds the image's
/// lock, which waits without limit while the pool is full. Only this client may free something then.
pub(super) fn open_to_remove(io: &Arc<IoCtx>, image_id: &str) -> orlop_sys::Result<Image> {
    let image = open_to_change(io, image_id)?;
    let Some(holder) = io.lock_holder(&header_of(image_id), IMAGE_LOCK)? else { return Ok(image) };
    let is_in_use = holder.address != io.cluster().own_address()?
        && image.watchers()?.iter().any(|watcher| holder.is(watcher));
    if is_in_use && is_full(io)? {
        return Err(orlop_sys::Error::Explained {
            operation: "remove a snapshot of",
            path: image_id.into(),
            errno: Errno::NOSPC,
            messages: format!(
                "the Ceph client {} has the image open and can remove nothing in a full pool",
                holder.address
            ),
        });
    }
    Ok(image)
}

/// The lock and the watchers are asked for one after the other. A client that closes and opens the
/// image all the time may look silent once, or twice, but not each time.
fn still_silent(
    look: impl Fn() -> orlop_sys::Result<Option<LockHolder>>,
) -> orlop_sys::Result<Option<LockHolder>> {
    let first = look()?;
    for _ in 0..WATCHERS_POLLS {
        if first.is_none() {
            break;
        }
        thread::sleep(WATCHERS_POLL_INTERVAL);
        if look()? != first {
            return Ok(None);
        }
    }
    Ok(first)
}
