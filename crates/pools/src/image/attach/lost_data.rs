//! Devices on a file that is no longer the volume's data: it was removed from the pool, or replaced there,
//! while the volume was attached. The workload goes on reading and writing the file without a name, which
//! is gone with the device. So it is not detached by any call (decision 0031), and the file that has the
//! name now is not taken for what the workload writes.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::TryLockError;

use orlop_model::{DeviceAccess, Error, HealthReason, Problem, Result, VolumeId, only_copy};
use orlop_sys::loopdev::{self, LoopDevice, LoopStatus};
use orlop_sys::mounts;

use super::{LoopDevices, Slots, label_of};

/// How the kernel ends the path of a file that was removed.
const REMOVED: &str = " (deleted)";

impl LoopDevices {
    /// Before the device is detached. A person who wants to be rid of it without a copy says so by
    /// `losetup --detach`, which on a device in use only sets the mark that is asked for here.
    pub(super) fn check_not_only_copy(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        slots: &Slots,
    ) -> Result<()> {
        let Some(lost) = self.on_lost_file(id, access, slots) else { return Ok(()) };
        if lost.detaching {
            return Ok(());
        }
        let other = match access {
            DeviceAccess::ReadWrite => DeviceAccess::ReadOnly,
            DeviceAccess::ReadOnly => DeviceAccess::ReadWrite,
        };
        let keeps_it = |kept: LoopStatus| file_of(&kept) == file_of(&lost) && !kept.detaching;
        match self.on_lost_file(id, other, slots).is_some_and(keeps_it) {
            true => Ok(()),
            false => Err(self.only_copy(id, &lost, slots)),
        }
    }

    /// Before the volume is unmounted and all its devices are detached.
    pub(super) fn check_none_is_only_copy(&self, id: &VolumeId, slots: &Slots) -> Result<()> {
        for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
            match self.on_lost_file(id, access, slots) {
                Some(lost) if !lost.detaching => return Err(self.only_copy(id, &lost, slots)),
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Before the volume's data is copied or grown: is it what a workload writes to?
    pub(in crate::image) fn check_shows_data(&self, id: &VolumeId) -> Result<()> {
        let Some(slots) = self.known(id) else { return Ok(()) };
        let slots = crate::poison::lock(&slots);
        match self.first_on_other_file(id, &slots) {
            None => Ok(()),
            Some(lost) => Err(self.not_shown(id, &lost.device)),
        }
    }

    fn only_copy(&self, id: &VolumeId, lost: &LoopStatus, slots: &Slots) -> Error {
        let accesses = [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly].into_iter();
        let on_it = accesses.filter_map(|access| own_status(id, access, slots));
        let on_it = on_it.filter(|status| file_of(status) == file_of(lost));
        let devices: Vec<PathBuf> = on_it.map(|status| status.device.path()).collect();
        let device = lost.device.path();
        let device = device.display();
        Error::precondition(format!(
            "cannot detach {device} of volume {id}: its data was removed from the pool or replaced there, \
             and what the workload wrote is on {device} alone; move the file back, or stop the workload and \
             save the data with {}, or give it up with 'losetup --detach {device}', and try again",
            steps_to_save(&devices, &self.data_of(id))
        ))
    }

    pub(super) fn not_shown(&self, id: &VolumeId, device: &LoopDevice) -> Error {
        let device = device.path();
        let device = device.display();
        self.catalogue.volume_index().damaged(
            id,
            &format!(
                "its data was removed or replaced while {device} was attached to it, and what was \
                 written since is on {device} alone"
            ),
        )
    }

    /// Without a wait for a call that is at work on the volume's devices.
    pub(in crate::image) fn problem_of_data(&self, id: &VolumeId) -> Option<Problem> {
        let slots = self.known(id)?;
        let slots = match slots.try_lock() {
            Ok(slots) => slots,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let lost = self.first_on_other_file(id, &slots)?;
        let device = lost.device.path();
        let device = device.display();
        let reason = match fs::symlink_metadata(self.data_of(id)).is_ok() {
            true => HealthReason::BackingFileReplaced,
            false => HealthReason::BackingFileMissing,
        };
        // A condition's message has at most 128 bytes.
        let text = format!(
            "its data is lost from the pool and only on {device}; stop the workload, and save it as \
             orlop doctor says"
        );
        Some(Problem::new(reason, text))
    }

    fn first_on_other_file(&self, id: &VolumeId, slots: &Slots) -> Option<LoopStatus> {
        let accesses = [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly].into_iter();
        let own = |access| own_status(id, access, slots);
        accesses.filter_map(own).find(|status| self.is_on_other_file(id, status))
    }

    /// `None` also where it cannot be found out: a volume must be detachable when its disk is dead or missing, and
    /// then neither the device nor the pool's directory says which file it is.
    fn on_lost_file(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        slots: &Slots,
    ) -> Option<LoopStatus> {
        own_status(id, access, slots).filter(|status| self.is_lost(id, status))
    }

    /// As [`Self::is_lost`], also for a device on another filesystem than the pool's: on a disk
    /// that was replaced. That disk may be dead, so the device may be detached; but the pool's data is not what the
    /// device shows.
    pub(super) fn is_on_other_file(&self, id: &VolumeId, status: &LoopStatus) -> bool {
        let data = fs::symlink_metadata(self.data_of(id));
        self.is_lost(id, status)
            || self.is_present() && data.is_ok_and(|it| (it.dev(), it.ino()) != file_of(status))
    }

    fn is_present(&self) -> bool {
        let filesystem = self.directory.filesystem();
        fs::metadata(self.directory.root()).is_ok_and(|it| it.dev() == filesystem)
    }

    pub(super) fn is_lost(&self, id: &VolumeId, status: &LoopStatus) -> bool {
        if !self.is_present() || status.backing_device != self.directory.filesystem() {
            return is_removed(&status.device);
        }
        match fs::symlink_metadata(self.data_of(id)) {
            Ok(data) => (data.dev(), data.ino()) != file_of(status),
            Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        }
    }
}

/// What the kernel says of the device in a slot, if it is this volume's and answers.
fn own_status(id: &VolumeId, access: DeviceAccess, slots: &Slots) -> Option<LoopStatus> {
    let status = loopdev::status(slots.get(access)?).ok().flatten()?;
    (status.label == label_of(id, access)).then_some(status)
}

/// With the pool's directory gone there is no inode to compare with.
pub(in crate::image) fn is_removed(device: &LoopDevice) -> bool {
    let there = loopdev::backing(device).ok().flatten();
    there.is_some_and(|there| there.file.to_string_lossy().ends_with(REMOVED))
}

fn file_of(status: &LoopStatus) -> (u64, u64) {
    (status.backing_device, status.backing_inode)
}

/// Where the volume's data lies is where the copy goes. What took its place is kept: only a person knows which of the two
/// is wanted.
pub(in crate::image) fn steps_to_save(devices: &[PathBuf], data: &Path) -> String {
    let points = mounts::points_of(devices).unwrap_or_default();
    let device = devices.first().cloned().unwrap_or_default();
    let saved = only_copy::saved(data);
    let unmount = only_copy::unmount_command(&points);
    let copy = Some(only_copy::copy_commands(&device, &saved));
    let detach = only_copy::detach_command(devices);
    if data.symlink_metadata().is_err() {
        let rename = Some(only_copy::rename_command(&saved, data));
        return format!("'{}'", only_copy::in_order([unmount, copy, rename, detach]));
    }
    format!(
        "'{}'; put {} in the place of {} unless that is what you want, and then run '{}'",
        only_copy::in_order([unmount, copy]),
        saved.display(),
        data.display(),
        only_copy::in_order([detach])
    )
}

#[cfg(test)]
mod tests;
