//! A new identity for a copy of a btrfs.
//!
//! The kernel takes two devices of one fsid for parts of one filesystem, so a copy needs its own
//! before it is ever mounted. The fsid stands in every tree block; a superblock may therefore
//! name another one to the outside and keep the old as `metadata_uuid` (Linux 5.0).
//!
//! btrfstune does the same, but within a transaction: the superblock's generation advances past
//! that of the log tree, and a copy that was taken of a live filesystem can no longer be mounted.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::fsync;

use super::claim::claim;
use super::signature::bytes_at;
use crate::checksum::crc32c;
use crate::error::{Context, Error, Result};
use crate::resolve::path_of;

pub(super) const FIRST_SUPERBLOCK: usize = 0x1_0000;
const MIRRORS: [u64; 2] = [64 << 20, 256 << 30];
pub(crate) const SUPERBLOCK_BYTES: usize = 4096;
const SUPERBLOCK_LENGTH: u64 = 4096;

const FSID: usize = 0x20;
const MAGIC_OFFSET: usize = 0x40;
const MAGIC: [u8; 8] = *b"_BHRfS_M";
const INCOMPAT_FLAGS: usize = 0xBC;
const CHECKSUM_TYPE: usize = 0xC4;
const CHECKSUM_CRC32C: u16 = 0;
const METADATA_UUID: usize = 0x23B;
const INCOMPAT_METADATA_UUID: u64 = 1 << 10;

pub(crate) fn fsid(superblock: &[u8]) -> Option<[u8; 16]> {
    (bytes_at(superblock, MAGIC_OFFSET)? == MAGIC).then(|| bytes_at(superblock, FSID)).flatten()
}

/// Gives an unmounted btrfs another UUID; having it already is fine.
pub fn set_btrfs_uuid(device: &Path, uuid: [u8; 16]) -> Result<()> {
    let claim = claim(device)?;
    rename_each(&claim.file, device, uuid, || fsync(&claim.file).effect_on("sync", device))
}

/// As [`set_btrfs_uuid`], in a file that no other process sees; the caller syncs it.
pub(super) fn rename_btrfs(image: &File, uuid: [u8; 16]) -> Result<()> {
    rename_each(image, &path_of(image), uuid, || Ok(()))
}

fn rename_each(
    mut file: &File,
    path: &Path,
    uuid: [u8; 16],
    settle: impl Fn() -> Result<()>,
) -> Result<()> {
    const OPERATION: &str = "change the UUID of";
    let size = file.seek(SeekFrom::End(0)).on("read the size of", path)?;
    let first = u64::try_from(FIRST_SUPERBLOCK).unwrap_or(u64::MAX);
    let mirrors = MIRRORS.into_iter().filter(|start| start + SUPERBLOCK_LENGTH <= size);
    // The first copy, which alone decides what is mounted, last: until then a crash changed
    // nothing, and a repetition rewrites all.
    for offset in mirrors.chain([first]) {
        let mut superblock = [0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut superblock, offset).on("read", path)?;
        match fsid(&superblock) {
            None if offset == first => return Err(Error::refused(OPERATION, path, "no btrfs")),
            None => continue,
            Some(_) => {}
        }
        rename_superblock(&mut superblock, uuid)
            .ok_or_else(|| Error::refused(OPERATION, path, "its checksums are not crc32c"))?;
        file.write_all_at(&superblock, offset).effect_on("write", path)?;
        settle()?;
    }
    Ok(())
}

/// `None` if the checksum is of a kind that cannot be computed here.
pub(crate) fn rename_superblock(
    superblock: &mut [u8; SUPERBLOCK_BYTES],
    uuid: [u8; 16],
) -> Option<()> {
    if bytes_at(superblock, CHECKSUM_TYPE).map(u16::from_le_bytes)? != CHECKSUM_CRC32C {
        return None;
    }
    let flags = bytes_at(superblock, INCOMPAT_FLAGS).map(u64::from_le_bytes)?;
    if flags & INCOMPAT_METADATA_UUID == 0 {
        superblock.copy_within(FSID..FSID + uuid.len(), METADATA_UUID);
        let flags = (flags | INCOMPAT_METADATA_UUID).to_le_bytes();
        superblock[INCOMPAT_FLAGS..INCOMPAT_FLAGS + flags.len()].copy_from_slice(&flags);
    }
    superblock[FSID..FSID + uuid.len()].copy_from_slice(&uuid);
    let checksum = crc32c(&superblock[FSID..]).to_le_bytes();
    superblock[..checksum.len()].copy_from_slice(&checksum);
    Some(())
}

#[cfg(test)]
mod tests;
