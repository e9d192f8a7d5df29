use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::FsKind;
use super::btrfs;
use super::ext4::Ext4Superblock;
use crate::error::{Context, Error, Result};
use crate::zeroes::is_zero;

pub(super) const HEAD: u64 = 1 << 20;
pub(super) const TAIL: u64 = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// The first MiB and the last 64 KiB, where every format we know of leaves its mark, are zero.
    Blank,
    Filesystem {
        kind: FsKind,
        uuid: [u8; 16],
        /// The kernel found an error in this ext4 earlier.
        needs_check: bool,
    },
    /// Data that is none of our filesystems, or more than one of them.
    Foreign,
}

/// Where the kinds have their first superblocks: ext4 and XFS in the first block, btrfs after 64 KiB.
const SUPERBLOCKS: [u64; 2] = [0, 64 << 10];
const SUPERBLOCK_BYTES: u64 = 4096;

/// Looks at a device or an image file, without changing it. Where a filesystem is, two blocks are
/// read; only to tell that none is takes all that could hold one. A loop device that was detached after it
/// was found has no size; it must not pass for a volume that was never written to.
pub fn probe(device: &Path) -> Result<Signature> {
    let mut file = File::open(device).on("open", device)?;
    let length = file.seek(SeekFrom::End(0)).on("read the size of", device)?;
    if length == 0 {
        return Err(Error::refused("read", device, "it has no size; was it detached?"));
    }
    read_superblocks(&file, length)
        .and_then(|head| classify(&head, || is_blank(&file, length)))
        .on("read", device)
}

/// Whether it is blank is only asked where there is no filesystem.
pub(crate) fn classify(
    head: &[u8],
    is_blank: impl FnOnce() -> std::io::Result<bool>,
) -> std::io::Result<Signature> {
    let found: Vec<Signature> =
        [find_ext4(head), find_xfs(head), find_btrfs(head)].into_iter().flatten().collect();
    match found.as_slice() {
        [only] => Ok(*only),
        [] if is_blank()? => Ok(Signature::Blank),
        [] | [..] => Ok(Signature::Foreign),
    }
}

/// The start of the device up to the end of the last superblock, with zeroes between them.
fn read_superblocks(file: &File, length: u64) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    for start in SUPERBLOCKS.into_iter().filter(|start| *start < length) {
        head.resize(usize::try_from(start).map_err(std::io::Error::other)?, 0);
        head.extend(read_range(file, start, SUPERBLOCK_BYTES.min(length - start))?);
    }
    Ok(head)
}

fn is_blank(file: &File, length: u64) -> std::io::Result<bool> {
    let tail_start = length.saturating_sub(TAIL);
    Ok(is_zero(&read_range(file, 0, HEAD.min(length))?)
        && is_zero(&read_range(file, tail_start, length - tail_start)?))
}

fn read_range(file: &File, offset: u64, length: u64) -> std::io::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(std::io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn find_ext4(head: &[u8]) -> Option<Signature> {
    let superblock = Ext4Superblock::parse(head)?;
    Some(Signature::Filesystem {
        kind: FsKind::Ext4,
        uuid: superblock.uuid,
        needs_check: superblock.has_errors,
    })
}

fn find_xfs(head: &[u8]) -> Option<Signature> {
    (bytes_at(head, 0)? == *b"XFSB").then_some(Signature::Filesystem {
        kind: FsKind::Xfs,
        uuid: bytes_at(head, 32)?,
        needs_check: false,
    })
}

fn find_btrfs(head: &[u8]) -> Option<Signature> {
    let uuid = btrfs::fsid(head.get(btrfs::FIRST_SUPERBLOCK..)?)?;
    Some(Signature::Filesystem { kind: FsKind::Btrfs, uuid, needs_check: false })
}

pub(super) fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
