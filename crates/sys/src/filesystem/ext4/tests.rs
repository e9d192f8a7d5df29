#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;

use super::super::FsKind;
use super::*;
use crate::testbed::{Disk, MIB, Mounted, SMALL, root, scratch};
use crate::tool;

fn check_and_grow(disk: &Disk) {
    check_ext4_fully(&disk.path()).unwrap();
    grow_ext4_unmounted(&disk.path()).unwrap();
}

#[test]
fn an_unmounted_ext4_grows_to_its_device_and_keeps_its_data() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::formatted(dir.path(), SMALL, FsKind::Ext4);
    let point = dir.path().join("mnt");
    let mounted = Mounted::new(&disk, FsKind::Ext4, point.clone(), &[]);
    std::fs::write(point.join("file"), "data").unwrap();
    drop(mounted);
    assert!(ext4_spans_device(&disk.path()).unwrap());

    // Whole groups, part of one, and rests that do not make one: 128 MiB is a group.
    for bytes in [512 * MIB, 576 * MIB, 640 * MIB + 4096, 768 * MIB + 400 * 4096, 1024 * MIB] {
        disk.grow(bytes);
        check_and_grow(&disk);
        assert!(ext4_spans_device(&disk.path()).unwrap(), "{bytes}");
        let blocks = Ext4Superblock::read(&disk.path()).unwrap().blocks;
        assert!(blocks * 4096 + 4 * MIB > bytes, "{bytes}: {blocks} blocks");
        assert_eq!(ext4_growth_bytes(&disk.path()).unwrap(), None, "{bytes}");
        check_and_grow(&disk);
    }
    disk.grow(2048 * MIB);
    assert!(!ext4_spans_device(&disk.path()).unwrap());
    let _mounted = Mounted::new(&disk, FsKind::Ext4, point.clone(), &[]);
    assert_eq!(std::fs::read(point.join("file")).unwrap(), b"data");
}

#[test]
fn last_group_rule_matches_resize2fs() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::formatted(dir.path(), SMALL, FsKind::Ext4);
    let superblock = Ext4Superblock::read(&disk.path()).unwrap();
    let group = superblock.blocks_per_group;
    // Group 5 holds a superblock, group 6 does not; either side of what each needs.
    for number in [5, 6] {
        let needed = superblock.group_overhead(number) + MIN_USABLE_BLOCKS;
        for tail in [needed - 1, needed] {
            let blocks = number * group + tail;
            disk.grow(blocks * 4096);
            let expected = superblock.usable_blocks(blocks * 4096);
            check_and_grow(&disk);
            let grown = Ext4Superblock::read(&disk.path()).unwrap().blocks;
            assert_eq!(grown, expected, "group {number}, tail {tail}");
        }
    }
}

#[test]
fn fsck_repairs_or_reports_failure() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::formatted(dir.path(), SMALL, FsKind::Ext4);
    check_ext4(&disk.path()).unwrap();

    let note_error = ["-w", "-R", "set_super_value state 2"].map(OsStr::new);
    tool::run("debugfs", note_error.into_iter().chain([disk.path().as_os_str()])).unwrap();
    assert!(Ext4Superblock::read(&disk.path()).unwrap().has_errors);
    check_ext4(&disk.path()).unwrap();
    assert!(!Ext4Superblock::read(&disk.path()).unwrap().has_errors);

    let device = File::options().write(true).open(disk.path()).unwrap();
    device.write_all_at(&vec![0xFF; 32 << 20], 0).unwrap();
    device.sync_all().unwrap();
    let error = check_ext4(&disk.path()).unwrap_err();
    assert!(error.to_string().contains("e2fsck"), "{error}");
}

#[test]
fn backups_of_the_superblock_are_where_sparse_super_says() {
    let holders: Vec<u64> = (0..60).filter(|group| holds_sparse_superblock(*group)).collect();
    assert_eq!(holders, [0, 1, 3, 5, 7, 9, 25, 27, 49]);
}

#[test]
fn a_device_without_ext4_is_refused() {
    let dir = scratch();
    let path = dir.path().join("image");
    std::fs::write(&path, vec![0; 4096]).unwrap();
    let error = Ext4Superblock::read(&path).unwrap_err();
    assert!(error.to_string().contains("no ext4"), "{error}");
}

#[test]
fn mounted_ext4_is_neither_checked_nor_grown() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::formatted(dir.path(), SMALL, FsKind::Ext4);
    let _mounted = Mounted::new(&disk, FsKind::Ext4, dir.path().join("mnt"), &[]);
    assert!(check_ext4(&disk.path()).unwrap_err().is_busy());
    assert!(check_ext4_fully(&disk.path()).unwrap_err().is_busy());
    assert!(repair_ext4(&disk.path()).unwrap_err().is_busy());
    assert!(grow_ext4_unmounted(&disk.path()).unwrap_err().is_busy());
}

/// The estimate decides whether a pool has room, so it must not be too small; with much too large a one, a pool that is
/// full for other reasons would refuse volumes that it can take.
#[test]
fn growth_takes_no_more_than_was_estimated() {
    if !root() {
        return;
    }
    let dir = scratch();
    for (before, after) in
        [(16 * MIB, 2000 * MIB), (64 * MIB, 8000 * MIB), (512 * MIB, 10240 * MIB)]
    {
        let disk = Disk::formatted(dir.path(), before, FsKind::Ext4);
        check_ext4_fully(&disk.path()).unwrap();
        let taken = crate::file::allocated_bytes(&disk.image).unwrap();
        disk.grow(after);
        let estimate = ext4_growth_bytes(&disk.path()).unwrap().unwrap();
        assert!(ext4_regrowth_bytes(&disk.path()).unwrap() >= estimate);
        grow_ext4_unmounted(&disk.path()).unwrap();
        let taken = crate::file::allocated_bytes(&disk.image).unwrap() - taken;
        assert!(taken <= estimate, "{before} to {after}: {taken} bytes, {estimate} estimated");
        assert!(estimate < after / 100, "{before} to {after}: {estimate} estimated");
    }
}

#[test]
fn copies_of_the_superblock_are_counted_as_they_are_placed() {
    for groups in 0..1000 {
        let placed = (0..groups).filter(|group| holds_sparse_superblock(*group)).count();
        assert_eq!(sparse_superblocks(groups), u64::try_from(placed).unwrap(), "{groups}");
    }
}
