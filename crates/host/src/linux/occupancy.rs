//! What is mounted at a path, as the kernel tells it.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use orlop_model::{Device, Occupant, Result, TargetPath};
use orlop_sys::mounts::{self, Glance, MountEntry};
use rustix::fs::{major, minor};
use rustix::io::Errno;

use super::failure::{Doing, explained, is_missing};

pub(super) fn occupant(path: &TargetPath) -> Result<Option<Occupant>> {
    match mounts::glance(path.as_path()) {
        Ok(Glance::Vacant) => Ok(None),
        Ok(Glance::Filesystem { major, minor }) => Ok(Some(writable(major, minor, false))),
        Ok(Glance::DeviceNode { major, minor }) => Ok(Some(writable(major, minor, true))),
        Ok(Glance::Unclear) => listed_occupant(path),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(explained("look for a mount", &error)),
    }
}

fn writable(major: u32, minor: u32, is_device_node: bool) -> Occupant {
    Occupant { major, minor, is_device_node, read_only: false, filesystem_read_only: false }
}

fn listed_occupant(path: &TargetPath) -> Result<Option<Occupant>> {
    let entry = match mounts::mount_at(path.as_path()) {
        Ok(Some(entry)) => entry,
        Ok(None) => return Ok(None),
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(explained("look for a mount", &error)),
    };
    // A filesystem that has shut down answers stat with EIO. It is no device node then: those
    // live in memory.
    let node = std::fs::symlink_metadata(path.as_path())
        .ok()
        .and_then(|metadata| block_device_number(&metadata));
    let (major, minor) = node.unwrap_or_else(|| filesystem_device_number(&entry));
    Ok(Some(Occupant {
        major,
        minor,
        is_device_node: node.is_some(),
        read_only: entry.read_only(),
        filesystem_read_only: entry.superblock_read_only(),
    }))
}

pub(super) fn is_mounted(device: &Device) -> Result<bool> {
    Ok(!mount_points_of(device)?.is_empty())
}

/// Any mount of the device's filesystem, and any bind of its node: that is a mount of the
/// filesystem that holds /dev, with the node as its root. The newest first.
pub(super) fn mount_points_of(device: &Device) -> Result<Vec<PathBuf>> {
    let number = (device.major, device.minor);
    let shows = |entry: &MountEntry| {
        filesystem_device_number(entry) == number || node_bound_by(entry) == Some(number)
    };
    let mounts = mounts::all_mounts().doing("list the mounts")?;
    let points = mounts.into_iter().rev().filter(shows).map(|entry| entry.mount_point);
    Ok(points.collect())
}

fn node_bound_by(entry: &MountEntry) -> Option<(u32, u32)> {
    // Bound nodes are few, and a stat of an unreachable mount point could hang.
    if !entry.root.starts_with("/loop") && !entry.root.starts_with("/dev") {
        return None;
    }
    let metadata = std::fs::symlink_metadata(&entry.mount_point).ok()?;
    block_device_number(&metadata)
}

pub(super) fn target_exists(path: &TargetPath) -> Result<bool> {
    match std::fs::symlink_metadata(path.as_path()) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(false),
        // Shut down after an error, but there.
        Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(true),
        Err(error) => Err(error).doing("look at the target path"),
    }
}

/// btrfs, which may span devices, has an anonymous number (0:N) of its own; its device is then
/// known by the path it was mounted from. A filesystem without a device keeps the anonymous
/// number, which no device has.
fn filesystem_device_number(entry: &MountEntry) -> (u32, u32) {
    const ANONYMOUS: u32 = 0;
    let shown = (entry.major, entry.minor);
    if entry.major != ANONYMOUS {
        return shown;
    }
    std::fs::metadata(&entry.source)
        .ok()
        .and_then(|metadata| block_device_number(&metadata))
        .unwrap_or(shown)
}

fn block_device_number(metadata: &Metadata) -> Option<(u32, u32)> {
    let device = metadata.rdev();
    metadata.file_type().is_block_device().then(|| (major(device), minor(device)))
}
