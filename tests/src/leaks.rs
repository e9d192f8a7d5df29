//! What a test holds of the kernel: loop devices on its files, mounts in its directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_sys::cgroup_io::{IoController, Limits};
use orlop_sys::crypt;
use orlop_sys::device_mapper::above;
use orlop_sys::loopdev::{self, LoopDevice};
use orlop_sys::{filesystem, mounts, tool};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

/// A loop device, and what it was attached to when it was found. The number of one that is detached goes to
/// the next caller, in any process; the kernel's sequence number of the disk does not.
pub(crate) struct FoundLoop {
    pub(crate) device: LoopDevice,
    pub(crate) file: PathBuf,
    sequence: Option<u64>,
}

impl FoundLoop {
    fn is_still_attached(&self) -> bool {
        self.sequence == self.device.sequence()
    }
}

/// How many mounts this process sees at exactly this path.
pub fn mounts_at(path: &Path) -> usize {
    let all = mounts::all_mounts().expect("list the mounts");
    all.iter().filter(|entry| entry.mount_point == path).count()
}

/// Loop devices whose files are in the directory, with these files.
pub(crate) fn loop_devices(directory: &Path) -> Vec<FoundLoop> {
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
            && Path::new(text).starts_with(directory)
        {
            let sequence = device.sequence();
            found.push(FoundLoop { device, file: PathBuf::from(text), sequence });
        }
    }
    found
}

/// Mount points in the directory, the topmost mount of a stack and the deepest path first.
pub(crate) fn mount_points(directory: &Path) -> Vec<PathBuf> {
    let mut points: Vec<_> = mounts::all_mounts()
        .expect("read mountinfo")
        .into_iter()
        .map(|entry| entry.mount_point)
        .filter(|point| point.starts_with(directory))
        .collect();
    points.reverse();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    points
}

/// Processes that export images to files in the directory. They outlive the daemon on purpose.
pub(crate) fn exporters(directory: &Path) -> Vec<Pid> {
    let mark = format!("mountpoint={}/", directory.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("list processes").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.parse().ok().and_then(Pid::from_raw) else { continue };
        // The process has ended if it cannot be read.
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&words).contains(&mark) {
            found.push(pid);
        }
    }
    found
}

/// Loop devices, mounts and exporters that are there now and were not before, one in each line.
pub(crate) fn describe(directory: &Path, expected: &[PathBuf]) -> Vec<String> {
    let exporters = exporters(directory).into_iter().map(|pid| format!("exporter {pid:?}"));
    devices_and_mounts(directory, expected).into_iter().chain(exporters).collect()
}

pub(crate) fn devices_and_mounts(directory: &Path, expected: &[PathBuf]) -> Vec<String> {
    let devices = loop_devices(directory)
        .into_iter()
        .filter(|found| !expected.contains(&found.file))
        .map(|found| format!("{} on {}", found.device.path().display(), found.file.display()));
    let mounts = mount_points(directory)
        .into_iter()
        .filter(|point| !expected.contains(point))
        .map(|point| format!("mount at {}", point.display()));
    devices.chain(mounts).collect()
}

/// Thaws, unmounts and detaches all that is in the directory, but what is expected there.
pub(crate) fn remove_all_but(directory: &Path, expected: &[PathBuf]) {
    let mut devices = loop_devices(directory);
    // A disk whose image lies in another pool comes before the disk of that pool, which it keeps busy.
    devices.sort_by_key(|found| std::cmp::Reverse(found.file.components().count()));
    // First: what waits for a cluster that is gone would hold up all the rest.
    for pid in exporters(directory) {
        let _ = kill_process(pid, Signal::KILL);
    }
    for point in mount_points(directory) {
        if !expected.contains(&point) {
            // Block publications are binds of device nodes and cannot be frozen.
            let _ = filesystem::ensure_thawed(&point);
            let _ = unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
    for found in devices {
        if expected.contains(&found.file) || !found.is_still_attached() {
            continue;
        }
        lift_limits(&found.device);
        close_mappings(&found.device);
        if let Err(error) = until_detached(&found) {
            eprintln!("could not detach {}: {error}", found.device.path().display());
        }
    }
}

/// Of encrypted volumes, which keep the device in use.
fn close_mappings(device: &LoopDevice) {
    let above = device.device_number().and_then(|(major, minor)| above(major, minor));
    for mapping in above.unwrap_or_default() {
        if let Err(error) = crypt::close(&mapping) {
            eprintln!("could not close {}: {error}", mapping.name);
        }
    }
}

/// The error says what uses it still.
pub(crate) fn until_detached(found: &FoundLoop) -> Result<(), String> {
    let device = &found.device;
    // Its file may have lost its path by now, so the path is read again. The status of the device is not: an
    // export that was killed would be asked for it.
    let there = loopdev::backing(device).map_err(|error| error.to_string())?;
    let Some(there) = there.filter(|_| found.is_still_attached()) else { return Ok(()) };
    let detached = while_busy(|| loopdev::ensure_detached_from(device, &there.file));
    detached.map_err(|error| format!("{error}: {:?}", loopdev::user_of(device)))
}

/// As an administrator does. A program that looks at all devices, such as a daemon that is started by another
/// test, may have this one open: the kernel then detaches it a moment later than losetup ends.
pub fn detach_by_hand(device: &Path) {
    let attached = LoopDevice::from_path(device).expect("a loop device");
    let before = attached.sequence();
    tool::run("losetup", ["--detach", device.to_str().expect("a path that is text")]).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while loopdev::backing(&attached).unwrap().is_some() && attached.sequence() == before {
        assert!(
            Instant::now() < deadline,
            "{device:?} is not detached: {:?}",
            loopdev::user_of(&attached)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn until_unmounted(target: &Path) -> Result<(), String> {
    while_busy(|| mounts::ensure_unmounted(target)).map_err(|error| error.to_string())
}

/// Waits for those who have it for a while, as a child does that is being started, a program that looks
/// at all devices, or the kernel at the end of an unmount. On a busy machine that may take longer than
/// a daemon waits.
fn while_busy(mut step: impl FnMut() -> orlop_sys::Result<()>) -> orlop_sys::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        match step() {
            Err(error) if error.is_busy() && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

/// The kernel keeps limits with a device's number: the next one to get it would be slow.
fn lift_limits(device: &LoopDevice) {
    if let (Ok(Some(controller)), Ok((major, minor))) =
        (IoController::detect("/"), device.device_number())
    {
        let _ = controller.apply(major, minor, &Limits::default());
    }
}

pub(crate) fn remove_everything(directory: &Path) {
    remove_all_but(directory, &[]);
}
