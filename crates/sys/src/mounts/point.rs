//! The directories and files that mounts go on.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, mkdirat, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::crash;
use crate::error::{Context, Error, Result};
use crate::file::ensure_directories;
use crate::resolve::{ResolvedPath, parent_of};

const DIRECTORY_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;

/// Makes the directory and what is missing above it. True if it was not there. A link, or
/// anything else that is no directory, is an error.
pub fn ensure_directory(path: &Path) -> Result<bool> {
    const OPERATION: &str = "make the directory";
    let resolved = match ResolvedPath::of(OPERATION, path) {
        Err(error) if error.is_not_found() => {
            let mode = Mode::from_raw_mode(DIRECTORY_MODE);
            ensure_directories(parent_of(path), mode).on(OPERATION, path)?;
            ResolvedPath::of(OPERATION, path)?
        }
        resolved => resolved?,
    };
    match mkdirat(&resolved.parent, &resolved.name, Mode::from_raw_mode(DIRECTORY_MODE)) {
        Ok(()) => {
            crash::after("make the directory");
            Ok(true)
        }
        Err(Errno::EXIST) => {
            resolved.open(OFlags::PATH | OFlags::DIRECTORY).on(OPERATION, path)?;
            Ok(false)
        }
        Err(errno) => Err(errno).on(OPERATION, path),
    }
}

/// Makes an empty file in an existing directory. True if it was not there. A device node is fine
/// too: that is how the file looks when one is bound on it.
pub fn ensure_file(path: &Path) -> Result<bool> {
    const OPERATION: &str = "make the file";
    let resolved = ResolvedPath::of(OPERATION, path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match openat(&resolved.parent, &resolved.name, flags, Mode::from_raw_mode(FILE_MODE)) {
        Ok(_) => {
            crash::after("make the file");
            return Ok(true);
        }
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno).on(OPERATION, path),
    }
    let there = resolved.open(OFlags::PATH).on(OPERATION, path)?;
    let mode = fstat(there).on(OPERATION, path)?.st_mode;
    if FileType::from_raw_mode(mode) == FileType::Directory {
        return Err(Errno::ISDIR).on(OPERATION, path);
    }
    Ok(false)
}

/// Removes an empty directory or an empty file; missing is fine. Whatever holds data is left
/// alone, and reported: it was not made here to be mounted on, or something wrote below a mount.
pub fn remove_mount_point(path: &Path) -> Result<()> {
    const OPERATION: &str = "remove the mount point";
    let resolved = match ResolvedPath::of(OPERATION, path) {
        Err(error) if error.is_not_found() => return Ok(()),
        resolved => resolved?,
    };
    let there = match statat(&resolved.parent, &resolved.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        there => there.on(OPERATION, path)?,
    };
    let kind = FileType::from_raw_mode(there.st_mode);
    let how = if kind == FileType::Directory {
        AtFlags::REMOVEDIR
    } else if kind == FileType::RegularFile && there.st_size == 0 {
        AtFlags::empty()
    } else if kind == FileType::RegularFile {
        return Err(Error::refused(OPERATION, path, "it is a file that is not empty"));
    } else {
        return Err(Error::refused(OPERATION, path, "it is neither a directory nor a file"));
    };
    match unlinkat(&resolved.parent, &resolved.name, how) {
        Ok(()) => {
            crash::after(OPERATION);
            Ok(())
        }
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).on(OPERATION, path),
    }
}

/// Lets go of what other mount namespaces still have mounted there: a new directory, or a new empty
/// file, takes the place of the one that mounts stood on, and the kernel drops all mounts from what is
/// no longer there. The path exists all the time, with the same owner and mode.
///
/// Missing is fine. Refused are a path at which something is mounted in this namespace (`EBUSY`), a
/// directory that is not empty (`ENOTEMPTY`), and a file that holds something.
pub fn replace_mount_point(path: &Path) -> Result<()> {
    const OPERATION: &str = "replace the mount point";
    let resolved = match ResolvedPath::of(OPERATION, path) {
        Err(error) if error.is_not_found() => return Ok(()),
        resolved => resolved?,
    };
    let there = match statat(&resolved.parent, &resolved.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        there => there.on(OPERATION, path)?,
    };
    // After the inode that is to be replaced: a call that is repeated after a crash finds it.
    let fresh = OsString::from(format!(".orlop-{}", there.st_ino));
    let kind = FileType::from_raw_mode(there.st_mode);
    let how = if kind == FileType::Directory {
        AtFlags::REMOVEDIR
    } else if kind == FileType::RegularFile && there.st_size == 0 {
        AtFlags::empty()
    } else {
        return Err(Error::refused(OPERATION, path, "neither a directory nor an empty file"));
    };
    let replaced = make_fresh(&resolved, &fresh, how).and_then(|made| {
        make_alike(&made, &there)?;
        renameat(&resolved.parent, &fresh, &resolved.parent, &resolved.name)
    });
    match replaced {
        Ok(()) => {
            crash::after(OPERATION);
            Ok(())
        }
        Err(errno) => {
            if unlinkat(&resolved.parent, &fresh, how).is_ok() {
                crash::after("remove an unused mount point");
            }
            Err(errno).on(OPERATION, path)
        }
    }
}

/// What a crash left of an earlier attempt may be half-made.
fn make_fresh(resolved: &ResolvedPath, name: &OsStr, how: AtFlags) -> rustix::io::Result<OwnedFd> {
    if unlinkat(&resolved.parent, name, how).is_ok() {
        crash::after("remove an unused mount point");
    }
    let private = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if how != AtFlags::REMOVEDIR {
        let made = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        return openat(&resolved.parent, name, made, private)
            .inspect(|_| crash::after("make a mount point"));
    }
    mkdirat(&resolved.parent, name, private | Mode::XUSR)?;
    crash::after("make a mount point");
    openat(&resolved.parent, name, flags | OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

fn make_alike(made: &OwnedFd, model: &Stat) -> rustix::io::Result<()> {
    let own = fstat(made)?;
    if (own.st_uid, own.st_gid) != (model.st_uid, model.st_gid) {
        fchown(made, Some(Uid::from_raw(model.st_uid)), Some(Gid::from_raw(model.st_gid)))?;
        crash::after("set the owner of a mount point");
    }
    fchmod(made, Mode::from_raw_mode(model.st_mode & 0o7777))?;
    crash::after("set the mode of a mount point");
    Ok(())
}

#[cfg(test)]
mod tests;
