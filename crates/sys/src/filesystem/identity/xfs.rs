//! Every block names the UUID of its filesystem. A superblock may therefore name another one to the
//! outside and keep that of the blocks as `meta_uuid` (Linux 4.3). It stands in each allocation
//! group, and in the record that mkfs starts the log with.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::super::signature::bytes_at;
use crate::checksum::crc32c;
use crate::error::{Context, Error, Result};
use crate::resolve::path_of;

const OPERATION: &str = "renew the identity of";

const MAGIC: [u8; 4] = *b"XFSB";
const BLOCK_SIZE: usize = 4;
const UUID: usize = 32;
const LOG_START: usize = 48;
const GROUP_BLOCKS: usize = 84;
const GROUP_COUNT: usize = 88;
const VERSION: usize = 100;
const VERSION_MASK: u16 = 0xF;
const VERSION_WITH_CHECKSUMS: u16 = 5;
const SECTOR_SIZE: usize = 102;
const GROUP_BLOCKS_LOG: usize = 124;
const INCOMPAT: usize = 216;
const INCOMPAT_META_UUID: u32 = 0x4;
const CHECKSUM: usize = 224;
const META_UUID: usize = 248;

const LOG_MAGIC: [u8; 4] = 0xFEED_BABE_u32.to_be_bytes();
const LOG_RECORD_BYTES: usize = 512;
const LOG_CHECKSUM: usize = 32;
const LOG_UUID: usize = 304;

/// What is read of a superblock; big-endian, as all of XFS.
struct Geometry {
    uuid: [u8; 16],
    sector_size: usize,
    group_bytes: u64,
    groups: u64,
    log_offset: u64,
}

impl Geometry {
    fn parse(superblock: &[u8]) -> Option<Self> {
        let version = bytes_at(superblock, VERSION).map(u16::from_be_bytes)?;
        if bytes_at(superblock, 0)? != MAGIC || version & VERSION_MASK != VERSION_WITH_CHECKSUMS {
            return None;
        }
        let block_size = u64::from(u32_at(superblock, BLOCK_SIZE)?);
        let group_blocks = u64::from(u32_at(superblock, GROUP_BLOCKS)?);
        let [shift] = bytes_at(superblock, GROUP_BLOCKS_LOG)?;
        // A block's number has its group in the high bits. 0: the log is on another device.
        let log_start = bytes_at(superblock, LOG_START).map(u64::from_be_bytes)?;
        let log_group = log_start.checked_shr(shift.into()).filter(|_| log_start != 0)?;
        let log_block = log_start - log_group.checked_shl(shift.into())?;
        Some(Self {
            uuid: bytes_at(superblock, UUID)?,
            sector_size: bytes_at(superblock, SECTOR_SIZE).map(u16::from_be_bytes)?.into(),
            group_bytes: group_blocks.checked_mul(block_size)?,
            groups: u32_at(superblock, GROUP_COUNT)?.into(),
            log_offset: (log_group * group_blocks + log_block).checked_mul(block_size)?,
        })
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes_at(bytes, offset).map(u32::from_be_bytes)
}

pub(super) fn renew(copy: &File, uuid: [u8; 16]) -> Result<()> {
    let mut head = [0; LOG_RECORD_BYTES];
    copy.read_exact_at(&mut head, 0).on_fd("read", copy)?;
    let geometry = Geometry::parse(&head).ok_or_else(|| refused(copy, "no XFS of version 5"))?;
    renew_log(copy, &geometry, uuid)?;
    for group in 0..geometry.groups {
        let offset = group * geometry.group_bytes;
        let mut superblock = vec![0; geometry.sector_size];
        copy.read_exact_at(&mut superblock, offset).on_fd("read", copy)?;
        rename_superblock(&mut superblock, uuid)
            .ok_or_else(|| refused(copy, "a superblock is missing"))?;
        copy.write_all_at(&superblock, offset).effect_on_fd("write", copy)?;
    }
    Ok(())
}

fn rename_superblock(superblock: &mut [u8], uuid: [u8; 16]) -> Option<()> {
    if bytes_at(superblock, 0)? != MAGIC {
        return None;
    }
    let features = u32_at(superblock, INCOMPAT)?;
    if features & INCOMPAT_META_UUID == 0 {
        superblock.copy_within(UUID..UUID + uuid.len(), META_UUID);
        put(superblock, INCOMPAT, &(features | INCOMPAT_META_UUID).to_be_bytes())?;
    }
    put(superblock, UUID, &uuid)?;
    put(superblock, CHECKSUM, &[0; 4])?;
    let checksum = crc32c(superblock).to_le_bytes();
    put(superblock, CHECKSUM, &checksum)
}

/// The kernel mounts no filesystem whose log names another one.
fn renew_log(copy: &File, geometry: &Geometry, uuid: [u8; 16]) -> Result<()> {
    let mut record = [0; LOG_RECORD_BYTES];
    copy.read_exact_at(&mut record, geometry.log_offset).on_fd("read", copy)?;
    // mkfs writes no checksum into this record, and without one the kernel checks none.
    let is_of_mkfs = bytes_at(&record, 0) == Some(LOG_MAGIC)
        && bytes_at(&record, LOG_UUID) == Some(geometry.uuid)
        && bytes_at(&record, LOG_CHECKSUM) == Some([0; 4]);
    if !is_of_mkfs {
        return Err(refused(copy, "its log is not as mkfs leaves it"));
    }
    record[LOG_UUID..LOG_UUID + uuid.len()].copy_from_slice(&uuid);
    copy.write_all_at(&record, geometry.log_offset).effect_on_fd("write", copy)
}

fn put(bytes: &mut [u8], offset: usize, value: &[u8]) -> Option<()> {
    bytes.get_mut(offset..offset + value.len())?.copy_from_slice(value);
    Some(())
}

fn refused(copy: &File, reason: &str) -> Error {
    Error::refused(OPERATION, &path_of(copy), reason)
}

#[cfg(test)]
mod tests;
