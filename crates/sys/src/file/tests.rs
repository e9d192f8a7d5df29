#![allow(clippy::unwrap_used)]

use super::*;
use crate::filesystem::{FsKind, keeps_order};
use crate::testbed::{MIB, Volume, root, scratch};

#[test]
fn length_and_allocated_space_differ() {
    let dir = scratch();
    let path = dir.path().join("file");
    let file = File::create(&path).unwrap();
    set_length(&file, 8 * MIB).unwrap();
    assert_eq!(allocated_bytes(&path).unwrap(), 0);

    preallocate(&file, 0, 4 * MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8 * MIB);
    assert!(allocated_bytes(&path).unwrap() >= 4 * MIB);

    preallocate(&file, 8 * MIB, 2 * MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10 * MIB);
    preallocate(&file, 0, 0).unwrap();
}

#[test]
fn a_full_filesystem_is_recognised() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let file = File::create(volume.root().join("file")).unwrap();
    let error = preallocate(&file, 0, 1 << 40).unwrap_err();
    assert!(error.is_no_space(), "{error}");
}

#[test]
fn stored_number_is_read_back() {
    let dir = scratch();
    let path = dir.path().join("file");
    let file = File::create_new(&path).unwrap();
    assert_eq!(number(&path, "orlop.test").unwrap(), None);
    for value in [7, u64::MAX] {
        set_number(&file, "orlop.test", value).unwrap();
        assert_eq!(number(&path, "orlop.test").unwrap(), Some(value));
    }
    let error = number(&dir.path().join("missing"), "orlop.test").unwrap_err();
    assert!(error.is_not_found());
}

#[test]
fn statfs_reports_space_and_kind() {
    if !root() {
        return;
    }
    for (kind, expected) in [
        (FsKind::Ext4, BackingKind::Ext4),
        (FsKind::Xfs, BackingKind::Xfs),
        (FsKind::Btrfs, BackingKind::Btrfs),
    ] {
        let volume = Volume::new(kind);
        assert_eq!(backing_kind(volume.root()).unwrap(), expected);
        assert_eq!(keeps_order(volume.root()).unwrap(), kind == FsKind::Xfs);
        let before = space(volume.root()).unwrap();
        assert!(before.total > 200 * MIB && before.total <= 320 * MIB, "{kind}: {before:?}");
        assert!(before.free <= before.total && !before.read_only, "{kind}: {before:?}");

        let file = File::create(volume.root().join("file")).unwrap();
        preallocate(&file, 0, 32 * MIB).unwrap();
        sync_filesystem(volume.root()).unwrap();
        let after = space(volume.root()).unwrap();
        assert!(after.free + 32 * MIB <= before.free + MIB, "{kind}: {before:?} {after:?}");
    }
    assert_eq!(backing_kind(Path::new("/proc")).unwrap(), BackingKind::Other);
}
