#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Write;

use super::super::claim::wait_until_unclaimed;
use super::super::{FsKind, Signature, probe};
use super::*;
use crate::file::copy_sparse;
use crate::rand::random_bytes;
use crate::testbed::{Disk, Mounted, Volume, root, scratch};

fn uuid_on(device: &Path) -> [u8; 16] {
    match probe(device).unwrap() {
        Signature::Filesystem { kind: FsKind::Btrfs, uuid, .. } => uuid,
        Signature::Filesystem { .. } | Signature::Blank | Signature::Foreign => [0; 16],
    }
}

/// The copy is taken of a live filesystem, with files that so far only the log tree knows.
#[test]
fn a_copy_of_a_live_btrfs_mounts_beside_it() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Btrfs);
    crate::file::sync_filesystem(volume.root()).unwrap();
    let mut logged = File::create(volume.root().join("logged")).unwrap();
    logged.write_all(&[7; 5000]).unwrap();
    logged.sync_all().unwrap();

    let dir = scratch();
    let copy = dir.path().join("copy");
    let image = File::open(&volume.disk.image).unwrap();
    copy_sparse(&image, &File::create(&copy).unwrap()).unwrap();
    let disk = Disk::attach(&copy, false);
    for _ in 0..2 {
        let uuid = random_bytes().unwrap();
        for _ in 0..2 {
            set_btrfs_uuid(&disk.path(), uuid).unwrap();
            assert_eq!(uuid_on(&disk.path()), uuid);
        }
    }
    let mounted = Mounted::new(&disk, FsKind::Btrfs, dir.path().join("mnt"), &[]);
    assert_eq!(std::fs::read(mounted.point.join("logged")).unwrap(), [7; 5000]);
    std::fs::write(mounted.point.join("new"), "x").unwrap();
    drop(mounted);
    wait_until_unclaimed(&disk.path()).unwrap();
    crate::tool::run("btrfs", [Path::new("check"), &disk.path()]).unwrap();
    assert_ne!(uuid_on(&disk.path()), uuid_on(&volume.disk.path()));
}

#[test]
fn a_mounted_btrfs_keeps_its_uuid() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Btrfs);
    assert!(set_btrfs_uuid(&volume.disk.path(), [1; 16]).unwrap_err().is_busy());
}

#[test]
fn other_filesystems_are_refused() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::formatted(dir.path(), crate::testbed::SMALL, FsKind::Xfs);
    assert!(set_btrfs_uuid(&disk.path(), [1; 16]).unwrap_err().to_string().contains("no btrfs"));
    assert!(matches!(probe(&disk.path()).unwrap(), Signature::Filesystem { .. }));
}
