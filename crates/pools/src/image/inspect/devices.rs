//! Loop devices that carry labels of this pool, or are on its data.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orlop_model::{BehindDevice, Finding, LabelledDevice, PoolId, Result, VolumeId};
use orlop_sys::loopdev::LoopStatus;

use super::super::attach::{all_attached, backs, described, is_deleted, is_outside, parse_label};
use super::super::failure::cannot;
use super::super::layout::{Layout, ObjectDir};
use super::super::managed;
use super::entries;

/// A copy of the pool may be in use beside it: its devices are on files that are not in this one.
pub(super) fn labelled(
    layout: &Layout,
    pool: &PoolId,
    filesystem: u64,
    attached: &[LoopStatus],
) -> Result<Vec<LabelledDevice>> {
    let mut found = Vec::new();
    for status in attached {
        let Some((volume, _)) = parse_label(&status.label) else { continue };
        if volume.pool() != pool || status.backing_device != filesystem {
            continue;
        }
        let home = ObjectDir::new(layout.volumes().join(volume.to_string()));
        let behind = if backs(&home.data(), status) {
            BehindDevice::Volume
        } else if is_deleted(layout, status)? {
            BehindDevice::Nothing
        } else if is_outside(layout.root(), status)? {
            continue;
        } else {
            BehindDevice::LostData
        };
        let device = described(&status.device)?;
        let label = status.label.clone();
        found.push(LabelledDevice { volume, label, device, behind });
    }
    Ok(found)
}

/// Devices on data of volumes that were attached by something other than a daemon of this pool. Calls
/// for these volumes are refused, for the data would be written by two that know nothing of each other
/// (decision 0046).
pub(super) fn foreign(layout: &Layout, attached: &[LoopStatus]) -> Result<Vec<Finding>> {
    let mut volumes = HashMap::new();
    for directory in entries(&layout.volumes())? {
        let id = directory.file_name().and_then(|name| name.to_str()?.parse::<VolumeId>().ok());
        if let (Some(id), Ok(data)) = (id, fs::symlink_metadata(ObjectDir::new(directory).data())) {
            volumes.insert((data.dev(), data.ino()), id);
        }
    }
    let mut findings = Vec::new();
    for status in attached {
        let Some(id) = volumes.get(&(status.backing_device, status.backing_inode)) else {
            continue;
        };
        if parse_label(&status.label).is_some_and(|(label, _)| label == *id) {
            continue;
        }
        let device = status.device.path();
        let device = device.display();
        findings.push(Finding::by_hand(
            "foreign-device",
            format!("volume {id}"),
            format!(
                "{device} is on its data and was not attached by Orlop: the volume is neither staged \
                 nor deleted, and may be damaged if it is in use"
            ),
            format!("unmount what is on {device}, then run 'losetup --detach {device}'"),
        ));
    }
    Ok(findings)
}

/// Their files are on another filesystem than the pool at `path`, or in another directory.
pub(super) fn of_copies(pool: &PoolId, path: &Path) -> Result<Vec<PathBuf>> {
    let mut roots = Vec::new();
    for root in [path.to_owned(), managed::mount_point_in(path)] {
        if root.exists() {
            let looking = || format!("inspect {}", root.display());
            roots.push((fs::metadata(&root).map_err(cannot(looking))?.dev(), root));
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
        let home = ObjectDir::new(Layout::new(root).volumes().join(volume.to_string()));
        if backs(&home.data(), status) || !is_outside(root, status)? {
            return Ok(true);
        }
    }
    Ok(false)
}
