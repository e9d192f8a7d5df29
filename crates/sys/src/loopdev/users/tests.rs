#![allow(clippy::unwrap_used)]

use std::fs::File;

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{UnmountFlags, unmount};

use super::*;
use crate::filesystem::FsKind;
use crate::testbed::{Disk, MIB, Silent, Volume, answered, root};

#[test]
fn user_of_names_a_process_with_the_mount() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Ext4);
    let named = user_of(&volume.disk.device).unwrap();
    assert!(named.contains("sees it mounted at"), "{named}");
}

/// As of a mount that was dropped in another namespace.
#[test]
fn user_of_names_open_files_in_a_detached_mount() {
    if !root() {
        return;
    }
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let volume = Volume::new(kind);
        let file = File::create(volume.root().join("file")).unwrap();
        unmount(volume.root(), UnmountFlags::DETACH).unwrap();
        let user = user_of(&volume.disk.device).unwrap();
        assert!(user.contains("has files open in it"), "{kind:?}: {user}");
        drop(file);
    }
}

/// btrfs, because its files are known by more than a device number. In use by the kernel alone, so
/// that every process is looked at.
#[test]
fn user_of_does_not_wait_for_a_dead_fuse_server() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Btrfs);
    let kept = Disk::new(volume.root(), MIB);
    unmount(volume.root(), UnmountFlags::DETACH).unwrap();
    let silent = Silent::new(volume.root().with_extension("silent"));
    let opened = open(&silent.point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    silent.detach_mount();
    let is_unused = |_| {
        let device = volume.disk.device.clone();
        // But for programs that look at all devices.
        answered(move || user_of(&device)).is_none()
    };
    assert!((0..100).any(is_unused), "{:?}", user_of(&volume.disk.device));
    drop((opened, silent, kept));
}
