//! Reads small files. A user may have replaced one by something that blocks the reader, or that never
//! ends.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::process::geteuid;

use super::{FileAccess, open_regular};
use crate::error::{Context, Error, Result};

/// The contents of a regular file of at most `most` bytes. Anything else is refused, and not waited
/// for: a pipe has no contents before a process writes to it.
pub fn read_small(path: &Path, max: usize) -> Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty()).on("read", path)?);
    let there = fstat(&file).on("read", path)?;
    if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile {
        return Err(Error::refused("read", path, "it is not a regular file"));
    }
    bounded(&file, path, max)
}

/// The same, of a file that is a secret: one that others than its owner may read or write is refused, and so is that of
/// another user.
pub fn read_private(path: &Path, max: usize) -> Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty()).on("read", path)?);
    let there = fstat(&file).on("read", path)?;
    if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile {
        return Err(Error::refused("read", path, "it is not a regular file"));
    }
    if !Mode::from_raw_mode(there.st_mode).intersection(Mode::RWXG | Mode::RWXO).is_empty() {
        return Err(Error::refused("read", path, "others than its owner may use it"));
    }
    if ![0, geteuid().as_raw()].contains(&there.st_uid) {
        return Err(Error::refused("read", path, "it is another user's"));
    }
    // All at once: what is moved when the memory grows leaves a copy behind.
    let mut contents = Vec::with_capacity(max.saturating_add(1));
    read_bounded(&file, path, max, &mut contents)?;
    Ok(contents)
}

/// The same, and a symbolic link is refused, too: the file may come with a disk from elsewhere, and name one of this
/// machine.
pub fn read_small_no_link(path: &Path, max: usize) -> Result<Vec<u8>> {
    bounded(&open_regular(path, FileAccess::Read)?, path, max)
}

/// As [`read_small`], of what may also be a pipe, which is waited for.
pub fn read_at_most(path: &Path, max: usize) -> Result<Vec<u8>> {
    let file = File::open(path).on("read", path)?;
    bounded(&file, path, max)
}

fn bounded(file: &File, path: &Path, max: usize) -> Result<Vec<u8>> {
    let mut contents = Vec::new();
    read_bounded(file, path, max, &mut contents)?;
    Ok(contents)
}

fn read_bounded(file: &File, path: &Path, max: usize, contents: &mut Vec<u8>) -> Result<()> {
    let one_more = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    file.take(one_more).read_to_end(contents).on("read", path)?;
    match contents.len() > max {
        true => Err(Error::refused("read", path, format!("it is longer than {max} bytes"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
