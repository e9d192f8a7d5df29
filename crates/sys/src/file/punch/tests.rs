#![allow(clippy::unwrap_used)]

use super::super::{allocated_bytes, extent_count, preallocate};
use super::*;
use crate::filesystem::FsKind;
use crate::testbed::{MIB, Volume, pattern, root, scratch};

const KIB: u64 = 1 << 10;

fn write(file: &File, offset: u64, contents: &[u8]) {
    file.write_all_at(contents, offset).unwrap();
}

fn zeroes(bytes: u64) -> Vec<u8> {
    vec![0; usize::try_from(bytes).unwrap()]
}

#[test]
fn zeroes_are_punched_and_data_kept() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let volume = Volume::new(kind);
        let path = volume.root().join("file");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(32 * MIB + 100).unwrap();
        write(&file, 0, &zeroes(8 * MIB));
        write(&file, 3 * MIB + 5, &pattern(1, 100_000));
        write(&file, 12 * MIB, &pattern(2, 1 << 20));
        write(&file, 12 * MIB + 128 * KIB, &zeroes(64 * KIB));
        write(&file, 20 * MIB, &zeroes(4 * KIB));
        write(&file, 32 * MIB, &[9; 100]);
        file.sync_all().unwrap();
        let contents = std::fs::read(&path).unwrap();
        let before = allocated_bytes(&path).unwrap();

        let punched = punch_zeroes(&file).unwrap();
        // Around the 100,000 bytes, which begin and end within a block of 4 KiB.
        let edges = 8 * MIB - 25 * 4 * KIB;
        assert_eq!(punched, edges + 64 * KIB + 4 * KIB, "{kind}");
        assert!(std::fs::read(&path).unwrap() == contents, "{kind}: the contents changed");
        let after = allocated_bytes(&path).unwrap();
        // ext4 needs a block for the list of extents; btrfs frees an extent when nothing of it is
        // used any more.
        if kind != FsKind::Btrfs {
            assert!(after + punched <= before + 64 * KIB, "{kind}: {before} {after} {punched}");
        }
        assert!(after < before, "{kind}: {before} {after}");
        assert_eq!(punch_zeroes(&file).unwrap(), 0, "{kind}: a second time");
    }
}

#[test]
fn small_hole_is_not_punched() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let file = File::create_new(volume.root().join("file")).unwrap();
    drop(file);
    let file = File::options().read(true).write(true).open(volume.root().join("file")).unwrap();
    write(&file, 0, &pattern(1, 1 << 20));
    write(&file, 512 * KIB, &zeroes(60 * KIB));
    file.sync_all().unwrap();
    assert_eq!(punch_zeroes(&file).unwrap(), 0);
    assert_eq!(extent_count(&file).unwrap(), 1);
    write(&file, 572 * KIB, &zeroes(4 * KIB));
    assert_eq!(punch_zeroes(&file).unwrap(), 64 * KIB);
    assert_eq!(extent_count(&file).unwrap(), 2);
}

#[test]
fn reserved_space_stays_reserved() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let path = volume.root().join("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    preallocate(&file, 0, 8 * MIB).unwrap();
    assert_eq!(punch_zeroes(&file).unwrap(), 0);
    assert!(allocated_bytes(&path).unwrap() >= 8 * MIB);
}

#[test]
fn empty_file_frees_nothing() {
    let dir = scratch();
    let file = File::create(dir.path().join("file")).unwrap();
    assert_eq!(punch_zeroes(&file).unwrap(), 0);
    file.set_len(MIB).unwrap();
    assert_eq!(punch_zeroes(&file).unwrap(), 0);
    assert_eq!(file.metadata().unwrap().len(), MIB);
}
