//! The directories and files that mounts go on.

use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::crash;
use crate::error::{Context, Error, Result};
use crate::file::ensure_directories;
use crate::resolve::{Place, parent_of};

const DIRECTORY_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;

/// Makes the directory and what is missing above it. True if it was not there. A link, or
/// anything else that is no directory, is an error.
pub fn ensure_directory(path: &Path) -> Result<bool> {
    const OPERATION: &str = "make the directory";
    let place = match Place::of(OPERATION, path) {
        Err(error) if error.is_not_found() => {
            let mode = Mode::from_raw_mode(DIRECTORY_MODE);
            ensure_directories(parent_of(path), mode).before(OPERATION, path)?;
            Place::of(OPERATION, path)?
        }
        place => place?,
    };
    match mkdirat(&place.parent, &place.name, Mode::from_raw_mode(DIRECTORY_MODE)) {
        Ok(()) => {
            crash::after("make the directory");
            Ok(true)
        }
        Err(Errno::EXIST) => {
            place.open(OFlags::PATH | OFlags::DIRECTORY).before(OPERATION, path)?;
            Ok(false)
        }
        Err(errno) => Err(errno).on(OPERATION, path),
    }
}

/// Makes an empty file in an existing directory. True if it was not there. A device node is fine
/// too: that is how the file looks when one is bound on it.
pub fn ensure_file(path: &Path) -> Result<bool> {
    const OPERATION: &str = "make the file";
    let place = Place::of(OPERATION, path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match openat(&place.parent, &place.name, flags, Mode::from_raw_mode(FILE_MODE)) {
        Ok(_) => {
            crash::after("make the file");
            return Ok(true);
        }
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno).on(OPERATION, path),
    }
    let there = place.open(OFlags::PATH).before(OPERATION, path)?;
    let mode = fstat(there).before(OPERATION, path)?.st_mode;
    if FileType::from_raw_mode(mode) == FileType::Directory {
        return Err(Errno::ISDIR).on(OPERATION, path);
    }
    Ok(false)
}

/// Removes an empty directory or an empty file; missing is fine. Whatever holds data is left
/// alone, and reported: it was not made here to be mounted on, or something wrote below a mount.
pub fn remove_mount_point(path: &Path) -> Result<()> {
    const OPERATION: &str = "remove the mount point";
    let place = match Place::of(OPERATION, path) {
        Err(error) if error.is_not_found() => return Ok(()),
        place => place?,
    };
    let there = match statat(&place.parent, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        there => there.before(OPERATION, path)?,
    };
    let kind = FileType::from_raw_mode(there.st_mode);
    let how = if kind == FileType::Directory {
        AtFlags::REMOVEDIR
    } else if kind == FileType::RegularFile && there.st_size == 0 {
        AtFlags::empty()
    } else {
        return Err(Error::refused(OPERATION, path, "neither a directory nor an empty file"));
    };
    match unlinkat(&place.parent, &place.name, how) {
        Ok(()) => {
            crash::after(OPERATION);
            Ok(())
        }
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).on(OPERATION, path),
    }
}

#[cfg(test)]
mod tests;
