//! Changes that are still there after the power went.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, FlockOperation, Mode, OFlags, RenameFlags, chmod, flock, fsync, mkdir, open, rename,
    renameat_with, stat, syncfs, unlink,
};
use rustix::io::{Errno, Result as CallResult, retry_on_intr};

use super::set_length;
use crate::abi::write_out_pages;
use crate::crash;
use crate::error::{Context, Result};
use crate::resolve::parent_of;

const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Replaces the contents of `dir/name`, or creates it: after a crash either the old contents are
/// there or the new.
///
/// The new contents are gathered in `.NAME.new`, which a crash may leave and the next replacement
/// uses again. Writers of one name queue at a lock on that file.
pub fn replace_file(dir: &Path, name: &str, contents: &[u8]) -> Result<()> {
    let gathering = gathering_path(dir, name);
    let file = gather(&gathering, contents)?;
    fsync(&file).effect_on("sync", &gathering)?;
    rename(&gathering, dir.join(name)).effect_on("rename into place", &gathering)?;
    sync_dir(dir)
}

/// As [`replace_file`], for what need not outlive the machine: a process that is killed leaves the
/// old contents or the new.
pub fn replace_file_until_reboot(dir: &Path, name: &str, contents: &[u8]) -> Result<()> {
    let gathering = gathering_path(dir, name);
    let _lock = gather(&gathering, contents)?;
    rename(&gathering, dir.join(name)).effect_on("rename into place", &gathering)
}

fn gathering_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.new"))
}

/// The name whose contents an interrupted [`replace_file`] was gathering in a file of this name.
pub fn replaced_name(gathering: &str) -> Option<&str> {
    gathering.strip_prefix('.')?.strip_suffix(".new")
}

fn gather(path: &Path, contents: &[u8]) -> Result<File> {
    let mut file = lock_gathering_file(path)?;
    let written =
        set_length(&file, 0).and_then(|()| file.write_all(contents).effect_on("write", path));
    if let Err(error) = written {
        // Half of the contents are of no use, and there may be no next replacement.
        let _ = unlink(path);
        return Err(error);
    }
    Ok(file)
}

/// The writer before us renames the file it holds the lock of, so the one that we waited for may
/// be in place already; then there is a new one to make.
fn lock_gathering_file(path: &Path) -> Result<File> {
    loop {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(open(path, flags, PRIVATE).effect_on("create", path)?);
        retry_on_intr(|| flock(&file, FlockOperation::LockExclusive)).on("lock", path)?;
        if still_names(path, &file)? {
            return Ok(file);
        }
    }
}

pub(super) fn still_names(path: &Path, file: &File) -> Result<bool> {
    let opened = file.metadata().on("stat", path)?;
    match std::fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).on("stat", path),
    }
}

/// Creates a file that must not exist. The caller syncs the directory, once for all its files.
pub fn create_file_durable(path: &Path, contents: &[u8]) -> Result<()> {
    let file = create_file_of(path, contents)?;
    fsync(&file).effect_on("sync", path)
}

/// As [`create_file_durable`], with all that [`write_out`] leaves to the next fsync.
pub fn create_file_written_out(path: &Path, contents: &[u8]) -> Result<()> {
    let file = create_file_of(path, contents)?;
    write_out_pages(&file).effect_on("write out", path)
}

fn create_file_of(path: &Path, contents: &[u8]) -> Result<File> {
    let mut file = create_file(path)?;
    file.write_all(contents).effect_on("write", path)?;
    Ok(file)
}

/// An empty file to read and write, for root alone; it must not exist.
pub fn create_file(path: &Path) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(File::from(open(path, flags, PRIVATE).effect_on("create", path)?))
}

/// A directory for root alone; it must not exist.
pub fn create_directory(path: &Path) -> Result<()> {
    mkdir(path, Mode::RWXU).effect_on("make the directory", path)
}

/// Makes the directory and what is missing above it, all of that for root alone.
pub fn ensure_private_directory(path: &Path) -> Result<()> {
    ensure_directories(path, Mode::RWXU).on("make the directory", path)
}

pub(crate) fn ensure_directories(path: &Path, mode: Mode) -> CallResult<()> {
    match mkdir(path, mode) {
        Err(Errno::NOENT) => {
            ensure_directories(path.parent().ok_or(Errno::NOENT)?, mode)?;
            made_or_there(mkdir(path, mode), path)
        }
        made => made_or_there(made, path),
    }
}

fn made_or_there(made: CallResult<()>, path: &Path) -> CallResult<()> {
    match made {
        Ok(()) => crash::after("make the directory"),
        Err(_) if path.is_dir() => {}
        Err(errno) => return Err(errno),
    }
    Ok(())
}

/// Only its owner may look into the directory.
pub fn close_to_others(directory: &Path) -> Result<()> {
    const OPERATION: &str = "restrict access to";
    let mode = stat(directory).on(OPERATION, directory)?.st_mode;
    if Mode::from_raw_mode(mode) == Mode::RWXU {
        return Ok(());
    }
    chmod(directory, Mode::RWXU).effect_on(OPERATION, directory)
}

/// To write; made for root alone if it is missing. A link or a pipe in its place is an error.
pub fn ensure_file(path: &Path) -> Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(open(path, flags, PRIVATE).effect_on("create", path)?))
}

pub fn sync_file(file: &File) -> Result<()> {
    fsync(file).effect_on_fd("sync", file)
}

/// Brings a file's data to the device, but neither what the filesystem knows of it nor what lies in
/// the device's cache. For XFS, whose log keeps the order of all changes, and which writes no part of
/// it before the device has emptied its cache: the next fsync of what was changed later takes both
/// along.
pub fn write_out(file: &File) -> Result<()> {
    write_out_pages(file).effect_on_fd("write out", file)
}

/// Removes a file; missing is fine.
pub fn ensure_no_file(path: &Path) -> Result<()> {
    match unlink(path) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed.effect_on("remove", path),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameOutcome {
    Renamed,
    TargetExists,
}

/// Renames durably, and only if nothing has the new name: the step in which a thing is born.
///
/// The directories are opened first: after the rename, a shortage of descriptors must not look like a failure to
/// create anything.
pub fn rename_new(from: &Path, to: &Path) -> Result<RenameOutcome> {
    let (old_parent, new_parent) = (parent_of(from), parent_of(to));
    let new_directory = open_dir(new_parent)?;
    let old_directory = if old_parent == new_parent { None } else { Some(open_dir(old_parent)?) };
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => crash::after("rename"),
        Err(Errno::EXIST) => return Ok(RenameOutcome::TargetExists),
        Err(errno) => return Err(errno).on("rename", from),
    }
    fsync(new_directory).effect_on("sync", new_parent)?;
    if let Some(directory) = old_directory {
        fsync(directory).effect_on("sync", old_parent)?;
    }
    Ok(RenameOutcome::Renamed)
}

pub fn sync_dir(dir: &Path) -> Result<()> {
    fsync(open_dir(dir)?).effect_on("sync", dir)
}

fn open_dir(dir: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(dir, flags, Mode::empty()).on("open", dir)
}

/// Writes back everything of the filesystem that holds `path`.
pub fn sync_filesystem(path: &Path) -> Result<()> {
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).on("open", path)?;
    syncfs(file).effect_on("sync the filesystem of", path)
}

/// Writes back what was written through a block device's node, and flushes its cache.
pub fn sync_device(path: &Path) -> Result<()> {
    let device = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).on("open", path)?;
    fsync(device).effect_on("sync", path)
}

#[cfg(test)]
mod tests;
