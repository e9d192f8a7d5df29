//! Images without a name: deleted, but not freed yet.

use std::ptr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use super::directory::{encode, encoded};
use super::handle::{CephCall, call, owned};
use super::library::RawTrashed;
use super::objects::IoCtx;
use crate::error::Result;

/// The object whose keys are the images in the trash.
pub const TRASH: &str = "rbd_trash";
/// What Ceph calls an entry that a user has made, in its second version, readable by the first.
const ENTRY_VERSION: [u8; 2] = [2, 1];
const BY_USER: u8 = 0;
const NORMAL: u8 = 0;
const RESTORING: u8 = 3;

/// For so long `rbd trash purge`, and the schedule of a manager, leave an image to
/// [`IoCtx::try_free_trashed`], which frees it at once: librbd ends a process by an assertion whose image
/// another one frees. Clients that do not insist wait for as long.
const PURGE_DEFERMENT: Duration = Duration::from_secs(24 * 3600);

/// An entry of the trash in Ceph's encoding.
fn trash_entry(name: &str, now: SystemTime) -> Vec<u8> {
    let mut contents = vec![BY_USER];
    encode(&mut contents, name.as_bytes());
    for time in [now, now + PURGE_DEFERMENT] {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = u32::try_from(since.as_secs()).unwrap_or(u32::MAX);
        contents.extend_from_slice(&seconds.to_le_bytes());
        contents.extend_from_slice(&since.subsec_nanos().to_le_bytes());
    }
    contents.push(NORMAL);
    let mut entry = ENTRY_VERSION.to_vec();
    encode(&mut entry, &contents);
    entry
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trashed {
    pub id: String,
    /// The name that it had.
    pub name: String,
    /// By the clock of the client that put it there.
    pub since: SystemTime,
}

impl IoCtx {
    /// The first image that is moved to the trash makes it, for which a full pool has no room.
    pub fn ensure_trash(&self) -> Result<()> {
        self.ensure_object(TRASH)
    }

    /// Takes the name from the image of this id, and from no other: `rbd_trash_move` goes by the
    /// name alone, which may be another image's by then. The steps are the same. Snapshots and
    /// clones stay as they are, and so do clients that have it open.
    pub fn ensure_trashed(&self, name: &str, id: &str) -> Result<()> {
        self.ensure_in_trash(name, id)?;
        self.ensure_unnamed(name, id)?;
        // A process that was restoring it may have taken the entry away in between; now that it has no
        // name any more, it would be lost.
        self.ensure_in_trash(name, id)
    }

    fn ensure_in_trash(&self, name: &str, id: &str) -> Result<()> {
        let mut input = encoded(id);
        input.extend_from_slice(&trash_entry(name, SystemTime::now()));
        match self.execute(TRASH, ("rbd", "trash_add"), &input) {
            Err(error) if error.is_taken() => self.ensure_not_restored(id),
            done => done.map(drop),
        }
    }

    /// librbd frees nothing that is being restored, also after the one who restored it was killed.
    fn ensure_not_restored(&self, id: &str) -> Result<()> {
        let mut input = encoded(id);
        input.extend_from_slice(&[NORMAL, RESTORING]);
        match self.execute(TRASH, ("rbd", "trash_state_set"), &input) {
            Err(error) if error.is_not_found() || error.errno() == Some(Errno::STALE) => Ok(()),
            done => done.map(drop),
        }
    }

    pub fn restore_from_trash(&self, id: &str, name: &str) -> Result<()> {
        let subject = self.subject(id);
        let restoring = CephCall { operation: "restore from the trash", subject: &subject };
        let (id, name) = (restoring.text(id)?, restoring.text(name)?);
        let code = call!(rbd.rbd_trash_restore(self.handle(), id.as_ptr(), name.as_ptr()));
        restoring.check(code)?;
        Ok(())
    }

    /// Frees all its data before it returns. `false`: a snapshot or a clone still needs it, it is in
    /// a group, or a client has it open.
    pub fn try_free_trashed(&self, id: &str) -> Result<bool> {
        let subject = self.subject(id);
        let freeing = CephCall { operation: "free", subject: &subject };
        let id = freeing.text(id)?;
        let even_if_reserved = true;
        let code = call!(rbd.rbd_trash_remove(self.handle(), id.as_ptr(), even_if_reserved));
        match freeing.check(code) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => match error.errno() {
                Some(Errno::NOTEMPTY | Errno::BUSY | Errno::MLINK) => Ok(false),
                Some(_) | None => Err(error),
            },
        }
    }

    pub fn is_trashed(&self, id: &str) -> Result<bool> {
        Ok(self.omap_get(TRASH, &format!("id_{id}"))?.is_some())
    }

    pub fn trash(&self) -> Result<Vec<Trashed>> {
        let subject = self.subject("");
        let listing = CephCall { operation: "list the trash of", subject: &subject };
        let blank = RawTrashed {
            id: ptr::null_mut(),
            name: ptr::null_mut(),
            source: 0,
            deletion_time: 0,
            deferment_end_time: 0,
        };
        let mut raw = vec![blank; 256];
        let count = loop {
            let mut room = raw.len();
            let code = call!(rbd.rbd_trash_list(self.handle(), raw.as_mut_ptr(), &raw mut room));
            match listing.check(code) {
                Ok(_) => break room.min(raw.len()),
                Err(error) if error.errno() == Some(Errno::RANGE) => {
                    raw.resize(room.max(2 * raw.len()), blank);
                }
                Err(error) => return Err(error),
            }
        };
        let found = raw.iter().take(count);
        let found = found.map(|one| Trashed {
            id: owned(one.id),
            name: owned(one.name),
            since: UNIX_EPOCH + Duration::from_secs(u64::try_from(one.deletion_time).unwrap_or(0)),
        });
        let found = found.collect();
        call!(rbd.rbd_trash_list_cleanup(raw.as_mut_ptr(), count));
        Ok(found)
    }
}
