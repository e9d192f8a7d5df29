//! What is on a block device, making it, and growing it.

pub(crate) mod btrfs;
mod claim;
mod errors;
pub(crate) mod ext4;
mod format;
mod grow;
mod identity;
pub(crate) mod signature;
mod smallest_unit;
mod trim;

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

pub use btrfs::set_btrfs_uuid;
pub use errors::errors_on;
pub use ext4::{
    check_ext4, check_ext4_fully, ext4_growth_bytes, ext4_regrowth_bytes, ext4_spans_device,
    grow_ext4_unmounted, repair_ext4,
};
pub use format::{Format, format};
pub use grow::{fits_device, grow_mounted, growth_is_written, keeps_order};
pub use identity::{format_template, renew_identity};
pub use signature::{Signature, probe};
pub use smallest_unit::{SmallestUnit, sector_size, unit_below_sector};
pub use trim::trim;

use crate::abi;
use crate::crash;
use crate::error::{Context, Result};
use crate::resolve::open_existing;
use crate::tool;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FsKind {
    Ext4,
    Xfs,
    Btrfs,
}

impl FsKind {
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// The name that the kernel mounts it by.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    fn mkfs(self) -> &'static str {
        match self {
            Self::Ext4 => "mkfs.ext4",
            Self::Xfs => "mkfs.xfs",
            Self::Btrfs => "mkfs.btrfs",
        }
    }
}

impl fmt::Display for FsKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The kinds that can be made on this host.
pub fn available_tools() -> Vec<FsKind> {
    FsKind::ALL.into_iter().filter(|kind| tool::find(kind.mkfs()).is_some()).collect()
}

/// The programs that volumes of a kind need over their life; growing XFS and btrfs needs none.
pub fn required_tools(kind: FsKind) -> &'static [&'static str] {
    match kind {
        FsKind::Ext4 => &["mkfs.ext4", "e2fsck", "resize2fs"],
        FsKind::Xfs => &["mkfs.xfs"],
        FsKind::Btrfs => &["mkfs.btrfs"],
    }
}

/// The first program that is needed and not installed.
pub fn missing_tool(kinds: &[FsKind]) -> Option<&'static str> {
    let mut needed = kinds.iter().flat_map(|kind| required_tools(*kind));
    needed.find(|name| tool::find(name).is_none()).copied()
}

/// Brings the filesystem to a consistent state on its device and holds all writers, until thawed.
/// Frozen already is an error that [`crate::Error::is_busy`].
pub fn freeze(mount_point: &Path) -> Result<()> {
    abi::freeze(open_mount_root("freeze", mount_point)?).effect_on("freeze", mount_point)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThawOutcome {
    Thawed,
    WasNotFrozen,
}

pub fn ensure_thawed(mount_point: &Path) -> Result<ThawOutcome> {
    match abi::thaw(open_mount_root("thaw", mount_point)?) {
        Ok(()) => {
            crash::after("thaw");
            Ok(ThawOutcome::Thawed)
        }
        Err(Errno::INVAL) => Ok(ThawOutcome::WasNotFrozen),
        Err(errno) => Err(errno).on("thaw", mount_point),
    }
}

fn open_mount_root(operation: &'static str, mount_point: &Path) -> Result<OwnedFd> {
    open_existing(operation, mount_point, OFlags::RDONLY | OFlags::DIRECTORY)
}

#[cfg(test)]
mod tests;
