//! The doctor's findings about volumes that are in use. They come from what the kernel lists: no filesystem is touched, as
//! one that is in a bad state may hang.

use std::path::Path;

use orlop_model::{Finding, LabelledDevice, NodeRecord, Result, TargetPath, VolumeId};
use orlop_sys::filesystem as fs;
use orlop_sys::loopdev;
use orlop_sys::mounts::{self, MountEntry};

use super::super::devices::mapped;
use super::super::failure::cannot;
use super::super::run_files::RunFiles;
use super::paths_of;

/// What is wrong with the use that the record names, of a volume whose device this is.
pub(super) fn judge_use(labelled: &LabelledDevice, record: &NodeRecord) -> Result<Vec<Finding>> {
    let Some(stage) = &record.stage else { return Ok(Vec::new()) };
    let is_block = stage.capability.is_block();
    let all = mounts::all_mounts().map_err(cannot("list the mounts"))?;
    let subject = || format!("volume {}", labelled.volume);
    let mut findings = Vec::new();
    let is_expected = |path: &&TargetPath| !is_block || **path != stage.path;
    let missing: Vec<String> = paths_of(record)
        .filter(is_expected)
        .filter(|path| !is_mounted(&all, path.as_path()))
        .map(ToString::to_string)
        .collect();
    if !missing.is_empty() {
        findings.push(Finding::by_hand(
            "mount-missing",
            subject(),
            format!("it is in use here, but nothing is mounted at {} any more", missing.join(", ")),
            "stage and publish it again with the same arguments, or unpublish and unstage it",
        ));
    }
    if is_block {
        return Ok(findings);
    }
    let number = (labelled.device.major, labelled.device.minor);
    let mut shown = all.iter().filter(|entry| entry.is_of_device(number, Path::new("/")));
    if !stage.read_only && shown.any(MountEntry::superblock_read_only) {
        findings.push(Finding::by_hand(
            "filesystem-read-only",
            subject(),
            "its filesystem has become read-only: what workloads write there fails",
            "look for I/O errors in the kernel log and for space in the pool; then end its workload, and \
             unpublish, unstage and stage it, which checks the filesystem",
        ));
    }
    let errors =
        fs::errors_on(&labelled.device.path).map_err(cannot("count the errors of a filesystem"))?;
    if errors > 0 {
        findings.push(Finding::by_hand(
            "filesystem-errors",
            subject(),
            format!("its filesystem has counted {errors} errors"),
            "look for them in the kernel log, and check the filesystem when no workload uses it",
        ));
    }
    Ok(findings)
}

fn is_mounted(all: &[MountEntry], path: &Path) -> bool {
    let is_there = |path: &Path| all.iter().any(|entry| entry.mount_point == path);
    is_there(path) || path.canonicalize().is_ok_and(|resolved| is_there(&resolved))
}

/// For a volume that a record calls staged: has it a device? Only of volumes whose pool has devices that are found by
/// their labels or names.
pub(super) fn judge_device(id: &VolumeId) -> Result<Option<Finding>> {
    if !mapped::of_volume(id)?.is_empty() {
        return Ok(None);
    }
    const DOING: &str = "list the loop devices";
    let label = id.to_string();
    let data = Path::new("volumes").join(&label).join("data");
    // Without a question to the device, where its file has the volume's name.
    let all = loopdev::all_backed().map_err(cannot(DOING))?;
    if all.iter().any(|device| device.file.ends_with(&data)) {
        return Ok(None);
    }
    let labelled = loopdev::attached(|_| false).map_err(cannot(DOING))?;
    if labelled.iter().any(|device| device.label == label) {
        return Ok(None);
    }
    Ok(Some(Finding::by_hand(
        "device-missing",
        format!("volume {id}"),
        "it is in use here, but its device is gone",
        "unpublish and unstage the volume, then stage it again",
    )))
}

/// The daemon has recorded it: the kernel tells it once.
pub(super) fn judge_lost_writes(lost: &RunFiles, id: &VolumeId) -> Result<Option<Finding>> {
    let Some(reason) = lost.read(&id.to_string())? else { return Ok(None) };
    let reason = String::from_utf8_lossy(&reason).into_owned();
    Ok(Some(Finding::by_hand(
        "writes-lost",
        format!("volume {id}"),
        format!("data that was written to it since it was staged is lost: {reason}"),
        "check the data of its workload, and the pool's free space and disk; reported until the volume is \
         unstaged",
    )))
}
