//! Who may change the size of an image.
//!
//! librbd refuses to shrink an image, but not if two requests meet at the client that holds the
//! image's lock: there the smaller one, if it comes second, cuts off what the larger one has just
//! added. An export even shrinks when it is told so, and it is told the size that it is to show. So
//! whoever changes the size holds a lock of ours meanwhile, for one client that does it: ourselves,
//! or an export, whose address is in the lock then. It is taken away only after that client has
//! fallen silent and was blocklisted: should it only have slept, what it does next is refused.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Result, VolumeId};
use orlop_sys::ceph::{FOR_GOOD, Image, IoCtx, LockHolder, Watcher, header_of};
use orlop_sys::rand::random_bytes;
use orlop_sys::storage_daemon::Export;

use super::failure::Doing;
use super::fence::{open_to_change, still_silent};
use super::store::Store;
use super::volume_records::named_image;

const LOCK: &str = "orlop.size";
/// Between what tells locks apart and the client that one is held for.
const HELD_FOR: char = '@';
/// For another to be done with what takes an instant.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// While this lives, nobody else changes the size of the image.
#[derive(Debug)]
pub(super) struct SizeLock {
    io: Arc<IoCtx>,
    image_id: String,
    cookie: String,
    /// Open longer than it is locked, so that whoever holds the lock and lives watches it.
    image: Image,
}

impl SizeLock {
    /// The size that the image has then.
    pub(super) fn ensure_size(&self, id: &VolumeId, bytes: u64) -> Result<u64> {
        // librbd tells what it has last heard of, which may be older than the lock.
        let size = || self.io.image_size(&self.image_id);
        let grow = || {
            if size()? < bytes {
                self.image.ensure_size(bytes)?;
            }
            size()
        };
        grow().doing(|| format!("grow volume {id}"))
    }
}

impl Drop for SizeLock {
    fn drop(&mut self) {
        if let Err(error) = self.io.unlock(&header_of(&self.image_id), LOCK, &self.cookie) {
            tracing::warn!(%error, "others have to take the lock from a client that is gone");
        }
    }
}

impl Store {
    /// For ourselves.
    pub(super) fn lock_size(&self, id: &VolumeId, image_id: &str) -> Result<SizeLock> {
        self.locked_size(id, image_id, nonce(id)?)
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
        self.locked_size(id, image_id, format!("{}{HELD_FOR}{address}", nonce(id)?))
    }

    fn locked_size(&self, id: &VolumeId, image_id: &str, cookie: String) -> Result<SizeLock> {
        let locking = || format!("lock the size of volume {id}");
        let header = header_of(image_id);
        let deadline = Instant::now() + PATIENCE;
        let open = |io: &Arc<IoCtx>| Ok((Arc::clone(io), open_to_change(io, image_id)?));
        let (io, image) = self.ask(locking, open)?;
        loop {
            if io.try_lock(&header, LOCK, &cookie).doing(locking)? {
                return Ok(SizeLock { io, image_id: image_id.to_owned(), cookie, image });
            }
            take_from_silent_holder(&io, &image, &header).doing(locking)?;
            if Instant::now() >= deadline {
                return Err(Error::Busy(format!("the size of volume {id}")));
            }
            thread::sleep(PAUSE);
        }
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
                tracing::warn!(%error, "a volume may not grow before it is staged again");
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

fn nonce(id: &VolumeId) -> Result<String> {
    let nonce: [u8; 8] = random_bytes().doing(|| format!("lock the size of volume {id}"))?;
    Ok(format!("{:016x}", u64::from_be_bytes(nonce)))
}

fn address_of(id: &VolumeId, export: &Export) -> Result<Option<String>> {
    export.remembered_address().doing(|| format!("look at the export of volume {id}"))
}

/// `None`: for the client that has it.
fn held_for(holder: &LockHolder) -> Option<&str> {
    holder.cookie.split_once(HELD_FOR).map(|(_, address)| address)
}

fn is_held_for(holder: &LockHolder, watcher: &Watcher) -> bool {
    held_for(holder).map_or_else(|| holder.is(watcher), |address| address == watcher.address)
}

/// Both are stopped: the client that the lock is for, and the one that has it and would go on as if
/// it still had.
fn take_from_silent_holder(io: &IoCtx, image: &Image, header: &str) -> orlop_sys::Result<()> {
    let look = || io.silent_holder(image, (header, LOCK), is_held_for);
    let Some(holder) = still_silent(look)? else { return Ok(()) };
    for address in [held_for(&holder), Some(holder.address.as_str())].into_iter().flatten() {
        tracing::warn!(address, "blocklisted: it holds a lock and is silent");
        io.cluster().blocklist(address, FOR_GOOD)?;
    }
    io.ensure_lock_broken(header, LOCK, &holder)
}
