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
}
