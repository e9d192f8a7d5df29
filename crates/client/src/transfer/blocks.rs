//! Block sizes of filesystems in images: the kernel does not mount a filesystem whose blocks are smaller than the
//! sectors of its device.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{major, minor};

const EXT4_SUPERBLOCK: u64 = 1024;
const EXT4_MAGIC_OFFSET: u64 = EXT4_SUPERBLOCK + 56;
const EXT4_BLOCK_SIZE_OFFSET: u64 = EXT4_SUPERBLOCK + 24;
const XFS_SECTOR_SIZE_OFFSET: u64 = 102;

/// The block size of ext4, or the sector size of XFS. `None`: neither is in the image.
pub(super) fn block_size(image: &File) -> Option<u64> {
    if bytes::<4>(image, 0)? == *b"XFSB" {
        return Some(u64::from(u16::from_be_bytes(bytes(image, XFS_SECTOR_SIZE_OFFSET)?)));
    }
    if u16::from_le_bytes(bytes(image, EXT4_MAGIC_OFFSET)?) == 0xef53 {
        let shift = u32::from_le_bytes(bytes(image, EXT4_BLOCK_SIZE_OFFSET)?);
        return 1024_u64.checked_shl(shift);
    }
    None
}

fn bytes<const N: usize>(image: &File, at: u64) -> Option<[u8; N]> {
    let mut found = [0; N];
    image.read_exact_at(&mut found, at).ok()?;
    Some(found)
}

/// The sector size of a block device.
pub(super) fn sector_size(device: &Path) -> Option<u64> {
    let number = device.metadata().ok()?.rdev();
    let setting =
        format!("/sys/dev/block/{}:{}/queue/logical_block_size", major(number), minor(number));
    std::fs::read_to_string(setting).ok()?.trim().parse().ok()
}
