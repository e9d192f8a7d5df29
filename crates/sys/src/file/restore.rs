//! Restores the empty directory or file that was at a path before something was mounted there.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    CWD, Dir, Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, fstat, mkdirat, openat, openat2,
};
use rustix::io::{Errno, Result as CallResult};
use rustix::process::geteuid;

use crate::error::{Context, Error, Result};
use crate::resolve::{last_component, parent_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    Directory,
    File,
}

/// An empty directory or file, with its owner and mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmptyEntry {
    pub kind: EntryKind,
    pub mode: u32,
    pub user: u32,
    pub group: u32,
}

const OPERATION: &str = "restore";

/// Creates the entry, unless something exists at the path.
///
/// The parent directory may belong to a user who renames and links at the same time, to become the owner of another file. So no
/// link is followed, and the owner is changed by an open descriptor of a file that is known to be new.
pub fn restore_empty(path: &Path, entry: EmptyEntry) -> Result<()> {
    let name = last_component(OPERATION, path)?;
    let parent = openat2(
        CWD,
        parent_of(path),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
    .on(OPERATION, path)?;
    let made = match entry.kind {
        EntryKind::Directory => mkdirat(&parent, name, Mode::RWXU),
        EntryKind::File => create(&parent, name).and_then(|file| set_attributes(&file, entry)),
    };
    match made {
        Err(Errno::EXIST) => return Ok(()),
        made => made.effect_on(OPERATION, path)?,
    }
    if entry.kind == EntryKind::File {
        return Ok(());
    }
    match open_new(&parent, name).on(OPERATION, path)? {
        Some(directory) => set_attributes(&directory, entry).effect_on(OPERATION, path),
        None => Err(Error::refused(OPERATION, path, "another directory took its place")),
    }
}

fn create(parent: &OwnedFd, name: &OsStr) -> CallResult<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::RUSR | Mode::WUSR)
}

/// No system call creates a directory and opens it. A directory that was put in its place is accepted only if a change of
/// its owner does no harm: it is empty, and closed to all but this user.
fn open_new(parent: &OwnedFd, name: &OsStr) -> CallResult<Option<OwnedFd>> {
    let directory = openat2(
        parent,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV,
    )?;
    let found = fstat(&directory)?;
    let is_closed = found.st_uid == geteuid().as_raw() && found.st_mode & 0o7077 == 0;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        if !is_closed || (entry.file_name() != c"." && entry.file_name() != c"..") {
            return Ok(None);
        }
    }
    Ok(Some(directory))
}

/// Sets the owner first, because that may clear bits of the mode.
fn set_attributes(made: &OwnedFd, entry: EmptyEntry) -> CallResult<()> {
    fchown(made, Some(Uid::from_raw(entry.user)), Some(Gid::from_raw(entry.group)))?;
    fchmod(made, Mode::from_raw_mode(entry.mode & 0o7777))
}

/// Is the open file still the one at this path? A link is not followed.
pub fn is_still_at(path: &Path, file: &File) -> Result<bool> {
    super::durable::still_names(path, file)
}

#[cfg(test)]
mod tests;
