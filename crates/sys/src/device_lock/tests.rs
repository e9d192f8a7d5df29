#![allow(clippy::unwrap_used)]

use std::process::Child;

use super::*;
use crate::filesystem::{
    Format, FsKind, Signature, check_ext4, format, grow_ext4_unmounted, probe,
};
use crate::loopdev;
use crate::testbed::{Disk, SMALL, root, scratch};

/// As a daemon leaves it behind: it holds the lock, and the daemon that started it no longer does.
struct Orphan(Child);

impl Orphan {
    fn leave(device: &Path, seconds: &str) -> Self {
        let lock = DeviceLock::take(device).unwrap();
        let mut sleep = tool::command(&tool::find("sleep").unwrap());
        Self(tool::spawn(sleep.arg(seconds).stdin(lock.inherited().unwrap())).unwrap())
    }

    /// One that ends gives them up first, its lock among them.
    fn has_files(&self) -> bool {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.0.id()));
        files.is_ok_and(|files| files.count() > 0)
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn tool_that_outlived_its_daemon_is_waited_for() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), SMALL);
    let device = disk.path();
    let wanted = Format { kind: FsKind::Ext4, uuid: [7; 16], extra_options: &[] };
    let tools: [&dyn Fn() -> Result<()>; 3] =
        [&|| format(&device, &wanted), &|| check_ext4(&device), &|| grow_ext4_unmounted(&device)];
    for run_tool in tools {
        let before = Orphan::leave(&device, "0.5");
        run_tool().unwrap();
        assert!(!before.has_files(), "both were at work");
    }
    assert!(matches!(probe(&device).unwrap(), Signature::Filesystem { uuid: [7, ..], .. }));
}

#[test]
fn device_locked_too_long_is_reported() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), SMALL);
    let before = Orphan::leave(&disk.path(), "600");
    let wanted = Format { kind: FsKind::Xfs, uuid: [7; 16], extra_options: &[] };
    let refused = format(&disk.path(), &wanted).unwrap_err();
    assert_eq!(refused.busy_device(), Some(disk.path().as_path()), "{refused}");
    let kept = loopdev::ensure_detached(&disk.device, &disk.label).unwrap_err();
    assert_eq!(kept.busy_device(), Some(disk.path().as_path()), "{kept}");
    let status = loopdev::status(&disk.device).unwrap().unwrap();
    assert!(!status.detaching, "it would go under the program's hands");
    assert_eq!(probe(&disk.path()).unwrap(), Signature::Blank);
    drop(before);
    format(&disk.path(), &wanted).unwrap();
}

/// A workload's own lock of the device, as udev's, is none of ours.
#[test]
fn device_lock_is_independent_of_flock_on_the_device() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), SMALL);
    let device = File::open(disk.path()).unwrap();
    flock(&device, FlockOperation::NonBlockingLockExclusive).unwrap();
    DeviceLock::take(&disk.path()).unwrap();
}
