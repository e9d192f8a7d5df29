//! What is mounted at a path, told by the path alone. The list of all mounts tells more, but takes
//! longer with every volume that is in use on the machine.

use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, OFlags, StatVfsMountFlags, Statx, StatxAttributes, StatxFlags, fstatvfs,
    statx,
};
use rustix::io::Errno;

use crate::error::{Context, Result};
use crate::resolve::Place;

/// Of filesystems without a device, and of btrfs, which may have several.
const ANONYMOUS: u32 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glance {
    /// Nothing is mounted there, or nothing is there at all.
    Vacant,
    /// A filesystem that can be written; with its device's major and minor number.
    Filesystem { major: u32, minor: u32 },
    /// The node of a block device.
    DeviceNode { major: u32, minor: u32 },
    /// Only [`super::mount_at`] can tell.
    Unclear,
}

pub fn glance(path: &Path) -> Result<Glance> {
    let place = match Place::of("look for a mount at", path) {
        Err(error) if error.is_not_found() => return Ok(Glance::Vacant),
        place => place?,
    };
    let fd = match place.open(OFlags::PATH) {
        Err(Errno::NOENT | Errno::LOOP) => return Ok(Glance::Vacant),
        fd => fd.on("open", path)?,
    };
    // A filesystem that has shut down after an error answers with EIO.
    let Ok(there) = statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS) else {
        return Ok(Glance::Unclear);
    };
    // Linux 5.8.
    if !there.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(Glance::Unclear);
    }
    if !there.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(Glance::Vacant);
    }
    // Read-only: the mount or the filesystem, which makes a difference.
    let writable = fstatvfs(&fd).is_ok_and(|at| !at.f_flag.contains(StatVfsMountFlags::RDONLY));
    Ok(if writable { what_is_mounted(&there) } else { Glance::Unclear })
}

fn what_is_mounted(there: &Statx) -> Glance {
    if FileType::from_raw_mode(there.stx_mode.into()) == FileType::BlockDevice {
        return Glance::DeviceNode { major: there.stx_rdev_major, minor: there.stx_rdev_minor };
    }
    match (there.stx_dev_major, there.stx_dev_minor) {
        (ANONYMOUS, _) => Glance::Unclear,
        (major, minor) => Glance::Filesystem { major, minor },
    }
}

#[cfg(test)]
mod tests;
