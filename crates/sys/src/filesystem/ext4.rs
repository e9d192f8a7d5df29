//! ext4 as seen from its device: the superblock, checking, and growing while unmounted.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::claim::wait_until_unclaimed;
use super::signature::bytes_at;
use crate::device_lock::DeviceLock;
use crate::error::{Context, Error, Result};
use crate::file::sync_device;
use crate::loopdev;

/// Offset of the primary superblock, in bytes.
pub(super) const SUPERBLOCK: u64 = 1024;
const SUPERBLOCK_START: usize = 1024;
const SUPERBLOCK_END: usize = 2048;
const MAGIC: u16 = 0xEF53;
const STATE_ERRORS: u16 = 0x2;
const INCOMPAT_64BIT: u32 = 0x80;
const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
/// resize2fs does not start a group that would have fewer usable blocks than this.
const MIN_USABLE_BLOCKS: u64 = 50;
/// Of blocks, and of inodes.
const BITMAPS: u64 = 2;
/// For what growing writes beside the tables of groups: the resize inode, and what the filesystem below needs to find
/// the new blocks.
const GROWTH_MARGIN: u64 = 1 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Ext4Superblock {
    pub(super) uuid: [u8; 16],
    pub(super) has_errors: bool,
    pub(crate) blocks: u64,
    block_size: u64,
    first_block: u64,
    blocks_per_group: u64,
    inode_table_blocks: u64,
    descriptor_size: u64,
    reserved_descriptor_blocks: u64,
    sparse: bool,
}

impl Ext4Superblock {
    /// `head` is the start of the device. Two bytes of magic number may match by chance, so the
    /// fields that everything else is computed from must make sense as well.
    pub(crate) fn parse(head: &[u8]) -> Option<Self> {
        let block = head.get(SUPERBLOCK_START..SUPERBLOCK_END)?;
        if u16_at(block, 0x38)? != MAGIC {
            return None;
        }
        let block_size = 1024_u64.checked_shl(u32_at(block, 0x18)?.min(32))?;
        let inodes = u32_at(block, 0)?;
        let inodes_per_group = u64::from(u32_at(block, 0x28)?);
        let blocks_per_group = u64::from(u32_at(block, 0x20)?);
        let revision = u32_at(block, 0x4C)?;
        let wide = u32_at(block, 0x60)? & INCOMPAT_64BIT != 0;
        let high = if wide { u64::from(u32_at(block, 0x150)?) } else { 0 };
        let blocks = high << 32 | u64::from(u32_at(block, 0x4)?);
        let sensible = block_size <= 1 << 16
            && blocks_per_group > 0
            && blocks_per_group <= block_size * 8
            && inodes_per_group > 0
            && inodes > 0
            && blocks > 0
            && revision <= 1;
        if !sensible {
            return None;
        }
        let inode_size = if revision == 0 { 128 } else { u64::from(u16_at(block, 0x58)?) };
        Some(Self {
            uuid: bytes_at(block, 0x68)?,
            has_errors: u16_at(block, 0x3A)? & STATE_ERRORS != 0,
            blocks,
            block_size,
            first_block: u64::from(u32_at(block, 0x14)?),
            blocks_per_group,
            inode_table_blocks: (inodes_per_group * inode_size).div_ceil(block_size),
            descriptor_size: if wide { u64::from(u16_at(block, 0xFE)?) } else { 32 },
            reserved_descriptor_blocks: u64::from(u16_at(block, 0xCE)?),
            sparse: u32_at(block, 0x64)? & RO_COMPAT_SPARSE_SUPER != 0,
        })
    }

    pub(crate) fn read(device: &Path) -> Result<Self> {
        let mut head = [0; SUPERBLOCK_END];
        let file = File::open(device).on("open", device)?;
        file.read_exact_at(&mut head, 0).on("read", device)?;
        Self::parse(&head).ok_or_else(|| {
            Error::refused("read the superblock of", device, "it has no ext4 superblock")
        })
    }

    /// The most blocks that the filesystem can use of a device: a last group too small to hold
    /// its own tables is left out, as resize2fs does.
    pub(crate) fn usable_blocks(&self, device_bytes: u64) -> u64 {
        let blocks = device_bytes / self.block_size;
        let in_groups = blocks.saturating_sub(self.first_block);
        let tail = in_groups % self.blocks_per_group;
        let last_group = in_groups / self.blocks_per_group;
        if tail == 0 || last_group == 0 {
            return blocks;
        }
        if tail < self.group_overhead(last_group) + MIN_USABLE_BLOCKS {
            return blocks - tail;
        }
        blocks
    }

    fn group_overhead(&self, group: u64) -> u64 {
        let mut overhead = BITMAPS + self.inode_table_blocks;
        if !self.sparse || holds_sparse_superblock(group) {
            // A forged superblock may claim very many groups, with very large descriptors.
            let descriptors =
                (group + 1).saturating_mul(self.descriptor_size).div_ceil(self.block_size);
            overhead += 1 + descriptors + self.reserved_descriptor_blocks;
        }
        overhead
    }

    /// The groups that have a copy of the superblock, each with the byte offset of its copy.
    pub(super) fn backups(&self) -> impl Iterator<Item = (u64, u64)> {
        let groups = self.blocks.saturating_sub(self.first_block).div_ceil(self.blocks_per_group);
        let has_one = |group: &u64| !self.sparse || holds_sparse_superblock(*group);
        (1..groups).filter(has_one).map(|group| {
            (group, (self.first_block + group * self.blocks_per_group) * self.block_size)
        })
    }

    pub(crate) fn spans(&self, device_bytes: u64) -> bool {
        self.blocks >= self.usable_blocks(device_bytes)
    }

    /// The most bytes that are written to grow from so many blocks to the end of the device: the bitmaps of each new
    /// group, and the descriptors of all groups with every copy of the superblock. Inode tables are left to the kernel,
    /// which zeroes them when the filesystem is mounted.
    fn growth_bytes(&self, from_blocks: u64, device_bytes: u64) -> u64 {
        let groups_of =
            |blocks: u64| blocks.saturating_sub(self.first_block).div_ceil(self.blocks_per_group);
        let groups = groups_of(self.usable_blocks(device_bytes));
        let new_groups = groups.saturating_sub(groups_of(from_blocks));
        let copies = if self.sparse { sparse_superblocks(groups) } else { groups };
        let descriptors = groups.saturating_mul(self.descriptor_size).div_ceil(self.block_size);
        new_groups
            .saturating_mul(BITMAPS)
            .saturating_add(copies.saturating_mul(descriptors + 1))
            .saturating_mul(self.block_size)
            .saturating_add(GROWTH_MARGIN)
    }
}

/// Groups 0 and 1, and the powers of 3, 5 and 7.
fn holds_sparse_superblock(group: u64) -> bool {
    let power_of = |base: u64| {
        let mut rest = group;
        while rest > 1 && rest.is_multiple_of(base) {
            rest /= base;
        }
        rest == 1
    };
    group <= 1 || [3, 5, 7].into_iter().any(power_of)
}

/// How many of the first groups [hold one](holds_sparse_superblock).
fn sparse_superblocks(groups: u64) -> u64 {
    let powers_of = |base: u64| {
        let powers = std::iter::successors(Some(base), |power| power.checked_mul(base));
        powers.take_while(|power| *power < groups).fold(0, |count, _| count + 1)
    };
    let powers: u64 = [3, 5, 7].into_iter().map(powers_of).sum();
    groups.min(2) + powers
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes_at(bytes, offset).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes_at(bytes, offset).map(u32::from_le_bytes)
}

/// Whether an ext4 filesystem, mounted or not, uses all of its device that it can.
pub fn ext4_spans_device(device: &Path) -> Result<bool> {
    Ok(Ext4Superblock::read(device)?.spans(loopdev::size(device)?))
}

/// Repairs what e2fsck repairs without asking (`-p`).
pub fn check_ext4(device: &Path) -> Result<()> {
    let lock = DeviceLock::take(device)?;
    wait_until_unclaimed(device)?;
    // 1: repaired; 2: repaired, reboot if it is the root filesystem. From 4 on, errors are left.
    lock.run("e2fsck", [OsStr::new("-p"), device.as_os_str()], &[0, 1, 2, 3])?;
    sync_device(device)
}

/// The most bytes that growing an unmounted ext4 to the end of its device writes. `None` if it is there already.
pub fn ext4_growth_bytes(device: &Path) -> Result<Option<u64>> {
    let superblock = Ext4Superblock::read(device)?;
    let device_bytes = loopdev::size(device)?;
    let bytes = || superblock.growth_bytes(superblock.blocks, device_bytes);
    Ok((!superblock.spans(device_bytes)).then(bytes))
}

/// As [`ext4_growth_bytes`], with the repair of a growth that was interrupted: how far it got is unknown.
pub fn ext4_regrowth_bytes(device: &Path) -> Result<u64> {
    Ok(Ext4Superblock::read(device)?.growth_bytes(0, loopdev::size(device)?))
}

/// The full check without which resize2fs does not grow a filesystem. Repairs as [`check_ext4`] does.
pub fn check_ext4_fully(device: &Path) -> Result<()> {
    let lock = DeviceLock::take(device)?;
    wait_until_unclaimed(device)?;
    lock.run("e2fsck", [OsStr::new("-f"), OsStr::new("-p"), device.as_os_str()], &[0, 1])?;
    sync_device(device)
}

/// Repairs everything, whatever becomes of damaged files (`-y`): for a filesystem that only [`grow_ext4_unmounted`] has
/// damaged, which does not write to files.
pub fn repair_ext4(device: &Path) -> Result<()> {
    let lock = DeviceLock::take(device)?;
    wait_until_unclaimed(device)?;
    lock.run("e2fsck", [OsStr::new("-f"), OsStr::new("-y"), device.as_os_str()], &[0, 1])?;
    sync_device(device)
}

/// Grows an unmounted ext4 that was [checked](check_ext4_fully) to the end of its device. resize2fs writes in place: one
/// that was interrupted leaves what only [`repair_ext4`] repairs.
pub fn grow_ext4_unmounted(device: &Path) -> Result<()> {
    let lock = DeviceLock::take(device)?;
    wait_until_unclaimed(device)?;
    lock.run("resize2fs", [device.as_os_str()], &[0])?;
    sync_device(device)
}

#[cfg(test)]
mod tests;
