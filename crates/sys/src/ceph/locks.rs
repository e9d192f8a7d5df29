//! Who uses an image.

use std::ptr;

use rustix::io::Errno;

use super::handle::{call, owned};
use super::image::Image;
use super::library::RawWatcher;
use crate::error::Result;

const EXCLUSIVE: i32 = 0;

/// A client that has the image open for writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watcher {
    /// As a blocklist takes it: `10.0.0.1:0/1234567890`.
    pub address: String,
    pub client: i64,
}

impl Image {
    /// With ourselves, if we have it open for writing.
    pub fn watchers(&self) -> Result<Vec<Watcher>> {
        let listing = self.call("list the watchers of");
        let blank = RawWatcher { addr: ptr::null_mut(), id: 0, cookie: 0 };
        let mut raw = vec![blank; 16];
        let count = loop {
            let mut room = raw.len();
            let code = call!(rbd.rbd_watchers_list(self.handle(), raw.as_mut_ptr(), &raw mut room));
            match listing.check(code) {
                Ok(_) => break room.min(raw.len()),
                Err(error) if error.errno() == Some(Errno::RANGE) => {
                    raw.resize(room.max(2 * raw.len()), blank);
                }
                Err(error) => return Err(error),
            }
        };
        let found = raw.iter().take(count);
        let found = found.map(|one| Watcher { address: owned(one.addr), client: one.id }).collect();
        call!(rbd.rbd_watchers_list_cleanup(raw.as_mut_ptr(), count));
        Ok(found)
    }

    /// The address of the client that may write now; a lock that nobody took has none.
    pub fn lock_owner(&self) -> Result<Option<String>> {
        let asking = self.call("ask for the lock of");
        let mut mode = 0;
        let mut owners = [ptr::null_mut(); 8];
        let mut count = owners.len();
        let code = call!(rbd.rbd_lock_get_owners(
            self.handle(),
            &raw mut mode,
            owners.as_mut_ptr(),
            &raw mut count,
        ));
        match asking.check(code) {
            Err(error) if error.is_not_found() => return Ok(None),
            answer => answer?,
        };
        let count = count.min(owners.len());
        let owner = owners.iter().take(count).map(|owner| owned(*owner)).next();
        call!(rbd.rbd_lock_get_owners_cleanup(owners.as_mut_ptr(), count));
        Ok(owner)
    }

    /// Takes the lock from a client that holds it, and blocklists that client first. Missing is
    /// fine: it let go meanwhile.
    pub fn ensure_lock_broken(&self, owner: &str) -> Result<()> {
        let breaking = self.call("break the lock of");
        let owner = breaking.text(owner)?;
        let code = call!(rbd.rbd_lock_break(self.handle(), EXCLUSIVE, owner.as_ptr()));
        match breaking.check(code) {
            Err(error) if error.is_not_found() => Ok(()),
            done => done.map(drop),
        }
    }
}
