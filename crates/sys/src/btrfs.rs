//! Subvolumes of btrfs: directories that can be snapshotted, with all files in them, at one
//! instant.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, openat};
use rustix::io::Errno;

use crate::abi;
use crate::crash;
use crate::error::{Context, Result};
use crate::file::{BackingKind, kind_of};
use crate::resolve::{ResolvedPath, open_existing};

/// Every subvolume's root has this inode number, and nothing else on btrfs has.
const ROOT_INODE: u64 = 256;

/// The path must exist.
pub fn is_subvolume(path: &Path) -> Result<bool> {
    const OPERATION: &str = "look for a subvolume at";
    let there = open_existing(OPERATION, path, OFlags::PATH)?;
    let stat = fstat(&there).on(OPERATION, path)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory || stat.st_ino != ROOT_INODE {
        return Ok(false);
    }
    Ok(kind_of(&fstatfs(&there).on(OPERATION, path)?) == BackingKind::Btrfs)
}

/// An empty one, durable. Its parent directory must exist, and nothing of its name
/// (`EEXIST`).
pub fn create_subvolume(path: &Path) -> Result<()> {
    const OPERATION: &str = "create the subvolume";
    let (parent, name) = open_parent(OPERATION, path)?;
    abi::btrfs_create_subvolume(parent, name.as_bytes()).effect_on(OPERATION, path)
}

/// Makes `target` a read-only snapshot of the subvolume `source`: one instant of all its files,
/// whatever is being written, and durable. What waits in the page cache gets in too, but out of
/// order; the order of what is written with direct I/O holds.
pub fn snapshot_subvolume(source: &Path, target: &Path) -> Result<()> {
    const OPERATION: &str = "snapshot the subvolume";
    let from = open_existing(OPERATION, source, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let (parent, name) = open_parent(OPERATION, target)?;
    abi::btrfs_snapshot_subvolume(from.as_fd(), parent, name.as_bytes())
        .effect_on(OPERATION, source)
}

/// Takes the subvolume away with all that is in it; missing is fine. Its space comes back some
/// time later. One that holds other subvolumes is not deleted (`ENOTEMPTY`).
pub fn delete_subvolume(path: &Path) -> Result<()> {
    const OPERATION: &str = "delete the subvolume";
    let (parent, name) = match open_parent(OPERATION, path) {
        Err(error) if error.is_not_found() => return Ok(()),
        opened => opened?,
    };
    match abi::btrfs_destroy_subvolume(parent, name.as_bytes()) {
        Ok(()) => {
            crash::after(OPERATION);
            Ok(())
        }
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).on(OPERATION, path),
    }
}

/// btrfs wants a descriptor of the directory that is good for more than naming it.
fn open_parent(operation: &'static str, path: &Path) -> Result<(OwnedFd, OsString)> {
    let resolved = ResolvedPath::of(operation, path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = openat(&resolved.parent, ".", flags, Mode::empty()).on(operation, path)?;
    Ok((parent, resolved.name))
}

#[cfg(test)]
mod tests;
