//! What is mounted at a path, as the kernel tells it.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use orlop_model::{Occupant, Result, TargetPath};
use orlop_sys::mounts::{self, MountEntry};
use rustix::fs::{major, minor};

use super::failure::{explained, is_missing};

pub(super) fn occupant(path: &TargetPath) -> Result<Option<Occupant>> {
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
