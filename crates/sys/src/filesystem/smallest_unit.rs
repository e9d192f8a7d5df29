//! What a filesystem writes at least at once: the kernel does not mount one whose unit is smaller than a sector of its
//! device.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{major, minor};

use super::signature::bytes_at;
use crate::error::{Context, Result};

const HEAD: usize = 4096;
const EXT4_MAGIC_OFFSET: usize = 1024 + 56;
const EXT4_BLOCK_SIZE_OFFSET: usize = 1024 + 24;
const XFS_SECTOR_SIZE_OFFSET: usize = 102;

/// What it is depends on the filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmallestUnit {
    Ext4Block(u64),
    XfsSector(u64),
}

impl SmallestUnit {
    /// Of the filesystem at the start of a device or an image; of btrfs it is never too small.
    pub fn of(image: &File) -> Option<Self> {
        let mut head = [0; HEAD];
        image.read_exact_at(&mut head, 0).ok()?;
        if bytes_at(&head, 0)? == *b"XFSB" {
            let sector = u16::from_be_bytes(bytes_at(&head, XFS_SECTOR_SIZE_OFFSET)?);
            return Some(Self::XfsSector(u64::from(sector)));
        }
        if u16::from_le_bytes(bytes_at(&head, EXT4_MAGIC_OFFSET)?) == 0xef53 {
            let shift = u32::from_le_bytes(bytes_at(&head, EXT4_BLOCK_SIZE_OFFSET)?);
            return 1024_u64.checked_shl(shift).map(Self::Ext4Block);
        }
        None
    }

    pub fn bytes(self) -> u64 {
        match self {
            Self::Ext4Block(bytes) | Self::XfsSector(bytes) => bytes,
        }
    }

    /// The command that makes a filesystem that fits.
    pub fn mkfs_for(self, sector: u64) -> String {
        match self {
            Self::Ext4Block(_) => format!("mkfs.ext4 -b {sector}"),
            Self::XfsSector(_) => format!("mkfs.xfs -s size={sector}"),
        }
    }
}

impl fmt::Display for SmallestUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ext4Block(bytes) => write!(f, "blocks of {bytes} bytes"),
            Self::XfsSector(bytes) => write!(f, "sectors of {bytes} bytes"),
        }
    }
}

/// The sector size of a block device. `None`: the kernel does not say.
pub fn sector_size(device: &Path) -> Option<u64> {
    let number = device.metadata().ok()?.rdev();
    let setting =
        format!("/sys/dev/block/{}:{}/queue/logical_block_size", major(number), minor(number));
    std::fs::read_to_string(setting).ok()?.trim().parse().ok()
}

/// The unit of the filesystem on this device and the size of its sectors, if that is why the kernel would not mount it.
pub fn unit_below_sector(device: &Path) -> Result<Option<(SmallestUnit, u64)>> {
    let unit = SmallestUnit::of(&File::open(device).on("open", device)?);
    Ok(unit.zip(sector_size(device)).filter(|(unit, sector)| unit.bytes() < *sector))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testbed::{MIB, root, scratch};
    use crate::tool;

    #[test]
    fn units_are_read_from_the_superblock() {
        if !root() {
            return;
        }
        let dir = scratch();
        let path = dir.path().join("image");
        let made = |tool: &str, words: &[&str]| {
            let file = File::create(&path).unwrap();
            file.set_len(400 * MIB).unwrap();
            tool::run(tool, words.iter().copied().chain([path.to_str().unwrap()])).unwrap();
            SmallestUnit::of(&File::open(&path).unwrap())
        };
        let unit = made("mkfs.ext4", &["-q", "-b", "1024"]);
        assert_eq!(unit, Some(SmallestUnit::Ext4Block(1024)));
        for sector in [512, 4096] {
            let unit = made("mkfs.xfs", &["-q", "-f", "-s", &format!("size={sector}")]);
            assert_eq!(unit, Some(SmallestUnit::XfsSector(sector)));
        }
        assert_eq!(made("mkfs.btrfs", &["-q", "-f"]), None);
        std::fs::write(&path, "short").unwrap();
        assert_eq!(SmallestUnit::of(&File::open(&path).unwrap()), None);
    }
}
