//! A managed pool whose image was removed, replaced or renamed while it was attached. All volumes go on in
//! the file without a name, which is gone with the loop device. So neither a stop nor a start takes the
//! device down, and nothing new is stored in what may end with a reboot (decision 0031).

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use orlop_model::{Error, Finding, HealthReason, PoolId, Problem, Result, only_copy};
use orlop_sys::loopdev::{self, LoopDevice, LoopStatus};
use orlop_sys::mounts;

use super::{Managed, image_in, label_of, mount_point_in};
use crate::image::attach::is_removed;
use crate::image::failure::cannot;

/// The section of docs/operations.md that explains the steps.
const MANUAL: &str = "docs/operations.md, 'A pool image that is only on its device'";

impl Managed {
    /// Before anything new is stored, and for Probe. Volumes that are in use go on.
    pub(in crate::image) fn check_image(&self, pool: &str) -> Result<()> {
        if !self.is_image_lost() {
            self.loss_logged.store(false, Ordering::Relaxed);
            return Ok(());
        }
        let image = image_in(&self.around);
        let reason = only_on(&self.device, &image);
        if !self.loss_logged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                pool,
                device = %self.device.path().display(),
                image = %image.display(),
                "the pool takes no new volumes and snapshots: {reason}"
            );
        }
        Err(Error::unreachable(format!("store anything new in pool {pool}"), reason))
    }

    /// The problem of all volumes in the image, if that is lost. A condition's message has at most 128 bytes.
    pub(in crate::image) fn problem_of_image(&self) -> Option<Problem> {
        let device = self.device.path();
        let text = format!(
            "the pool's image was removed or replaced, and its data is only on {}; orlop doctor says \
             how to save it",
            device.display()
        );
        self.is_image_lost().then(|| Problem::new(HealthReason::PoolImageLost, text))
    }

    /// At a stop: whether the device has to stay as it is, which is then logged.
    pub(super) fn stays_for_its_data(&self) -> bool {
        let is_kept = self.is_image_lost();
        if is_kept {
            tracing::error!(
                device = %self.device.path().display(),
                at = %self.mount_point.display(),
                "the pool's image stays mounted and attached: {}",
                only_on(&self.device, &image_in(&self.around))
            );
        }
        is_kept
    }

    /// `false` also where it cannot be found out, as on a disk that is away, and after `losetup --detach`,
    /// by which a person gives the device up.
    fn is_image_lost(&self) -> bool {
        match loopdev::status(&self.device) {
            Ok(Some(status)) if status.label == self.label && !status.detaching => {
                let around = inode_of(&self.around);
                // A directory that is not there says nothing of the image.
                let is_around = around.is_ok_and(|it| it == Some(self.around_inode));
                is_removed(&self.device)
                    || is_around && is_of_another_file(&status, &image_in(&self.around))
            }
            Ok(_) => false,
            Err(_) => is_removed(&self.device),
        }
    }
}

/// `None`: there is nothing.
pub(super) fn inode_of(path: &Path) -> std::io::Result<Option<(u64, u64)>> {
    match fs::metadata(path) {
        Ok(there) => Ok(Some((there.dev(), there.ino()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_of_another_file(status: &LoopStatus, image: &Path) -> bool {
    inode_of(image).is_ok_and(|it| it != Some((status.backing_device, status.backing_inode)))
}

/// Before the image is opened, whether or not there is a file by its name.
pub(in crate::image) fn check_not_lost(root: &Path, pool: &PoolId) -> Result<()> {
    let image = image_in(root);
    let damaged = |reason: String| Error::damaged(format!("pool {pool}"), reason);
    if let Some(device) = lost_devices(root, pool)?.first() {
        return Err(damaged(only_on(device, &image)));
    }
    match image.exists() {
        true => Ok(()),
        false => Err(damaged(format!("its image {} is missing; restore it", image.display()))),
    }
}

/// What the doctor says of it.
pub(in crate::image) fn finding(root: &Path, pool: &PoolId) -> Result<Option<Finding>> {
    let image = image_in(root);
    let subject = format!("the pool's image {}", image.display());
    let problem = match lost_devices(root, pool)?.first() {
        Some(device) => Some(only_on(device, &image)),
        None if image.exists() => None,
        None => Some("it is missing; restore it from a backup".to_owned()),
    };
    Ok(problem.map(|text| {
        let (problem, advice) = text.split_once("; ").unwrap_or((&text, ""));
        Finding::by_hand("image-lost", subject, problem, advice)
    }))
}

/// Devices that have this pool's label, and not its image: those that are mounted where the image would be, or
/// whose file was removed from the pool's directory. One of a copy of the pool, which another daemon may
/// serve, is neither.
fn lost_devices(root: &Path, pool: &PoolId) -> Result<Vec<LoopDevice>> {
    let listing = || format!("list the loop devices of the pool at {}", root.display());
    let directory = fs::canonicalize(root).map_err(cannot(listing))?;
    let image = image_in(root);
    let mounted = match mounts::mount_at(&mount_point_in(root)) {
        Err(error) if error.is_not_found() => None,
        there => there.map_err(cannot(listing))?.map(|there| (there.major, there.minor)),
    };
    let label = label_of(pool);
    let mut found = Vec::new();
    let attached = loopdev::attached(|file| file.starts_with(&directory));
    for status in attached.map_err(cannot(listing))? {
        if status.label != label || status.detaching || !is_of_another_file(&status, &image) {
            continue;
        }
        let device = status.device;
        let is_mounted = device.device_number().is_ok_and(|number| mounted == Some(number));
        let file = file_of(&device).unwrap_or_default();
        if is_mounted || is_removed(&device) && file.parent() == Some(&directory) {
            found.push(device);
        }
    }
    Ok(found)
}

fn file_of(device: &LoopDevice) -> Option<PathBuf> {
    loopdev::backing(device).ok().flatten().map(|there| there.file)
}

/// What has happened, and how the data is saved. Never to unmount the last, or to detach, before it was copied.
fn only_on(device: &LoopDevice, image: &Path) -> String {
    let moved = file_of(device).filter(|_| !is_removed(device));
    let back = moved
        .filter(|_| !image.exists())
        .map(|file| format!("move {} back, or ", file.display()))
        .unwrap_or_default();
    let steps = steps_to_save(device, image, None);
    let device = device.path();
    format!(
        "its image {} was removed or replaced while {} was attached to it, and its volumes are on it \
         alone; {back}stop the workloads and the daemon, and save it with {steps}; see {MANUAL}",
        image.display(),
        device.display()
    )
}

/// The volumes in the image are unmounted first, then the image itself: only then is all on the device. `header`: a
/// command that makes the pool's header again, where that is gone, too.
pub(in crate::image) fn steps_to_save(
    device: &LoopDevice,
    image: &Path,
    header: Option<String>,
) -> String {
    let root = image.parent().unwrap_or(image);
    let around = mount_point_in(root);
    let around = fs::canonicalize(&around).unwrap_or(around);
    let is_inside = |there: &loopdev::BackedDevice| there.file.starts_with(&around);
    let inside = loopdev::all_backed().unwrap_or_default().into_iter().filter(is_inside);
    let inside: Vec<PathBuf> = inside.map(|there| there.device.path()).collect();
    let device = device.path();
    let points = |devices: &[PathBuf]| mounts::points_of(devices).unwrap_or_default();
    let saved = only_copy::saved(image);
    let own = [device.clone()];
    let first = [
        only_copy::unmount_command(&points(&inside)),
        only_copy::detach_command(&inside),
        only_copy::unmount_command(&points(&own)),
        Some(only_copy::copy_commands(&device, &saved)),
    ];
    let last = only_copy::detach_command(&own);
    if !image.exists() {
        let renamed = Some(only_copy::rename_command(&saved, image));
        return format!(
            "'{}'",
            only_copy::in_order(first.into_iter().chain([renamed, header, last]))
        );
    }
    format!(
        "'{}'; put {} in the place of {} unless that is newer, and then run '{}'",
        only_copy::in_order(first),
        saved.display(),
        image.display(),
        only_copy::in_order([last])
    )
}

#[cfg(test)]
mod tests;
