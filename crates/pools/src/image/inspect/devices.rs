//! Loop devices that carry labels of this pool.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orlop_model::{BehindDevice, LabelledDevice, PoolId, Result, VolumeId};
use orlop_sys::loopdev::LoopStatus;

use super::super::attach::{all_attached, backs, described, is_deleted, is_outside, parse_label};
use super::super::failure::Doing;
use super::super::layout::{Home, Layout};
use super::super::managed;

/// A copy of the pool may be in use beside it: its devices are on files that are not in this one.
pub(super) fn labelled(
    layout: &Layout,
    pool: &PoolId,
    filesystem: u64,
) -> Result<Vec<LabelledDevice>> {
    let mut found = Vec::new();
    for status in all_attached(pool, layout.root())? {
        let Some((volume, _)) = parse_label(&status.label) else { continue };
        if volume.pool() != pool || status.backing_device != filesystem {
            continue;
        }
        let home = Home::new(layout.volumes().join(volume.to_string()));
        let behind = if backs(&home.data(), &status) {
            BehindDevice::Volume
        } else if is_deleted(layout, &status)? {
            BehindDevice::Nothing
        } else if is_outside(layout.root(), &status)? {
            continue;
        } else {
            BehindDevice::LostData
        };
        let device = described(&status.device)?;
        found.push(LabelledDevice { volume, label: status.label, device, behind });
    }
    Ok(found)
}

/// Their files are on another filesystem than the pool at `path`, or in another directory.
pub(super) fn of_copies(pool: &PoolId, path: &Path) -> Result<Vec<PathBuf>> {
    let mut roots = Vec::new();
    for root in [path.to_owned(), managed::mount_point_in(path)] {
        if root.exists() {
            let looking = || format!("look at {}", root.display());
            roots.push((fs::metadata(&root).doing(looking)?.dev(), root));
        }
    }
    let mut copies = Vec::new();
    for status in all_attached(pool, path)? {
        let Some((volume, _)) = parse_label(&status.label) else { continue };
        if volume.pool() == pool && !is_in_one_of(&roots, &volume, &status)? {
            copies.push(status.device.path());
        }
    }
    Ok(copies)
}

fn is_in_one_of(roots: &[(u64, PathBuf)], volume: &VolumeId, status: &LoopStatus) -> Result<bool> {
    for (filesystem, root) in roots {
        if status.backing_device != *filesystem {
            continue;
        }
        let home = Home::new(Layout::new(root).volumes().join(volume.to_string()));
        if backs(&home.data(), status) || !is_outside(root, status)? {
            return Ok(true);
        }
    }
    Ok(false)
}
