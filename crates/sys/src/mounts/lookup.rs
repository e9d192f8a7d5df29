//! What is mounted at a path, found by the path alone. The list of all mounts says more, but takes
//! longer with every volume that is in use on the machine.

use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, OFlags, StatVfsMountFlags, Statx, StatxAttributes, StatxFlags, fstatvfs,
    statx,
};
use rustix::io::Errno;

use crate::error::{Context, Result};
use crate::resolve::ResolvedPath;

/// Of filesystems without a device, and of btrfs, which may have several.
const ANONYMOUS: u32 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountLookup {
    /// Nothing is mounted there, or nothing is there at all.
    NotMounted,
    /// A filesystem that can be written; with its device's major and minor number.
    Filesystem { major: u32, minor: u32 },
    /// The node of a block device.
    DeviceNode { major: u32, minor: u32 },
    /// Only [`super::mount_at`] knows.
    Unknown,
}

pub fn look_up(path: &Path) -> Result<MountLookup> {
    let resolved = match ResolvedPath::of("look for a mount at", path) {
        Err(error) if error.is_not_found() => return Ok(MountLookup::NotMounted),
        resolved => resolved?,
    };
    let fd = match resolved.open(OFlags::PATH) {
        Err(Errno::NOENT | Errno::LOOP) => return Ok(MountLookup::NotMounted),
        fd => fd.on("open", path)?,
    };
    // A filesystem that has shut down after an error answers with EIO.
    let Ok(there) = statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS) else {
        return Ok(MountLookup::Unknown);
    };
    // Linux 5.8.
    if !there.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(MountLookup::Unknown);
    }
    if !there.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(MountLookup::NotMounted);
    }
    // Read-only: the mount or the filesystem, which makes a difference.
    let writable = fstatvfs(&fd).is_ok_and(|at| !at.f_flag.contains(StatVfsMountFlags::RDONLY));
    Ok(if writable { what_is_mounted(&there) } else { MountLookup::Unknown })
}

fn what_is_mounted(there: &Statx) -> MountLookup {
    if FileType::from_raw_mode(there.stx_mode.into()) == FileType::BlockDevice {
        return MountLookup::DeviceNode {
            major: there.stx_rdev_major,
            minor: there.stx_rdev_minor,
        };
    }
    match (there.stx_dev_major, there.stx_dev_minor) {
        (ANONYMOUS, _) => MountLookup::Unknown,
        (major, minor) => MountLookup::Filesystem { major, minor },
    }
}

#[cfg(test)]
mod tests;
