//! The UUID stands in the superblock and its copies. With `metadata_csum_seed` (Linux 4.4) all other
//! checksums hang on a seed that stays.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::super::ext4::{Ext4Superblock, SUPERBLOCK};
use super::super::signature::bytes_at;
use crate::checksum::running_crc32c;
use crate::error::{Context, Error, Result};
use crate::resolve::path_of;

const OPERATION: &str = "renew the identity of";
const SUPERBLOCK_BYTES: usize = 1024;

const GROUP: usize = 0x5A;
const INCOMPAT: usize = 0x60;
const INCOMPAT_CSUM_SEED: u32 = 0x2000;
const RO_COMPAT: usize = 0x64;
const RO_COMPAT_METADATA_CSUM: u32 = 0x400;
const UUID: usize = 0x68;
const HASH_SEED: usize = 0xEC;
const CHECKSUM_TYPE: usize = 0x175;
const CHECKSUM_CRC32C: u8 = 1;
/// Last, over all before it.
const CHECKSUM: usize = 0x3FC;

pub(super) struct Ext4Identity {
    pub(super) uuid: [u8; 16],
    /// Scatters the names of large directories, so that which collide cannot be foreseen.
    pub(super) hash_seed: [u8; 16],
}

pub(super) fn renew(copy: &File, identity: &Ext4Identity) -> Result<()> {
    let mut head = [0; 2 * SUPERBLOCK_BYTES];
    copy.read_exact_at(&mut head, 0).on_fd("read", copy)?;
    let primary =
        Ext4Superblock::parse(&head).ok_or_else(|| refused(copy, "it has no ext4 superblock"))?;
    let (_, superblock) = head.split_at(SUPERBLOCK_BYTES);
    check_features(superblock).map_err(|reason| refused(copy, reason))?;

    for (group, offset) in primary.backups() {
        let mut backup = [0; SUPERBLOCK_BYTES];
        copy.read_exact_at(&mut backup, offset).on_fd("read", copy)?;
        // Its number as far as the field goes.
        let number = u16::try_from(group).unwrap_or(u16::MAX).to_le_bytes();
        let is_backup = bytes_at(&backup, UUID) == Some(primary.uuid)
            && bytes_at(&backup, GROUP) == Some(number);
        if is_backup {
            write(copy, &backup, offset, identity)?;
        }
    }
    write(copy, superblock, SUPERBLOCK, identity)
}

fn check_features(superblock: &[u8]) -> std::result::Result<(), &'static str> {
    let has = |offset, feature| {
        bytes_at(superblock, offset).map(u32::from_le_bytes).is_some_and(|set| set & feature != 0)
    };
    if !has(RO_COMPAT, RO_COMPAT_METADATA_CSUM) || !has(INCOMPAT, INCOMPAT_CSUM_SEED) {
        return Err("its checksums depend on its UUID");
    }
    match bytes_at(superblock, CHECKSUM_TYPE) {
        Some([CHECKSUM_CRC32C]) => Ok(()),
        Some(_) | None => Err("its checksums are not crc32c"),
    }
}

fn write(copy: &File, superblock: &[u8], offset: u64, identity: &Ext4Identity) -> Result<()> {
    let mut superblock = superblock.to_vec();
    superblock[UUID..UUID + 16].copy_from_slice(&identity.uuid);
    superblock[HASH_SEED..HASH_SEED + 16].copy_from_slice(&identity.hash_seed);
    let checksum = running_crc32c(&superblock[..CHECKSUM]).to_le_bytes();
    superblock[CHECKSUM..].copy_from_slice(&checksum);
    copy.write_all_at(&superblock, offset).effect_on_fd("write", copy)
}

fn refused(copy: &File, reason: &str) -> Error {
    Error::refused(OPERATION, &path_of(copy), reason)
}

#[cfg(test)]
mod tests;
