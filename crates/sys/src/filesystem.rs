//! What is on a block device, making it, and growing it.

mod btrfs;
mod ext4;
mod format;
mod grow;
mod signature;

use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

pub use btrfs::set_btrfs_uuid;
pub use ext4::{check_ext4, ext4_spans_device, grow_ext4_unmounted};
pub use format::{Format, format};
pub use grow::{fits_device, grow_mounted};
pub use signature::{Signature, probe};

use crate::abi;
use crate::error::{Context, Result};
use crate::resolve::open_existing;
use crate::tool;

const CLAIM_PAUSES: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

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
    abi::freeze(open_mount_root("freeze", mount_point)?).on("freeze", mount_point)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThawOutcome {
    Thawed,
    WasNotFrozen,
}

pub fn ensure_thawed(mount_point: &Path) -> Result<ThawOutcome> {
    match abi::thaw(open_mount_root("thaw", mount_point)?) {
        Ok(()) => Ok(ThawOutcome::Thawed),
        Err(Errno::INVAL) => Ok(ThawOutcome::WasNotFrozen),
        Err(errno) => Err(errno).on("thaw", mount_point),
    }
}

/// Opens a device that nobody has mounted or claimed; while somebody has, the error
/// [`crate::Error::is_busy`].
///
/// A filesystem may outlive its last mount for a moment: a child that is being started has a copy
/// of the context it was mounted by until it executes its program. So this waits a little, and
/// programs that would give up at once are started after it.
fn open_exclusively(device: &Path) -> Result<File> {
    // On a block device, and without O_CREAT, O_EXCL asks for exactly that.
    let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    let mut pauses = CLAIM_PAUSES.into_iter();
    loop {
        match (open(device, flags, Mode::empty()), pauses.next()) {
            (Err(Errno::BUSY), Some(milliseconds)) => {
                std::thread::sleep(Duration::from_millis(milliseconds));
            }
            (opened, _) => return opened.map(File::from).on("open for itself", device),
        }
    }
}

fn wait_until_unclaimed(device: &Path) -> Result<()> {
    open_exclusively(device).map(drop)
}

fn open_mount_root(operation: &'static str, mount_point: &Path) -> Result<OwnedFd> {
    open_existing(operation, mount_point, OFlags::RDONLY | OFlags::DIRECTORY)
}

#[cfg(test)]
mod tests;
