//! Real devices and mounts for tests, taken away again whatever becomes of the test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use orlop_model::{Device, FsType, HostFilesystems, HostMounts, MountRequest, TargetPath};
use orlop_sys::loopdev::{self, AttachOptions, LoopDevice};
use orlop_sys::{filesystem, mounts};
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use super::{EncryptionConfig, LinuxHost, LinuxHostConfig};

pub(super) const MIB: u64 = 1 << 20;
/// Room for the smallest of every filesystem.
pub(super) const SMALL: u64 = 320 * MIB;
const LABEL: &str = "orlop-host-test";

pub(super) fn may_use_root() -> bool {
    if std::env::var_os("ORLOP_TEST_SKIP_ROOT").is_some_and(|value| value == "1") {
        return false;
    }
    assert!(rustix::process::geteuid().is_root(), "run as root, or set ORLOP_TEST_SKIP_ROOT=1");
    true
}

pub(super) fn config_in(directory: &Path) -> LinuxHostConfig {
    LinuxHostConfig {
        run_dir: directory.join("run"),
        alone: false,
        protected_paths: Vec::new(),
        filesystems: None,
        default_fs: None,
        workload_cgroup: "/".to_owned(),
        freeze_limit: Duration::from_secs(3600),
        thaw_helper: None,
        encryption: EncryptionConfig::default(),
    }
}

/// A directory with all that is attached from it and mounted in it.
pub(super) struct Testbed {
    attached: Mutex<Vec<LoopDevice>>,
    directory: TempDir,
}

impl Testbed {
    /// `None` where the run opted out of tests that need root.
    pub(super) fn new() -> Option<Self> {
        may_use_root().then(|| Self {
            attached: Mutex::default(),
            directory: tempfile::Builder::new().prefix("orlop-host-").tempdir().unwrap(),
        })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn path(&self, name: &str) -> TargetPath {
        TargetPath::parse("test", self.file(name).to_str().unwrap()).unwrap()
    }

    pub(super) fn config(&self) -> LinuxHostConfig {
        config_in(self.directory.path())
    }

    pub(super) fn host(&self) -> LinuxHost {
        LinuxHost::new(self.config()).unwrap()
    }

    /// A blank one.
    pub(super) fn device(&self, image: &str, bytes: u64) -> Device {
        let file = File::create_new(self.file(image)).unwrap();
        file.set_len(bytes).unwrap();
        self.attach(image)
    }

    pub(super) fn attach(&self, image: &str) -> Device {
        let options = AttachOptions {
            label: LABEL,
            read_only: false,
            size: self.file(image).metadata().unwrap().len(),
        };
        let device = loopdev::attach(&self.file(image), &options).unwrap();
        self.attached.lock().unwrap().push(device.clone());
        let (major, minor) = device.device_number().unwrap();
        Device { path: device.path(), major, minor }
    }

    pub(super) fn grow(&self, image: &str, bytes: u64) {
        let file = File::options().write(true).open(self.file(image)).unwrap();
        file.set_len(bytes).unwrap();
        for device in self.attached.lock().unwrap().iter() {
            loopdev::refresh_size(device, &self.file(image), bytes).unwrap();
        }
    }

    /// A device with a filesystem, mounted.
    pub(super) fn mounted(&self, host: &LinuxHost, fs: FsType, name: &str) -> Staged {
        let device = self.device(&format!("{name}.img"), SMALL);
        let uuid = host.random_uuid().unwrap();
        host.format(&device, fs, uuid, &[]).unwrap();
        let path = self.path(name);
        host.ensure_mounted(&read_write(&device, fs), &path).unwrap();
        Staged { device, path }
    }
}

pub(super) struct Staged {
    pub(super) device: Device,
    pub(super) path: TargetPath,
}

pub(super) fn read_write(device: &Device, fs: FsType) -> MountRequest<'_> {
    MountRequest { device, fs, options: Vec::new(), read_only: false }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let here = self.directory.path().canonicalize().unwrap();
        let below = |point: &Path| point.starts_with(&here);
        let all = mounts::all_mounts().unwrap();
        // The last mounted first. A frozen filesystem would never release its device.
        for point in all.iter().rev().map(|entry| &entry.mount_point) {
            if below(point) {
                let _ = filesystem::ensure_thawed(point);
                let _ = unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            }
        }
        for device in self.attached.get_mut().unwrap() {
            let detached = until_detached(device);
            if !std::thread::panicking() {
                detached.unwrap();
            }
        }
    }
}

/// Waits for those who have the device for a while, as a child does that is being started, a program
/// that looks at all devices, or the kernel at the end of an unmount. On a busy machine that may take
/// longer than a daemon waits. The error says who has it still.
fn until_detached(device: &LoopDevice) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        match loopdev::ensure_detached(device, LABEL) {
            Ok(()) => return Ok(()),
            Err(error) if error.is_busy() && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(format!("{error}: {:?}", loopdev::user_of(device))),
        }
    }
}
