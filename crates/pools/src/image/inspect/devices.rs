//! Loop devices that carry labels of this pool.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orlop_model::{BehindDevice, LabelledDevice, PoolId, Result};

use super::super::attach::{all_attached, backs, described, parse_label};
use super::super::failure::Doing;
use super::super::layout::{Home, Layout};
use super::super::managed;

/// A copy of the pool may be in use beside it: its devices are on files of another filesystem.
pub(super) fn labelled(
    layout: &Layout,
    pool: &PoolId,
    filesystem: u64,
) -> Result<Vec<LabelledDevice>> {
    let mut found = Vec::new();
    for status in all_attached()? {
        let Some((volume, _)) = parse_label(&status.label) else { continue };
        if volume.pool() != pool || status.backing_device != filesystem {
            continue;
        }
        let home = Home::new(layout.volumes().join(volume.to_string()));
        let behind = if backs(&home.data(), &status) {
            BehindDevice::Volume
        } else if home.record().exists() {
            BehindDevice::LostData
        } else {
            BehindDevice::Nothing
        };
        let device = described(&status.device)?;
        found.push(LabelledDevice { volume, label: status.label, device, behind });
    }
    Ok(found)
}

/// Their files are on another filesystem than the pool at `path`.
pub(super) fn of_copies(pool: &PoolId, path: &Path) -> Result<Vec<PathBuf>> {
    let mut ours = Vec::new();
    for root in [path.to_owned(), managed::mount_point_in(path)] {
        if root.exists() {
            ours.push(fs::metadata(&root).doing(|| format!("look at {}", root.display()))?.dev());
        }
    }
    let is_copy = |label: &str, device: u64| {
        let volume = parse_label(label).map(|(volume, _)| volume);
        volume.is_some_and(|volume| volume.pool() == pool) && !ours.contains(&device)
    };
    let found = all_attached()?.into_iter();
    let copies = found.filter(|status| is_copy(&status.label, status.backing_device));
    Ok(copies.map(|status| status.device.path()).collect())
}
