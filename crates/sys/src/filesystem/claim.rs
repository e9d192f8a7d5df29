//! Devices that no other process may use for the moment.
//!
//! A filesystem may outlive its last mount a little: a child that is being started has a copy of
//! the context it was mounted by until it executes its program. So a claim waits, and programs
//! that would give up at once are started after a successful one.

use std::fs::File;
use std::path::Path;
use std::sync::RwLockReadGuard;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::error::{Context, Result};
use crate::tool;

const PAUSES: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Held for a short time only: no program is started while it is, for the child would keep the
/// claim beyond its end here. The file is closed before that is allowed again.
pub(super) struct Claim {
    pub(super) file: File,
    _no_program_starts: RwLockReadGuard<'static, ()>,
}

/// Opens a device for reading and writing. If it is still mounted, or claimed, after a while, the
/// error [`crate::Error::is_busy`].
pub(super) fn claim(device: &Path) -> Result<Claim> {
    // On a block device, and without O_CREAT, O_EXCL asks for exactly that.
    let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    let mut pauses = PAUSES.into_iter();
    loop {
        let no_program_starts = tool::hold_starts();
        match (open(device, flags, Mode::empty()), pauses.next()) {
            (Err(Errno::BUSY), Some(milliseconds)) => {
                drop(no_program_starts);
                std::thread::sleep(Duration::from_millis(milliseconds));
            }
            (opened, _) => {
                let file = File::from(opened.on("claim", device)?);
                return Ok(Claim { file, _no_program_starts: no_program_starts });
            }
        }
    }
}

pub(super) fn wait_until_unclaimed(device: &Path) -> Result<()> {
    claim(device).map(drop)
}
