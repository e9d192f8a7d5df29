//! Growing a mounted filesystem to the end of its device.

use std::path::Path;

use super::ext4::Ext4Superblock;
use super::{FsKind, open_mount_root};
use crate::abi::{self, XfsGeometry};
use crate::error::{Context, Result};
use crate::loopdev;

const OPERATION: &str = "grow the filesystem at";

/// XFS starts no allocation group smaller than this.
const SMALLEST_XFS_GROUP: u64 = 64;
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

/// Grows to the end of the device; there already is fine. ext4 asks for CAP_SYS_RESOURCE.
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
    grown.on(OPERATION, mount_point)
}

fn usable_xfs_blocks(geometry: &XfsGeometry, device_bytes: u64) -> u64 {
    let blocks = device_bytes / u64::from(geometry.block_size).max(1);
    let last_group = blocks % u64::from(geometry.ag_blocks).max(1);
    if last_group < SMALLEST_XFS_GROUP { blocks - last_group } else { blocks }
}

#[cfg(test)]
mod tests;
