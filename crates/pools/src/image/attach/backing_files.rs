//! Which file a loop device is on: the volume's data, one in the trash, or one outside of the pool.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use orlop_model::Result;
use orlop_sys::loopdev::{self, LoopStatus};

use crate::image::failure::cannot;
use crate::image::layout::{Layout, ObjectDir};

pub(in crate::image) fn backs(data: &Path, status: &LoopStatus) -> bool {
    fs::symlink_metadata(data)
        .is_ok_and(|file| (file.dev(), file.ino()) == (status.backing_device, status.backing_inode))
}

/// Is the device on a file of a deleted volume? Those are in trash/ until they are freed.
pub(in crate::image) fn is_deleted(layout: &Layout, status: &LoopStatus) -> Result<bool> {
    let trash = layout.trash();
    let listing = || format!("list {}", trash.display());
    let entries = match fs::read_dir(&trash) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        entries => entries.map_err(cannot(listing))?,
    };
    for entry in entries {
        if backs(&ObjectDir::new(entry.map_err(cannot(listing))?.path()).data(), status) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Is, or was, the device's file below `root`? The kernel follows renames, and keeps the path of a
/// file that was deleted.
pub(super) fn is_below(root: &Path, status: &LoopStatus) -> Result<bool> {
    let looking = || format!("inspect {}", status.device.path().display());
    let root = fs::canonicalize(root).map_err(cannot(|| format!("inspect {}", root.display())))?;
    let there = loopdev::backing(&status.device).map_err(cannot(looking))?;
    Ok(there.is_some_and(|there| there.file.starts_with(root)))
}

/// Is the device on a file outside of the pool, as in a copy of its directory? That can be on the
/// same filesystem.
pub(in crate::image) fn is_outside(root: &Path, status: &LoopStatus) -> Result<bool> {
    if is_below(root, status)? {
        return Ok(false);
    }
    let there = loopdev::backing(&status.device)
        .map_err(cannot(|| format!("inspect {}", status.device.path().display())))?;
    Ok(there.is_some_and(|there| backs(&there.file, status)))
}
