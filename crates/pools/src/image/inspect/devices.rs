//! Loop devices that carry labels of this pool, or are on its data.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use orlop_model::{BehindDevice, Finding, LabelledDevice, PoolId, Result, SnapshotId, VolumeId};
use orlop_sys::file::{self, Openers};
use orlop_sys::loopdev::{LoopDevice, LoopStatus};

use super::super::attach::foreign::{CLOSE_TIMEOUT, POLL_INTERVAL, unseen};
use super::super::attach::{all_attached, backs, described, is_deleted, is_outside, parse_label};
use super::super::failure::cannot;
use super::super::layout::{Layout, ObjectDir};
use super::super::managed;
use super::entries;

/// A copy of the pool may be in use beside it: its devices are on files that are not in this one. So may
/// data of this one that was moved; node records tell which.
pub(super) fn labelled(
    layout: &Layout,
    pool: &PoolId,
    filesystem: u64,
    attached: &[LoopStatus],
) -> Result<Vec<LabelledDevice>> {
    let mut found = Vec::new();
    for status in attached {
        let Some((volume, _)) = parse_label(&status.label) else { continue };
        if volume.pool() != pool {
            continue;
        }
        let home = ObjectDir::new(layout.volumes().join(volume.to_string()));
        let behind = if backs(&home.data(), status) {
            BehindDevice::Volume
        } else if status.backing_device != filesystem {
            BehindDevice::Elsewhere
        } else if is_deleted(layout, status)? {
            BehindDevice::Nothing
        } else if is_outside(layout.root(), status)? {
            BehindDevice::Elsewhere
        } else {
            BehindDevice::LostData
        };
        let device = described(&status.device)?;
        let label = status.label.clone();
        found.push(LabelledDevice { volume, label, device, behind });
    }
    Ok(found)
}

/// The data of all volumes and snapshots, by inode.
type Files = HashMap<(u64, u64), DataFile>;

struct DataFile {
    /// With its kind.
    object: String,
    id: Option<VolumeId>,
    path: PathBuf,
    record: PathBuf,
}

fn data_files(layout: &Layout) -> Result<Files> {
    let mut files = HashMap::new();
    for (directory, kind) in [(layout.volumes(), "volume"), (layout.snapshots(), "snapshot")] {
        for directory in entries(&directory)? {
            let name = super::name_of(&directory);
            let id = name.parse::<VolumeId>().ok();
            let home = ObjectDir::new(directory);
            let (path, record) = (home.data(), home.record());
            if (id.is_some() || name.parse::<SnapshotId>().is_ok())
                && let Ok(data) = fs::symlink_metadata(&path)
                && data.is_file()
            {
                let file = DataFile { object: format!("{kind} {name}"), id, path, record };
                files.insert((data.dev(), data.ino()), file);
            }
        }
    }
    Ok(files)
}

/// Uses of data of volumes and snapshots that a daemon of this pool did not begin. Calls are refused
/// because of them, for the data would be written by two that know nothing of each other (decision 0046).
pub(super) fn foreign(
    layout: &Layout,
    attached: &[LoopStatus],
    in_use: bool,
) -> Result<Vec<Finding>> {
    let mut files = data_files(layout)?;
    let mut findings = Vec::new();
    for status in attached {
        let inode = (status.backing_device, status.backing_inode);
        let Some(file) = files.get(&inode) else { continue };
        let label = parse_label(&status.label).map(|(label, _)| label);
        if label.is_none() || label != file.id {
            findings.push(foreign_device(file, status));
        }
    }
    for status in attached {
        files.remove(&(status.backing_device, status.backing_inode));
    }
    findings.extend(foreign_writers(files, in_use)?);
    Ok(findings)
}

/// Devices by hand on the image of a managed pool.
pub(super) fn foreign_on_image(root: &Path, pool: &PoolId) -> Result<Vec<Finding>> {
    if !managed::image_in(root).exists() {
        return Ok(Vec::new());
    }
    let found = managed::foreign_devices(root, pool)?.into_iter();
    Ok(found.map(|device| foreign_on(&device, image_name(root), IMAGE_HARM)).collect())
}

fn image_name(root: &Path) -> String {
    format!("the pool's image {}", managed::image_in(root).display())
}

const IMAGE_HARM: &str =
    "once unmounted, the image is not mounted again, and use of the device may damage the pool";

fn foreign_device(file: &DataFile, status: &LoopStatus) -> Finding {
    let harm = match (&file.id, status.read_only) {
        (Some(_), _) => {
            "the volume can be neither staged nor deleted, and use of the device may damage it"
        }
        (None, false) => {
            "writes to the device change the snapshot, and the snapshot cannot be restored"
        }
        (None, true) => {
            "when the snapshot is deleted, its space is not freed until the device is detached"
        }
    };
    foreign_on(&status.device, file.object.clone(), harm)
}

fn foreign_on(device: &LoopDevice, object: String, harm: &str) -> Finding {
    let device = device.path();
    let device = device.display();
    Finding::by_hand(
        "foreign-device",
        object,
        format!("{device}, which Orlop did not attach, uses its data: {harm}"),
        format!("unmount what is on {device}, then run 'losetup --detach {device}'"),
    )
}

/// What is deleted just now is written by nothing. A record is open to no process for longer than a moment:
/// where it seems so, the filesystem does not tell.
fn is_written(path: &Path) -> bool {
    file::openers(path).is_ok_and(|openers| openers == Openers::Writers)
}

/// Checks files that no device is attached to. The daemon opens them for writing, for a moment when it expands a
/// volume and for longer when it reclaims its space.
fn foreign_writers(files: Files, in_use: bool) -> Result<Vec<Finding>> {
    let mut written: Vec<DataFile> = files.into_values().collect();
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    loop {
        written.retain(|file| is_written(&file.path) && !is_written(&file.record));
        if written.is_empty() || Instant::now() >= deadline {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let own_name = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let own_name = format!(" ({}) ", own_name.trim_end());
    let mut findings = Vec::new();
    for DataFile { object, path, .. } in written {
        let writer =
            file::writer(&path).map_err(cannot(|| format!("inspect the data of {object}")))?;
        if in_use && writer.as_ref().is_some_and(|writer| writer.contains(&own_name)) {
            continue;
        }
        findings.push(Finding::by_hand(
            "foreign-writer",
            object,
            format!(
                "its data {} is being written to by something other than Orlop: it is neither used nor \
                 copied",
                path.display()
            ),
            format!("end it: {}", writer.unwrap_or_else(|| unseen(&path))),
        ));
    }
    findings.sort_by(|a, b| a.subject.cmp(&b.subject));
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
        let home = ObjectDir::new(Layout::new(root).volumes().join(volume.to_string()));
        let is_on_it = status.backing_device == *filesystem;
        if backs(&home.data(), status) || is_on_it && !is_outside(root, status)? {
            return Ok(true);
        }
    }
    Ok(false)
}
