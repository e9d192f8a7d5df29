use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, openat2, unlinkat};
use rustix::io::{Errno, Result as CallResult};
use rustix::path::Arg;

use crate::crash;
use crate::error::{Context, Result};
use crate::resolve::ResolvedPath;

/// Deeper than anything made here; a tree that goes further is a mistake, and must not take the
/// process down with its stack or its descriptors.
const MAX_DEPTH: u32 = 64;

/// Removes a file or a directory with all it holds. Missing is fine. Links are removed, not
/// followed; a mount point below stops it (`EXDEV`, `EBUSY`) before anything mounted is touched.
pub fn remove_tree(path: &Path) -> Result<()> {
    let resolved = match ResolvedPath::of("remove", path) {
        Err(error) if error.is_not_found() => return Ok(()),
        resolved => resolved?,
    };
    remove_entry(&resolved.parent, resolved.name.as_os_str(), MAX_DEPTH).on("remove", path)
}

fn remove_entry(parent: impl AsFd, name: impl Arg + Copy, levels: u32) -> CallResult<()> {
    match unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) => {
            crash::after("remove a file");
            return Ok(());
        }
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(errno) => return Err(errno),
    }
    let levels = levels.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    match open_on_same_mount(&parent, name) {
        Ok(directory) => remove_entries(&directory, levels)?,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
        Ok(()) => {
            crash::after("remove a directory");
            Ok(())
        }
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn remove_entries(directory: &OwnedFd, levels: u32) -> CallResult<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if name != c"." && name != c".." {
            remove_entry(directory, name, levels)?;
        }
    }
    Ok(())
}

fn open_on_same_mount(parent: impl AsFd, name: impl Arg) -> CallResult<OwnedFd> {
    openat2(
        parent,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS,
    )
}

#[cfg(test)]
mod tests;
