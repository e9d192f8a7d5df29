//! What a test holds of the kernel: loop devices on its files, mounts in its directory.

use std::path::{Path, PathBuf};

use orlop_sys::loopdev::{self, LoopDevice};
use orlop_sys::throttle::{Controller, Limits};
use orlop_sys::{filesystem, mounts};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

/// Loop devices whose files are in the directory, with these files.
pub(crate) fn loop_devices(ground: &Path) -> Vec<(LoopDevice, PathBuf)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/block").expect("list block devices") {
        let name = entry.expect("list block devices").file_name();
        let file = Path::new("/sys/block").join(&name).join("loop/backing_file");
        let Ok(text) = std::fs::read_to_string(file) else {
            continue;
        };
        // The kernel says so of a file that was removed while it is attached.
        let text = text.trim_end().trim_end_matches(" (deleted)");
        let device = LoopDevice::from_path(&Path::new("/dev").join(&name));
        if let Some(device) = device
            && Path::new(text).starts_with(ground)
        {
            found.push((device, PathBuf::from(text)));
        }
    }
    found
}

/// Mount points in the directory, the topmost mount of a stack and the deepest path first.
pub(crate) fn mount_points(ground: &Path) -> Vec<PathBuf> {
    let mut points: Vec<_> = mounts::all_mounts()
        .expect("read mountinfo")
        .into_iter()
        .map(|entry| entry.mount_point)
        .filter(|point| point.starts_with(ground))
        .collect();
    points.reverse();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    points
}

/// Processes that export images to files in the directory. They outlive the daemon on purpose.
pub(crate) fn exporters(ground: &Path) -> Vec<Pid> {
    let mark = format!("mountpoint={}/", ground.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("list processes").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.parse().ok().and_then(Pid::from_raw) else { continue };
        // Gone meanwhile, if it cannot be read.
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&words).contains(&mark) {
            found.push(pid);
        }
    }
    found
}

/// Loop devices, mounts and exporters that are there now and were not before, one in each line.
pub(crate) fn describe(ground: &Path, expected: &[PathBuf]) -> Vec<String> {
    let exporters = exporters(ground).into_iter().map(|pid| format!("exporter {pid:?}"));
    devices_and_mounts(ground, expected).into_iter().chain(exporters).collect()
}

pub(crate) fn devices_and_mounts(ground: &Path, expected: &[PathBuf]) -> Vec<String> {
    let devices = loop_devices(ground)
        .into_iter()
        .filter(|(_, file)| !expected.contains(file))
        .map(|(device, file)| format!("{} on {}", device.path().display(), file.display()));
    let mounts = mount_points(ground)
        .into_iter()
        .filter(|point| !expected.contains(point))
        .map(|point| format!("mount at {}", point.display()));
    devices.chain(mounts).collect()
}

/// Thaws, unmounts and detaches all that is in the directory, but what is expected there.
pub(crate) fn remove_all_but(ground: &Path, expected: &[PathBuf]) {
    let devices = loop_devices(ground);
    // First: what waits for a cluster that is gone would hold up all the rest.
    for pid in exporters(ground) {
        let _ = kill_process(pid, Signal::KILL);
    }
    for point in mount_points(ground) {
        if !expected.contains(&point) {
            // Block publications are binds of device nodes and cannot be frozen.
            let _ = filesystem::ensure_thawed(&point);
            let _ = unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
    for (device, file) in devices {
        if expected.contains(&file) {
            continue;
        }
        lift_limits(&device);
        // Its status is not asked for: an export that was killed would be asked.
        let detached = match loopdev::backing(&device) {
            Ok(Some(there)) => loopdev::ensure_detached_from(&device, &there.file),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = detached {
            eprintln!("could not detach {}: {error}", device.path().display());
        }
    }
}

/// The kernel keeps limits with a device's number: the next one to get it would be slow.
fn lift_limits(device: &LoopDevice) {
    if let (Ok(Some(controller)), Ok((major, minor))) =
        (Controller::detect("/"), device.device_number())
    {
        let _ = controller.apply(major, minor, &Limits::default());
    }
}

pub(crate) fn remove_everything(ground: &Path) {
    remove_all_but(ground, &[]);
}
