//! Block devices. A pool in service knows the devices of its volumes; most of this module finds the devices of
//! volumes whose pool is absent or not configured, from what the kernel knows of them. A node has to be able to
//! detach a volume whose disk is dead, or was not mounted after a restart.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_model::{
    Device, DeviceAccess, DeviceIo, Error, HostDevices, Result, UnservedDevice, VolumeId,
};
use orlop_sys::file;
use orlop_sys::loopdev::{self, BackedDevice, LoopDevice};
use orlop_sys::mounts;
use rustix::fs::{major, minor};

use super::LinuxHost;
use super::encryption;
use super::failure::cannot;

pub(super) mod mapped;

/// udev opens each device for a moment when it is attached or unmounted.
const UDEV_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How the kernel ends the path of a file that was removed.
const REMOVED: &str = " (deleted)";
const LOOP_MAJOR: u32 = 7;

impl HostDevices for LinuxHost {
    fn device_size(&self, device: &Device) -> Result<u64> {
        loopdev::size(&device.path).map_err(cannot("read the size of a device"))
    }

    fn device_writes(&self, device: &Device) -> Result<Option<u64>> {
        loopdev::writes(device.major, device.minor).map_err(cannot("count the writes to a device"))
    }

    fn device_io(&self, device: &Device) -> Result<DeviceIo> {
        self.io_before.since(device)
    }

    fn note_attached(&self, id: &VolumeId, device: &Device) -> Result<()> {
        self.io_before.note(id, device)
    }

    fn sync_device(&self, device: &Device) -> Result<()> {
        file::sync_device(&device.path).map_err(cannot("sync a device"))
    }

    fn lost_writes_on(&self, device: &Device) -> Result<Option<String>> {
        let lost = file::lost_writes_on(&device.path).map_err(cannot("sync a device"))?;
        Ok(lost.map(|errno| errno.to_string()))
    }

    fn devices_without_pool(&self, id: &VolumeId) -> Result<Option<Vec<UnservedDevice>>> {
        let mut devices = of_volume(id)?;
        devices.extend(mapped::of_volume(id)?);
        // A pool that is not marked may have devices of other kinds.
        let devices = encryption::in_use_of(id, devices)?;
        let is_known = !devices.is_empty() || self.pool_marks().is_marked(id.pool())?;
        Ok(is_known.then_some(devices))
    }

    fn try_detach_without_pool(&self, id: &VolumeId, device: &UnservedDevice) -> Result<()> {
        match encryption::closed(id, device)? {
            Some(below) => try_detach(id, &below),
            None => try_detach(id, device),
        }
    }
}

/// The loop devices on the volume's file, wherever its pool is or was mounted.
fn of_volume(id: &VolumeId) -> Result<Vec<UnservedDevice>> {
    let all = loopdev::all_backed().map_err(cannot("list the loop devices"))?;
    if let Some(exported) = all.iter().find(|there| is_exported(id, &there.file)) {
        return Err(Error::unreachable(
            format!("detach volume {id}"),
            format!(
                "{} is backed by a Ceph image, and unmounting or detaching it writes to the \
                 image; make its pool available again, then retry",
                exported.device.path().display()
            ),
        ));
    }
    // A volume's directory may be a link to one of another name.
    let labels = [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly].map(|access| access.label(id));
    let labelled = loopdev::attached(|_| false).map_err(cannot("list the loop devices"))?;
    let labelled = labelled.into_iter().filter(|status| labels.contains(&status.label));
    let labelled: Vec<_> = labelled.map(|status| status.device).collect();
    let mut found = Vec::new();
    for there in all {
        let access = match there.read_only {
            true => DeviceAccess::ReadOnly,
            false => DeviceAccess::ReadWrite,
        };
        if labelled.contains(&there.device) || is_of(id, access, &there)? {
            found.push(UnservedDevice {
                device: described(&there.device)?,
                access,
                is_only_copy: is_only_copy(&there)?,
            });
        }
    }
    Ok(found)
}

/// For a file that may not answer any more. Its name is compared first, so that the status of a device on another
/// file is not read: that may wait for a server that is dead.
fn is_of(id: &VolumeId, access: DeviceAccess, there: &BackedDevice) -> Result<bool> {
    let file = data_of(id);
    if !without_deletion(&there.file).ends_with(&file) {
        return Ok(false);
    }
    loopdev::is_labelled(&there.device, &access.label(id), &file)
        .map_err(cannot("inspect a loop device"))
}

/// The end of the path in every image pool.
fn data_of(id: &VolumeId) -> PathBuf {
    Path::new(&id.to_string()).join("data")
}

fn without_deletion(file: &Path) -> &Path {
    let shown = file.to_str().and_then(|text| text.strip_suffix(REMOVED));
    shown.map_or(file, Path::new)
}

/// As in `ID/image` and `ID.ro/image` of an rbd pool.
fn is_exported(id: &VolumeId, file: &Path) -> bool {
    let directory = file.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let volume = directory.and_then(|name| name.split('.').next());
    volume.is_some_and(|volume| volume == id.to_string()) && file.ends_with("image")
}

/// It was not marked to go with its last user (`losetup --detach`), and its file, or the image that
/// the file's filesystem is in, has lost its name.
fn is_only_copy(there: &BackedDevice) -> Result<bool> {
    let is_removed = |file: &Path| without_deletion(file) != file;
    if there.detaching {
        return Ok(false);
    }
    if is_removed(&there.file) {
        return Ok(true);
    }
    // The status of a device on a dead disk cannot be read.
    let Ok(Some(status)) = loopdev::status(&there.device) else { return Ok(false) };
    let number = (major(status.backing_device), minor(status.backing_device));
    let image = LoopDevice::from_path(Path::new(&format!("/dev/loop{}", number.1)));
    let Some(image) = image.filter(|_| number.0 == LOOP_MAJOR) else { return Ok(false) };
    let image = loopdev::backing(&image).map_err(cannot("inspect a loop device"))?;
    if !image.is_some_and(|image| is_removed(&image.file)) {
        return Ok(false);
    }
    // As long as it is mounted, what is written stays there.
    let mounts = mounts::all_mounts().map_err(cannot("list the mounts"))?;
    Ok(!mounts.iter().any(|entry| entry.is_of_device(number, Path::new("/"))))
}

fn try_detach(id: &VolumeId, unserved: &UnservedDevice) -> Result<()> {
    match LoopDevice::from_path(&unserved.device.path) {
        Some(device) => detach_unused(&device, &unserved.access.label(id), &data_of(id)),
        None => mapped::try_detach(id, unserved),
    }
}

pub(super) fn detach_unused(device: &LoopDevice, label: &str, file: &Path) -> Result<()> {
    let deadline = Instant::now() + UDEV_TIMEOUT;
    while let Some(user) =
        loopdev::try_detach_unused(device, label, file).map_err(cannot("detach a loop device"))?
    {
        if Instant::now() >= deadline {
            return Err(Error::precondition(format!(
                "cannot detach {}: {user}; end that first",
                device.path().display()
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn described(device: &LoopDevice) -> Result<Device> {
    let (major, minor) = device.device_number().map_err(cannot("inspect a loop device"))?;
    Ok(Device { path: device.path(), major, minor })
}
