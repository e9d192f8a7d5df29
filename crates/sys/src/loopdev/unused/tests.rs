use std::fs::File;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::super::{find, status};
use super::*;
use crate::filesystem::FsKind;
use crate::mounts::{self, BindAccess};
use crate::testbed::*;

/// A bind of the device's node, as a publication of a raw volume is.
fn bound(disk: &Disk, dir: &Path) -> Mounted {
    let point = dir.join("bound");
    File::create(&point).unwrap();
    mounts::bind(&disk.path(), &point, BindAccess::ReadWrite).unwrap();
    Mounted::guard(&point)
}

/// A node of the device, as a container runtime makes one.
fn own_node(disk: &Disk, dir: &Path) -> PathBuf {
    let (major, minor) = disk.device.device_number().unwrap();
    let node = dir.join("node");
    mknodat(CWD, &node, FileType::BlockDevice, Mode::RUSR, makedev(major, minor)).unwrap();
    node
}

fn attempt(disk: &Disk) -> Option<String> {
    try_detach_unused(&disk.device, &disk.label, &disk.image).unwrap()
}

#[track_caller]
fn assert_kept(disk: &Disk, why: &str) {
    let reason = attempt(disk).expect("it is in use");
    assert!(reason.contains(why), "{reason}");
    let kept = status(&disk.device).unwrap().expect("it is attached");
    assert!(kept.label == disk.label && !kept.detaching, "{kept:?}");
}

#[test]
fn unused_device_is_detached() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), MIB);
    assert_eq!(try_detach_unused(&disk.device, "another", &disk.image).unwrap(), None);
    assert!(find(&disk.image, false).unwrap().is_some());
    assert_eq!(attempt(&disk), None);
    assert_eq!(find(&disk.image, false).unwrap(), None);
}

#[test]
fn brief_open_does_not_keep_a_device() {
    let looks = |found: [bool; 4]| {
        let mut found = found.into_iter();
        lasting(|| found.next().unwrap().then(|| "blkid".to_owned()))
    };
    assert_eq!(looks([false; 4]), None);
    assert_eq!(looks([true, true, true, false]), None);
    assert!(looks([true; 4]).is_some());
}

#[test]
fn a_device_whose_node_is_bound_is_kept() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), MIB);
    let bind = bound(&disk, dir.path());
    assert_kept(&disk, &format!("mounted at {}", bind.point.display()));
    // Under another mount it is out of sight, and there all the same.
    let hiding = Mounted::guard(&bind.point);
    mounts::bind(&disk.image, &bind.point, BindAccess::ReadOnly).unwrap();
    assert_kept(&disk, "sees it mounted");
    drop(hiding);
}

#[test]
fn a_bound_node_of_another_filesystem_is_known() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), MIB);
    let (node, point) = (own_node(&disk, dir.path()), dir.path().join("bound"));
    File::create(&point).unwrap();
    mounts::bind(&node, &point, BindAccess::ReadWrite).unwrap();
    let _bind = Mounted::guard(&point);
    assert_kept(&disk, &format!("mounted at {}", point.display()));
}

#[test]
fn open_of_a_bound_path_or_own_node_is_detected() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), MIB);
    let (bind, node) = (bound(&disk, dir.path()), own_node(&disk, dir.path()));
    for path in [&bind.point, &node] {
        let open = File::open(path).unwrap();
        assert!(user_of(&disk.device).unwrap().contains("has it open"));
        drop(open);
    }
    drop(bind);
    let open = File::open(&node).unwrap();
    assert_kept(&disk, "has it open");
    drop(open);
    assert_eq!(attempt(&disk), None);
}

#[test]
fn device_below_another_device_is_kept() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), MIB);
    let bind = bound(&disk, dir.path());
    let options = super::super::AttachOptions { label: "on top", read_only: false, size: MIB };
    let top = super::super::attach(&bind.point, &options).unwrap();
    drop(bind);
    let reason = attempt(&disk);
    let kept = status(&disk.device).unwrap();
    until_detached(&top, || super::super::ensure_detached(&top, "on top")).unwrap();
    assert!(reason.is_some(), "another device is on it");
    assert!(kept.is_some_and(|kept| !kept.detaching));
}

#[test]
fn a_mounted_device_is_kept() {
    if !root() {
        return;
    }
    for kind in [FsKind::Ext4, FsKind::Btrfs] {
        let volume = Volume::new(kind);
        assert_kept(&volume.disk, &format!("mounted at {}", volume.root().display()));
    }
}

/// By what the kernel alone knows: an open that no process shows.
#[test]
fn device_held_by_the_kernel_is_not_detached() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let kept = Disk::new(volume.root(), MIB);
    rustix::mount::unmount(volume.root(), rustix::mount::UnmountFlags::DETACH).unwrap();
    // But for programs that look at all devices.
    assert!((0..100).any(|_| user_of(&volume.disk.device).is_none()));
    assert_kept(&volume.disk, "this daemon cannot see");
    drop(kept);
}
