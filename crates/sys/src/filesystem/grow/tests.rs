#![allow(clippy::unwrap_used, clippy::panic)]

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};

use super::*;
use crate::file::space;
use crate::filesystem::{ensure_thawed, freeze};
use crate::testbed::{Disk, MIB, Mounted, SMALL, Volume, root, scratch};

fn assert_grows(kind: FsKind) {
    let volume = Volume::new(kind);
    let (mount_point, device) = (volume.root(), volume.disk.path());
    assert!(fits_device(mount_point, &device, kind).unwrap());
    grow_mounted(mount_point, &device, kind).unwrap();
    let before = space(mount_point).unwrap().total;

    volume.disk.grow(SMALL + 200 * MIB);
    assert!(!fits_device(mount_point, &device, kind).unwrap());
    grow_mounted(mount_point, &device, kind).unwrap();
    assert!(fits_device(mount_point, &device, kind).unwrap());
    let after = space(mount_point).unwrap().total;
    // ext4 keeps a twentieth or more for its new inode tables.
    assert!(after >= before + 180 * MIB, "{kind}: {before} {after}");
    grow_mounted(mount_point, &device, kind).unwrap();

    // A rest that no filesystem has a use for.
    volume.disk.grow(SMALL + 200 * MIB + 4096);
    grow_mounted(mount_point, &device, kind).unwrap();
    assert!(fits_device(mount_point, &device, kind).unwrap());
}

#[test]
fn xfs_grows_while_mounted() {
    if root() {
        assert_grows(FsKind::Xfs);
    }
}

#[test]
fn freeze_writes_xfs_growth_to_disk() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let (mount_point, device) = (volume.root(), volume.disk.path());
    let is_written = || growth_is_written(mount_point, &device, FsKind::Xfs).unwrap();
    for step in 1..=5 {
        volume.disk.grow(SMALL + step * 16 * MIB);
        assert!(is_written(), "the device alone grew");
        grow_mounted(mount_point, &device, FsKind::Xfs).unwrap();
        freeze(mount_point).unwrap();
        ensure_thawed(mount_point).unwrap();
        assert!(is_written());
    }
}

#[test]
fn btrfs_grows_while_mounted() {
    if root() {
        assert_grows(FsKind::Btrfs);
    }
}

#[test]
fn too_small_btrfs_is_not_resized() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::formatted(dir.path(), 128 * MIB, FsKind::Btrfs);
    let mounted = Mounted::new(&disk, FsKind::Btrfs, dir.path().join("mnt"), &[]);
    let before = space(&mounted.point).unwrap().total;
    disk.grow(256 * MIB - 4096);
    assert!(fits_device(&mounted.point, &disk.path(), FsKind::Btrfs).unwrap());
    grow_mounted(&mounted.point, &disk.path(), FsKind::Btrfs).unwrap();
    assert_eq!(space(&mounted.point).unwrap().total, before);

    disk.grow(256 * MIB);
    assert!(!fits_device(&mounted.point, &disk.path(), FsKind::Btrfs).unwrap());
    grow_mounted(&mounted.point, &disk.path(), FsKind::Btrfs).unwrap();
    assert_eq!(space(&mounted.point).unwrap().total, 256 * MIB);
}

#[test]
fn ext4_grows_while_mounted_if_permitted() {
    if !root() {
        return;
    }
    if capabilities(None).unwrap().effective.contains(CapabilitySet::SYS_RESOURCE) {
        assert_grows(FsKind::Ext4);
        return;
    }
    let volume = Volume::new(FsKind::Ext4);
    let (mount_point, device) = (volume.root(), volume.disk.path());
    volume.disk.grow(SMALL + 200 * MIB);
    assert!(!fits_device(mount_point, &device, FsKind::Ext4).unwrap());
    let error = grow_mounted(mount_point, &device, FsKind::Ext4).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::PERM));
}

#[test]
fn xfs_skips_a_too_small_last_group() {
    let geometry = XfsGeometry { block_size: 4096, ag_blocks: 1000, ..XfsGeometry::default() };
    assert_eq!(usable_xfs_blocks(&geometry, 4096 * 4000), 4000);
    assert_eq!(usable_xfs_blocks(&geometry, 4096 * 4063 + 511), 4000);
    assert_eq!(usable_xfs_blocks(&geometry, 4096 * 4064), 4064);
}
