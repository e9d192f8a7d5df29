//! What tests of the real thing need, taken away again when it goes out of scope.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, unmount,
};
use tempfile::TempDir;

use crate::error::Result;
use crate::filesystem::{self, Format, FsKind};
use crate::loopdev::{self, AttachOptions, LoopDevice};
use crate::mounts::{self, FsMount};

pub(crate) const MIB: u64 = 1 << 20;
/// The smallest that every kind of filesystem can be made in.
pub(crate) const SMALL: u64 = 320 * MIB;

/// False if the run opted out of tests that need root; without that, being another user fails.
pub(crate) fn root() -> bool {
    if std::env::var_os("ORLOP_TEST_SKIP_ROOT").is_some_and(|value| value == "1") {
        return false;
    }
    assert!(rustix::process::geteuid().is_root(), "run as root, or set ORLOP_TEST_SKIP_ROOT=1");
    true
}

pub(crate) fn scratch() -> TempDir {
    tempfile::Builder::new().prefix("orlop-sys-").tempdir().unwrap()
}

/// A file attached to a loop device.
pub(crate) struct Disk {
    pub(crate) image: PathBuf,
    pub(crate) label: String,
    pub(crate) device: LoopDevice,
}

impl Disk {
    /// A blank one.
    pub(crate) fn new(dir: &Path, bytes: u64) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("disk{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let image = dir.join(name);
        File::create_new(&image).unwrap().set_len(bytes).unwrap();
        Self::attach(&image, false)
    }

    pub(crate) fn attach(image: &Path, read_only: bool) -> Self {
        let size = image.metadata().unwrap().len();
        Self::attach_as(image, read_only, size)
    }

    pub(crate) fn attach_part(image: &Path, size: u64) -> Self {
        Self::attach_as(image, false, size)
    }

    fn attach_as(image: &Path, read_only: bool, size: u64) -> Self {
        let label = format!("orlop-test {}", image.file_name().unwrap().to_string_lossy());
        let options = AttachOptions { label: &label, read_only, size };
        let device = loopdev::attach(image, &options).unwrap();
        Self { image: image.to_owned(), label, device }
    }

    pub(crate) fn formatted(dir: &Path, bytes: u64, kind: FsKind) -> Self {
        let disk = Self::new(dir, bytes);
        let uuid = crate::rand::random_bytes().unwrap();
        let format = Format { kind, uuid, extra_options: &[] };
        filesystem::format(&disk.path(), &format).unwrap();
        disk
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.device.path()
    }

    pub(crate) fn grow(&self, bytes: u64) {
        File::options().write(true).open(&self.image).unwrap().set_len(bytes).unwrap();
        loopdev::refresh_size(&self.device, &self.image, bytes).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let ensure_detached = || loopdev::ensure_detached(&self.device, &self.label);
        let detached = until_detached(&self.device, ensure_detached);
        if !std::thread::panicking() {
            detached.unwrap();
        }
    }
}

/// Waits for those who have the device for a while, as a child does that is being started, a program
/// that looks at all devices, or the kernel at the end of an unmount. On a busy machine that may take
/// longer than a daemon waits. The error says who has it still.
pub(crate) fn until_detached(
    device: &LoopDevice,
    ensure_detached: impl Fn() -> Result<()>,
) -> std::result::Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        match ensure_detached() {
            Ok(()) => return Ok(()),
            Err(error)
                if (error.is_busy() || error.busy_device().is_some())
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(format!("{error}: {:?}", loopdev::user_of(device))),
        }
    }
}

/// A mount point with whatever is mounted there.
pub(crate) struct Mounted {
    pub(crate) point: PathBuf,
}

impl Mounted {
    /// Takes responsibility for a mount that a test makes.
    pub(crate) fn guard(point: &Path) -> Self {
        Self { point: point.to_owned() }
    }

    pub(crate) fn new(disk: &Disk, kind: FsKind, point: PathBuf, options: &[&str]) -> Self {
        std::fs::create_dir_all(&point).unwrap();
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let device = disk.path();
        let mount = FsMount {
            device: &device,
            fs_type: kind.as_str(),
            options: &options,
            read_only: false,
        };
        mounts::mount_filesystem(&mount, &point).unwrap();
        Self { point }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if mounts::ensure_unmounted(&self.point).is_ok() {
            return;
        }
        while unmount(&self.point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {}
    }
}

/// A FUSE mount whose server never answers: what asks it waits until this is dropped.
pub(crate) struct Silent {
    pub(crate) point: PathBuf,
    _server: File,
}

impl Silent {
    /// It hides what is in that directory, if it is there already.
    pub(crate) fn new(point: PathBuf) -> Self {
        std::fs::create_dir_all(&point).unwrap();
        let server = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
        let descriptor = server.as_raw_fd().to_string();
        // Named as the exports of qemu-storage-daemon are.
        let options = [
            ("source", "/dev/fuse"),
            ("fd", &*descriptor),
            ("rootmode", "40000"),
            ("user_id", "0"),
            ("group_id", "0"),
        ];
        for (key, value) in options {
            fsconfig_set_string(&context, key, value).unwrap();
        }
        fsconfig_create(&context).unwrap();
        let tree =
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).unwrap();
        let by_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&tree, "", CWD, &point, by_descriptor).unwrap();
        Self { point, _server: server }
    }

    /// As an operator does with a mount whose server is dead.
    pub(crate) fn detach_mount(&self) {
        unmount(&self.point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).unwrap();
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = unmount(&self.point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}

/// For what must not wait for a server that does not answer. The time is far more than it takes.
pub(crate) fn answered<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(ask()));
    receiver.recv_timeout(Duration::from_secs(60)).expect("a server that does not answer was asked")
}

/// A small filesystem in use, with all that holds it.
pub(crate) struct Volume {
    pub(crate) mounted: Mounted,
    pub(crate) disk: Disk,
    _dir: TempDir,
}

impl Volume {
    pub(crate) fn new(kind: FsKind) -> Self {
        let dir = scratch();
        let disk = Disk::formatted(dir.path(), SMALL, kind);
        let mounted = Mounted::new(&disk, kind, dir.path().join("mnt"), &[]);
        Self { mounted, disk, _dir: dir }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.mounted.point
    }
}

/// Bytes that do not repeat within a file.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}
