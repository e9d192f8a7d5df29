//! Writes that the kernel accepted and could not bring to the device.
//!
//! The kernel keeps one such error for each filesystem, and each block device, and gives it to the first
//! descriptor that asks; one that is opened later gets it too as long as no other has (Linux 5.8). So it can
//! be found without a descriptor that is kept open, which would keep the filesystem mounted.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fsync, open, openat, syncfs};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::error::{Context, Result};

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

/// Writes back everything of the filesystem that holds `path`. `Some`: that failed, or has failed since
/// the last question. `is_it` is asked after the path was opened: what was opened stays mounted, but something
/// else may have been there by then, whose losses are not ours.
///
/// The sync itself keeps the filesystem in use, but no mount of it: it may take for as long as its device does not
/// answer, and a workload that has ended must be able to leave its path.
pub fn lost_writes_at(path: &Path, is_it: impl FnOnce() -> bool) -> Result<Option<Errno>> {
    let file = open(path, READ, Mode::empty()).on("open", path)?;
    if !is_it() {
        return Ok(None);
    }
    let file = without_mount(file).on("clone the mount of", path)?;
    lost(syncfs(file)).on("sync the filesystem of", path)
}

/// The same directory by a mount that is at no path. Where that cannot be made, the directory as it was opened.
fn without_mount(file: OwnedFd) -> rustix::io::Result<OwnedFd> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    match open_tree(&file, "", clone) {
        Ok(tree) => openat(tree, ".", READ, Mode::empty()),
        Err(Errno::PERM | Errno::INVAL | Errno::NOSYS) => Ok(file),
        Err(other) => Err(other),
    }
}

/// As [`lost_writes_at`], of what was written through a block device's node.
pub fn lost_writes_on(device: &Path) -> Result<Option<Errno>> {
    let file = open(device, READ, Mode::empty()).on("open", device)?;
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
