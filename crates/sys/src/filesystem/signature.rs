use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::FsKind;
use super::btrfs;
use super::ext4::Ext4Superblock;
use crate::error::{Context, Result};

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

/// Looks at a device or an image file, without changing it.
pub fn probe(device: &Path) -> Result<Signature> {
    let mut file = File::open(device).on("open", device)?;
    let length = file.seek(SeekFrom::End(0)).on("read the size of", device)?;
    let head = read_range(&file, 0, HEAD.min(length)).on("read", device)?;
    let tail_start = length.saturating_sub(TAIL);
    let tail = read_range(&file, tail_start, length - tail_start).on("read", device)?;
    Ok(classify(&head, &tail))
}

fn read_range(file: &File, offset: u64, length: u64) -> std::io::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(std::io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

pub(crate) fn classify(head: &[u8], tail: &[u8]) -> Signature {
    let found: Vec<Signature> =
        [find_ext4(head), find_xfs(head), find_btrfs(head)].into_iter().flatten().collect();
    match found.as_slice() {
        [only] => *only,
        [] if is_zero(head) && is_zero(tail) => Signature::Blank,
        [] | [..] => Signature::Foreign,
    }
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

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

pub(super) fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
