//! Who uses an image.

use std::ptr;

use rustix::io::Errno;

use super::handle::{call, owned};
use super::image::Image;
use super::library::RawWatcher;
use crate::error::Result;

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

    /// The address of the client that holds the image's lock, if it watches the image no longer:
    /// from such a one librbd takes the lock away.
    pub fn silent_holder(&self) -> Result<Option<String>> {
        let Some(holder) = self.holder()? else { return Ok(None) };
        let watches = self.watchers()?.iter().any(|watcher| watcher.address == holder);
        // It may have let go of both in good order just now.
        let still_holds = || Ok(self.holder()?.as_deref() == Some(holder.as_str()));
        Ok((!watches && still_holds()?).then_some(holder))
    }

    fn holder(&self) -> Result<Option<String>> {
        let asking = self.call("ask for the holder of the lock of");
        let (mut mode, mut owner, mut count) = (0, ptr::null_mut(), 1);
        let code = call!(rbd.rbd_lock_get_owners(
            self.handle(),
            &raw mut mode,
            &raw mut owner,
            &raw mut count
        ));
        match asking.check(code) {
            Err(error) if error.is_not_found() => return Ok(None),
            found => found?,
        };
        let address = (count > 0).then(|| owned(owner));
        call!(rbd.rbd_lock_get_owners_cleanup(&raw mut owner, count));
        Ok(address)
    }
}
