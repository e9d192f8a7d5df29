//! Telling a device which blocks its filesystem does not use.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{fstat, fstatfs, major, minor};
use rustix::io::retry_on_intr;

use super::open_mount_root;
use crate::abi;
use crate::error::{Context, Error, Result};
use crate::file::{BackingKind, kind_of, sync_device};

/// Discards all that is free; returns the bytes, of which some filesystems leave out what they
/// reported before. `EOPNOTSUPP` where the device takes no discards.
pub fn trim(mount_point: &Path) -> Result<u64> {
    const OPERATION: &str = "trim";
    let root = open_mount_root(OPERATION, mount_point)?;
    let bytes = retry_on_intr(|| abi::trim(&root)).effect_on(OPERATION, mount_point)?;
    let state = fstatfs(&root).on(OPERATION, mount_point)?;
    if kind_of(&state) == BackingKind::Xfs {
        // It does not wait for its discards (Linux 6.6). A loop device takes a flush in its turn,
        // so after it the image has shrunk, and a measurement now sees that.
        if let Err(error) = device_of(&root, mount_point).and_then(|device| sync_device(&device)) {
            tracing::debug!(%error, "cannot wait for discards to finish");
        }
    }
    Ok(bytes)
}

fn device_of(root: &OwnedFd, mount_point: &Path) -> Result<PathBuf> {
    const OPERATION: &str = "find the device of";
    let device = fstat(root).on(OPERATION, mount_point)?.st_dev;
    let entry = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let target = std::fs::read_link(&entry).on(OPERATION, mount_point)?;
    let name = target
        .file_name()
        .ok_or_else(|| Error::refused(OPERATION, mount_point, "sysfs does not name it"))?;
    Ok(Path::new("/dev").join(name))
}

#[cfg(test)]
mod tests;
