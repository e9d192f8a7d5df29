#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use super::super::*;
use crate::filesystem::FsKind;
use crate::testbed::{Disk, MIB, Mounted, Volume, root, scratch};
use crate::tool;

fn number_of(disk: &Disk) -> (u32, u32) {
    disk.device.device_number().unwrap()
}

#[test]
fn filesystem_is_known_by_device_in_any_bind_mount() {
    if !root() {
        return;
    }
    for kind in [FsKind::Ext4, FsKind::Xfs] {
        let volume = Volume::new(kind);
        let (major, minor) = number_of(&volume.disk);
        let dir = scratch();
        let target = dir.path().join("target");
        ensure_directory(&target).unwrap();
        assert_eq!(look_up(&target).unwrap(), MountLookup::NotMounted);
        let _target = Mounted::guard(&target);
        bind(volume.root(), &target, BindAccess::ReadWrite).unwrap();
        for path in [volume.root(), &target] {
            assert_eq!(look_up(path).unwrap(), MountLookup::Filesystem { major, minor }, "{kind}");
        }
        std::fs::create_dir(target.join("below")).unwrap();
        assert_eq!(look_up(&target.join("below")).unwrap(), MountLookup::NotMounted);
        ensure_unmounted(&target).unwrap();
        assert_eq!(look_up(&target).unwrap(), MountLookup::NotMounted);
    }
}

#[test]
fn a_device_node_is_known_by_its_own_number() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), 4 * MIB);
    let target = dir.path().join("target");
    ensure_file(&target).unwrap();
    let _mounted = Mounted::guard(&target);
    bind(&disk.path(), &target, BindAccess::ReadWrite).unwrap();
    let (major, minor) = number_of(&disk);
    assert_eq!(look_up(&target).unwrap(), MountLookup::DeviceNode { major, minor });
    // The node in /dev is no mount.
    assert_eq!(look_up(&disk.path()).unwrap(), MountLookup::NotMounted);
}

#[test]
fn ambiguous_path_is_unclear() {
    if !root() {
        return;
    }
    let read_only = Volume::new(FsKind::Ext4);
    let dir = scratch();
    let target = dir.path().join("target");
    ensure_directory(&target).unwrap();
    let _target = Mounted::guard(&target);
    bind(read_only.root(), &target, BindAccess::ReadOnly).unwrap();
    assert_eq!(look_up(&target).unwrap(), MountLookup::Unknown);

    let without_number = Volume::new(FsKind::Btrfs);
    assert_eq!(look_up(without_number.root()).unwrap(), MountLookup::Unknown);

    let shut_down = Volume::new(FsKind::Xfs);
    let point = shut_down.root().as_os_str();
    let shutdown = ["-x", "-c", "shutdown"].map(std::ffi::OsStr::new);
    tool::run("xfs_io", shutdown.into_iter().chain([point])).unwrap();
    assert_eq!(look_up(shut_down.root()).unwrap(), MountLookup::Unknown);
}

#[test]
fn symlinks_and_missing_paths_are_vacant() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Ext4);
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    symlink(volume.root(), at("link")).unwrap();
    for name in ["link", "missing", "missing/below"] {
        assert_eq!(look_up(&at(name)).unwrap(), MountLookup::NotMounted, "{name}");
    }
}
