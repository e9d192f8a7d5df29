#![allow(clippy::unwrap_used)]

use std::process::Child;

use super::*;
use crate::filesystem::{
    Format, FsKind, Signature, check_ext4, format, grow_ext4_unmounted, probe,
};
use crate::testbed::{Disk, SMALL, root, scratch};

/// As a daemon leaves it behind: it has the lock, and whoever started it has not any more.
fn orphan(device: &Path, seconds: &str) -> Child {
    let work = Work::begin(device).unwrap();
    let mut sleep = tool::command(&tool::find("sleep").unwrap());
    tool::spawn(sleep.arg(seconds).stdin(work.inherited().unwrap())).unwrap()
}

#[test]
fn a_program_that_outlived_its_daemon_is_waited_for() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), SMALL);
    let device = disk.path();
    let wanted = Format { kind: FsKind::Ext4, uuid: [7; 16], extra_options: &[] };
    let works: [&dyn Fn() -> Result<()>; 3] =
        [&|| format(&device, &wanted), &|| check_ext4(&device), &|| grow_ext4_unmounted(&device)];
    for work in works {
        let mut before = orphan(&device, "0.5");
        work().unwrap();
        assert!(before.try_wait().unwrap().is_some(), "both were at work");
    }
    assert!(matches!(probe(&device).unwrap(), Signature::Filesystem { uuid: [7, ..], .. }));
}

#[test]
fn one_that_takes_too_long_is_told() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), SMALL);
    let mut before = orphan(&disk.path(), "600");
    let wanted = Format { kind: FsKind::Xfs, uuid: [7; 16], extra_options: &[] };
    let refused = format(&disk.path(), &wanted).unwrap_err();
    assert!(refused.is_at_work(), "{refused}");
    assert!(refused.to_string().contains(disk.path().to_str().unwrap()), "{refused}");
    assert_eq!(probe(&disk.path()).unwrap(), Signature::Blank);
    before.kill().unwrap();
    before.wait().unwrap();
    format(&disk.path(), &wanted).unwrap();
}

/// A workload's own lock of the device, as udev's, is none of ours.
#[test]
fn the_lock_is_not_the_devices_own() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), SMALL);
    let device = File::open(disk.path()).unwrap();
    flock(&device, FlockOperation::NonBlockingLockExclusive).unwrap();
    Work::begin(&disk.path()).unwrap();
}
