//! Writes that the kernel accepted and could not bring to the device.
//!
//! The kernel keeps one such error for each filesystem, and each block device, and gives it to the first
//! descriptor that asks; one that is opened later gets it too as long as no other has (Linux 5.8). So it can
//! be found without a descriptor that is kept open, which would keep the filesystem mounted.

use std::path::Path;

use rustix::fs::{Mode, OFlags, fsync, open, syncfs};
use rustix::io::Errno;

use crate::error::{Context, Result};

/// Writes back everything of the filesystem that holds `path`. `Some`: that failed, or has failed since
/// the last question. `is_it` is asked after the path was opened: what was opened stays mounted, but something
/// else may have been there by then, whose losses are not ours.
pub fn lost_writes_at(path: &Path, is_it: impl FnOnce() -> bool) -> Result<Option<Errno>> {
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).on("open", path)?;
    match is_it() {
        true => lost(syncfs(file)).on("sync the filesystem of", path),
        false => Ok(None),
    }
}

/// As [`lost_writes_at`], of what was written through a block device's node.
pub fn lost_writes_on(device: &Path) -> Result<Option<Errno>> {
    let file = open(device, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).on("open", device)?;
    lost(fsync(file)).on("sync", device)
}

/// What a sync says of writes that went well before.
pub fn is_lost_write(errno: Errno) -> bool {
    matches!(errno, Errno::IO | Errno::NOSPC | Errno::DQUOT)
}

fn lost(synced: rustix::io::Result<()>) -> rustix::io::Result<Option<Errno>> {
    match synced {
        Ok(()) => Ok(None),
        Err(errno) if is_lost_write(errno) => Ok(Some(errno)),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests;
