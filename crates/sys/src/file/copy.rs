//! Copies of whole files: by sharing extents where the filesystem can, else hole by hole.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{
    CWD, Mode, OFlags, SeekFrom, copy_file_range, ioctl_ficlone, open, openat, seek, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

use super::{in_place, set_length};
use crate::abi;
use crate::crash;
use crate::error::{Context, Result};
use crate::rand::random_bytes;

const PRECLONE_CHUNK: u64 = 64 << 20;
const COPY_CHUNK: usize = 1 << 20;
/// Not smaller than any filesystem's block, so that there is a whole extent to share.
const TRIAL_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloneOutcome {
    Shared,
    /// This filesystem, or this pair of files, cannot share extents.
    Unsupported,
}

/// Makes `target` share all extents of `source`: a point in time, whatever is being written.
///
/// btrfs does so only between two files with checksums or two without. An empty target becomes
/// what the source is; its directory or the mount options may have made it the other.
pub fn try_clone_file(source: &File, target: &File) -> Result<CloneOutcome> {
    let share = || retry_on_intr(|| ioctl_ficlone(target, source));
    let mut shared = share();
    if shared == Err(Errno::INVAL) {
        // The source's flag first; then the other one, for a source that has no checksums because of
        // the mount option nodatasum does not show it.
        let in_place = in_place::is_overwritten_in_place(source).unwrap_or(false);
        for in_place in [in_place, !in_place] {
            if shared == Err(Errno::INVAL) && in_place::try_set(target, in_place)? {
                shared = share();
            }
        }
    }
    match shared {
        Ok(()) => {
            crash::after("share all extents");
            Ok(CloneOutcome::Shared)
        }
        Err(errno) if cannot_share(errno) => Ok(CloneOutcome::Unsupported),
        Err(errno) => Err(errno).on_fd("share the extents of", source),
    }
}

/// Shares `source` with `target` piece by piece, so that a later [`try_clone_file`] has little
/// left to do. Writers stall only for a piece at a time; on XFS that cuts their longest stall
/// tenfold. The result is no point in time, and where sharing is unsupported nothing happens.
pub fn preclone_chunks(source: &File, target: &File) -> Result<()> {
    let length = length_of(source)?;
    let mut offset = 0;
    while offset < length {
        let chunk = PRECLONE_CHUNK.min(length - offset);
        match retry_on_intr(|| abi::clone_range(source.as_fd(), target, offset, chunk)) {
            Ok(()) => {
                crash::after("share some extents");
                offset += chunk;
            }
            Err(errno) if cannot_share(errno) => return Ok(()),
            Err(errno) => return Err(errno).on_fd("share a part of", source),
        }
    }
    Ok(())
}

fn cannot_share(errno: Errno) -> bool {
    [Errno::OPNOTSUPP, Errno::XDEV, Errno::INVAL, Errno::NOTTY].contains(&errno)
}

/// Really tries it, for what a filesystem can do depends on how it was formatted.
pub fn can_share_extents(dir: &Path) -> Result<bool> {
    let source = File::from(nameless_file(dir)?);
    let target = File::from(nameless_file(dir)?);
    match source.write_all_at(&[0xA5; TRIAL_BYTES], 0).effect_on("write a trial file in", dir) {
        // XFS says without an extent, too, whether it was formatted for sharing them.
        Err(error) if error.is_no_space() => {}
        written => written?,
    }
    Ok(try_clone_file(&source, &target)? == CloneOutcome::Shared)
}

/// Writes a little to the disk of the directory, which leaves nothing; returns when it is there.
pub fn try_write(dir: &Path) -> Result<()> {
    let trial = File::from(nameless_file(dir)?);
    trial.write_all_at(&[0xA5; TRIAL_BYTES], 0).effect_on("write a trial file in", dir)?;
    trial.sync_all().effect_on("sync a trial file in", dir)
}

fn nameless_file(dir: &Path) -> Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match openat(CWD, dir, flags | OFlags::TMPFILE, mode) {
        // A filesystem without O_TMPFILE, and a kernel that takes the flag for O_DIRECTORY.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        opened => return opened.effect_on("make a trial file in", dir),
    }
    let [a, b, c, d] = random_bytes()?;
    let path = dir.join(format!(".trial-{a:02x}{b:02x}{c:02x}{d:02x}"));
    let file =
        open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode).effect_on("create", &path)?;
    unlinkat(CWD, &path, rustix::fs::AtFlags::empty()).effect_on("unlink", &path)?;
    Ok(file)
}

/// Copies data and keeps holes; what `target` held before is gone. Returns the bytes copied.
pub fn copy_sparse(source: &File, target: &File) -> Result<u64> {
    let length = length_of(source)?;
    set_length(target, 0)?;
    set_length(target, length)?;
    let mut copied = 0;
    let mut offset = 0;
    while let Some(start) = next_data(source, offset)?.filter(|start| *start < length) {
        let end = next_hole(source, start)?.min(length);
        copy_range(source, target, start, end)?;
        copied += end.saturating_sub(start);
        offset = end;
    }
    Ok(copied)
}

/// As [`copy_sparse`], but `target` keeps its length and what it has reserved, and shares no extent
/// with `source` afterwards: copies that the kernel makes may.
pub fn copy_apart(source: &File, target: &File) -> Result<()> {
    let length = length_of(source)?;
    let mut offset = 0;
    while let Some(start) = next_data(source, offset)?.filter(|start| *start < length) {
        let end = next_hole(source, start)?.min(length);
        copy_by_hand(source, target, start, end)?;
        offset = end;
    }
    Ok(())
}

fn copy_range(source: &File, target: &File, start: u64, end: u64) -> Result<()> {
    let mut offset = start;
    while offset < end {
        let (mut from, mut to) = (offset, offset);
        let wanted = usize::try_from(end - offset).unwrap_or(usize::MAX).min(1 << 30);
        match copy_file_range(source, Some(&mut from), target, Some(&mut to), wanted) {
            Ok(0) => return copy_by_hand(source, target, offset, end),
            Ok(_) => {
                crash::after("copy a part");
                offset = from;
            }
            Err(Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::PERM) => {
                return copy_by_hand(source, target, offset, end);
            }
            Err(errno) => return Err(errno).on_fd("copy to", target),
        }
    }
    Ok(())
}

fn copy_by_hand(source: &File, target: &File, start: u64, end: u64) -> Result<()> {
    let mut buffer = vec![0; COPY_CHUNK];
    let mut offset = start;
    while offset < end {
        let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let piece = &mut buffer[..left.min(COPY_CHUNK)];
        source.read_exact_at(piece, offset).on_fd("read", source)?;
        target.write_all_at(piece, offset).effect_on_fd("write", target)?;
        offset += u64::try_from(piece.len()).unwrap_or(u64::MAX);
    }
    Ok(())
}

pub fn has_data(file: &File) -> Result<bool> {
    has_data_from(file, 0)
}

/// The same, of what comes after `offset`.
pub fn has_data_from(file: &File, offset: u64) -> Result<bool> {
    Ok(next_data(file, offset)?.is_some())
}

/// How many extents map the file: what a later clone costs is in proportion.
pub fn extent_count(file: &File) -> Result<u64> {
    abi::extent_count(file).map(u64::from).on_fd("count the extents of", file)
}

pub(super) fn length_of(file: &File) -> Result<u64> {
    Ok(file.metadata().on_fd("stat", file)?.len())
}

pub(super) fn next_data(file: &File, offset: u64) -> Result<Option<u64>> {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => Ok(Some(start)),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno).on_fd("find data in", file),
    }
}

pub(super) fn next_hole(file: &File, offset: u64) -> Result<u64> {
    seek(file, SeekFrom::Hole(offset)).on_fd("find a hole in", file)
}

#[cfg(test)]
mod tests;
