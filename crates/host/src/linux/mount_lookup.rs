//! What is mounted at a path, as the kernel reports it.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use orlop_model::{Device, DeviceMount, MountState, Result, TargetPath};
use orlop_sys::mounts::{self, MountEntry, MountLookup};
use rustix::fs::{major, minor};
use rustix::io::Errno;

use super::failure::{cannot, cannot_io, is_missing};

pub(super) fn mount_at(path: &TargetPath) -> Result<Option<MountState>> {
    match mounts::look_up(path.as_path()) {
        Ok(MountLookup::NotMounted) => Ok(None),
        Ok(MountLookup::Filesystem { major, minor }) => Ok(Some(writable(major, minor, false))),
        Ok(MountLookup::DeviceNode { major, minor }) => Ok(Some(writable(major, minor, true))),
        Ok(MountLookup::Unknown) => listed_mount(path),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(cannot("find what is mounted at a path")(error)),
    }
}

fn writable(major: u32, minor: u32, is_device_node: bool) -> MountState {
    MountState { major, minor, is_device_node, read_only: false, filesystem_read_only: false }
}

fn listed_mount(path: &TargetPath) -> Result<Option<MountState>> {
    let entry = match mounts::mount_at(path.as_path()) {
        Ok(Some(entry)) => entry,
        Ok(None) => return Ok(None),
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(cannot("find what is mounted at a path")(error)),
    };
    // A filesystem that has shut down answers stat with EIO. It is no device node then: those
    // live in memory.
    let node = std::fs::symlink_metadata(path.as_path())
        .ok()
        .and_then(|metadata| block_device_number(&metadata));
    let (major, minor) = node.unwrap_or_else(|| filesystem_device_number(&entry));
    Ok(Some(MountState {
        major,
        minor,
        is_device_node: node.is_some(),
        read_only: entry.read_only(),
        filesystem_read_only: entry.superblock_read_only(),
    }))
}

/// Any mount of the device's filesystem, and any bind of its node. The newest first.
pub(super) fn mounts_of_device(device: &Device) -> Result<Vec<MountEntry>> {
    let number = (device.major, device.minor);
    let mounts = mounts::all_mounts().map_err(cannot("list the mounts"))?;
    Ok(mounts
        .into_iter()
        .rev()
        .filter(|entry| entry.is_of_device(number, Path::new("/")))
        .collect())
}

pub(super) fn mounts_of(device: &Device) -> Result<Vec<DeviceMount>> {
    let number = (device.major, device.minor);
    let mounts = mounts::all_mounts().map_err(cannot("list the mounts"))?;
    let mut found = Vec::new();
    for entry in mounts.into_iter().rev() {
        if entry.is_of_device(number, Path::new("/")) {
            found.push(DeviceMount {
                is_device_node: entry.binds_node(number, Path::new("/")),
                is_hidden: !leads_to(&entry, device)?,
                mount_point: entry.mount_point,
            });
        } else if is_named_as(device, &entry) && is_hidden(&entry)? {
            let mount_point = entry.mount_point;
            found.push(DeviceMount { mount_point, is_device_node: true, is_hidden: true });
        }
    }
    Ok(found)
}

fn leads_to(entry: &MountEntry, device: &Device) -> Result<bool> {
    let point = entry.mount_point.to_str();
    match point.map(|text| TargetPath::parse("mount point", text)) {
        Some(Ok(path)) => Ok(mount_at(&path)?.is_some_and(|there| there.is_of(device))),
        Some(Err(_)) | None => Ok(!is_hidden(entry)?),
    }
}

fn is_hidden(entry: &MountEntry) -> Result<bool> {
    match mounts::mount_at(&entry.mount_point) {
        Ok(there) => Ok(there.is_none_or(|there| there.id != entry.id)),
        Err(error) if is_missing(&error) => Ok(true),
        Err(error) => Err(cannot("find what is mounted at a path")(error)),
    }
}

/// Could the mount be of the device's node, in a /dev that is a container's own? While it is hidden, its
/// name is all there is to know it by.
fn is_named_as(device: &Device, entry: &MountEntry) -> bool {
    entry.root.file_name().is_some_and(|name| Some(name) == device.path.file_name())
}

pub(super) fn device_node_at(path: &TargetPath) -> Result<Option<(u32, u32)>> {
    match std::fs::metadata(path.as_path()) {
        Ok(metadata) => Ok(block_device_number(&metadata)),
        // Nothing is there, or nothing that can be a device.
        Err(_) => Ok(None),
    }
}

pub(super) fn target_exists(path: &TargetPath) -> Result<bool> {
    match std::fs::symlink_metadata(path.as_path()) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(false),
        // Shut down after an error, but there.
        Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(true),
        Err(error) => Err(cannot_io("inspect the target path")(error)),
    }
}

/// btrfs, which may span devices, has its own anonymous number (0:N); its device is then
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
