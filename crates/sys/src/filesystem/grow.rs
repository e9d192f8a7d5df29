//! Growing a mounted filesystem to the end of its device.

use std::path::Path;

use rustix::fs::OFlags;

use super::ext4::Ext4Superblock;
use super::signature::bytes_at;
use super::{FsKind, open_mount_root};
use crate::abi::{self, XfsGeometry};
use crate::error::{Context, Error, Result};
use crate::file::{BackingKind, backing_kind};
use crate::loopdev;
use crate::resolve::open_device;

const OPERATION: &str = "grow the filesystem at";

/// XFS starts no allocation group smaller than this.
const SMALLEST_XFS_GROUP: u64 = 64;
/// Where the superblock of XFS tells how many blocks there are, and how much is read for it: no
/// sector is larger.
const XFS_BLOCKS_AT: usize = 8;
const XFS_SUPERBLOCK: usize = 4096;
/// The largest sector that btrfs rounds a device's size down to.
const LARGEST_BTRFS_SECTOR: u64 = 64 << 10;
/// btrfs is never resized to less than this, not even from less.
const SMALLEST_BTRFS_RESIZE: u64 = 256 << 20;

/// Whether the filesystem uses all that it can of the device; a rest too small for it to use does
/// not count.
pub fn fits_device(mount_point: &Path, device: &Path, kind: FsKind) -> Result<bool> {
    let device_bytes = loopdev::size(device)?;
    let root = open_mount_root("read the size of", mount_point)?;
    match kind {
        // The page cache of the device is where a mounted ext4 keeps its superblock.
        FsKind::Ext4 => Ok(Ext4Superblock::read(device)?.spans(device_bytes)),
        FsKind::Xfs => {
            let geometry = abi::xfs_geometry(root).on("read the geometry of", mount_point)?;
            Ok(geometry.data_blocks >= usable_xfs_blocks(&geometry, device_bytes))
        }
        FsKind::Btrfs => {
            let used = abi::btrfs_device_bytes(root).on("read the size of", mount_point)?;
            Ok(device_bytes < SMALLEST_BTRFS_RESIZE
                || used.saturating_add(LARGEST_BTRFS_SECTOR) > device_bytes)
        }
    }
}

/// Grows to the end of the device; there already is fine. ext4 asks for CAP_SYS_RESOURCE. What was
/// grown may have to be [written back](growth_is_written).
pub fn grow_mounted(mount_point: &Path, device: &Path, kind: FsKind) -> Result<()> {
    if fits_device(mount_point, device, kind)? {
        return Ok(());
    }
    let device_bytes = loopdev::size(device)?;
    let root = open_mount_root(OPERATION, mount_point)?;
    let grown = match kind {
        FsKind::Ext4 => {
            let blocks = Ext4Superblock::read(device)?.usable_blocks(device_bytes);
            abi::ext4_resize(root, blocks)
        }
        FsKind::Xfs => {
            let geometry = abi::xfs_geometry(&root).on("read the geometry of", mount_point)?;
            let blocks = usable_xfs_blocks(&geometry, device_bytes);
            abi::xfs_grow(root, blocks, geometry.inode_max_percent)
        }
        FsKind::Btrfs => abi::btrfs_grow_to_device(root),
    };
    grown.effect_on(OPERATION, mount_point)
}

/// Whether the device would mount at its new size after a power cut. XFS keeps growth in its log for
/// a while, and Linux 6.18 cannot replay one growth upon another: it refuses blocks beyond the end
/// that the superblock on the device still tells. A freeze writes the superblock.
pub fn growth_is_written(mount_point: &Path, device: &Path, kind: FsKind) -> Result<bool> {
    match kind {
        FsKind::Xfs => {
            let root = open_mount_root("read the size of", mount_point)?;
            let geometry = abi::xfs_geometry(root).on("read the geometry of", mount_point)?;
            Ok(xfs_blocks_on(device)? == geometry.data_blocks)
        }
        FsKind::Ext4 | FsKind::Btrfs => Ok(true),
    }
}

/// Whether a change that survives a crash implies that all changes before it survived too, as far as their data was
/// [written out](crate::file::write_out). The log of XFS promises that for everything but a realtime device.
pub fn keeps_order(directory: &Path) -> Result<bool> {
    if backing_kind(directory)? != BackingKind::Xfs {
        return Ok(false);
    }
    let opened = open_mount_root("read the geometry of", directory)?;
    match abi::xfs_geometry(opened) {
        Ok(geometry) => Ok(geometry.rt_blocks == 0),
        // Another machine's XFS, which is reached by a filesystem that passes on its number.
        Err(_) => Ok(false),
    }
}

/// Past the device's page cache, which XFS does not use.
fn xfs_blocks_on(device: &Path) -> Result<u64> {
    const OPERATION: &str = "read the superblock of";
    let opened = open_device(OPERATION, device, OFlags::RDONLY | OFlags::DIRECT)?;
    let mut room = vec![0; 2 * XFS_SUPERBLOCK];
    let start = room.as_ptr().align_offset(XFS_SUPERBLOCK);
    let missing = || Error::refused(OPERATION, device, "the superblock is truncated");
    let superblock = room.get_mut(start..start + XFS_SUPERBLOCK).ok_or_else(missing)?;
    let length = rustix::io::pread(opened, &mut *superblock, 0).on(OPERATION, device)?;
    let blocks = superblock.get(..length).and_then(|read| bytes_at(read, XFS_BLOCKS_AT));
    blocks.map(u64::from_be_bytes).ok_or_else(missing)
}

fn usable_xfs_blocks(geometry: &XfsGeometry, device_bytes: u64) -> u64 {
    let blocks = device_bytes / u64::from(geometry.block_size).max(1);
    let last_group = blocks % u64::from(geometry.ag_blocks).max(1);
    if last_group < SMALLEST_XFS_GROUP { blocks - last_group } else { blocks }
}

#[cfg(test)]
mod tests;
