#![allow(clippy::unwrap_used)]

use super::super::allocated_bytes;
use super::*;
use crate::filesystem::FsKind;
use crate::testbed::{MIB, Volume, pattern, root, scratch};

const LENGTH: u64 = 64 * MIB + 4096;

/// Data at the start, in the middle and at the very end, holes between.
fn sparse_file(path: &Path) -> File {
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len(LENGTH).unwrap();
    file.write_all_at(&pattern(1, 300_000), 0).unwrap();
    file.write_all_at(&pattern(2, 1_000_000), 20 * MIB + 123).unwrap();
    file.write_all_at(&pattern(3, 4096), LENGTH - 4096).unwrap();
    file.sync_all().unwrap();
    file
}

fn empty_file(path: &Path) -> File {
    File::options().read(true).write(true).create_new(true).open(path).unwrap()
}

fn assert_same_and_sparse(dir: &Path, copy: &str) {
    let (source, copy) = (dir.join("source"), dir.join(copy));
    assert!(std::fs::read(&source).unwrap() == std::fs::read(&copy).unwrap(), "{copy:?} differs");
    super::super::sync_filesystem(dir).unwrap();
    assert!(allocated_bytes(&copy).unwrap() < 4 * MIB, "{copy:?} lost its holes");
}

#[test]
fn clone_and_sparse_copy_are_equal_where_extents_are_shared() {
    if !root() {
        return;
    }
    for kind in [FsKind::Xfs, FsKind::Btrfs] {
        let volume = Volume::new(kind);
        let dir = volume.root();
        let source = sparse_file(&dir.join("source"));

        let clone = empty_file(&dir.join("clone"));
        assert_eq!(try_clone_file(&source, &clone).unwrap(), CloneOutcome::Shared);
        assert_same_and_sparse(dir, "clone");

        let copy = empty_file(&dir.join("copy"));
        let copied = copy_sparse(&source, &copy).unwrap();
        assert!((1_304_096..2 * MIB).contains(&copied), "{kind}: {copied}");
        assert_same_and_sparse(dir, "copy");

        let chunked = empty_file(&dir.join("chunked"));
        preclone_chunks(&source, &chunked).unwrap();
        assert_same_and_sparse(dir, "chunked");
        source.write_all_at(b"written after the first pass", 20 * MIB).unwrap();
        assert_eq!(try_clone_file(&source, &chunked).unwrap(), CloneOutcome::Shared);
        assert_same_and_sparse(dir, "chunked");
    }
}

#[test]
fn a_clone_keeps_what_the_source_loses() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let source = sparse_file(&volume.root().join("source"));
    let clone = empty_file(&volume.root().join("clone"));
    try_clone_file(&source, &clone).unwrap();
    source.write_all_at(&pattern(9, 300_000), 0).unwrap();
    let mut kept = vec![0; 300_000];
    clone.read_exact_at(&mut kept, 0).unwrap();
    assert!(kept == pattern(1, 300_000));
}

#[test]
fn without_sharing_clones_are_refused_and_copies_still_sparse() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Ext4);
    let dir = volume.root();
    let source = sparse_file(&dir.join("source"));
    let copy = empty_file(&dir.join("copy"));
    assert_eq!(try_clone_file(&source, &copy).unwrap(), CloneOutcome::Unsupported);
    preclone_chunks(&source, &copy).unwrap();
    copy_sparse(&source, &copy).unwrap();
    assert_same_and_sparse(dir, "copy");
}

#[test]
fn a_copy_crosses_filesystems_and_replaces_what_was_there() {
    if !root() {
        return;
    }
    let (from, to) = (Volume::new(FsKind::Xfs), Volume::new(FsKind::Ext4));
    let source = sparse_file(&from.root().join("source"));
    let copy = empty_file(&to.root().join("copy"));
    copy.write_all_at(&vec![7; 1 << 20], LENGTH + MIB).unwrap();
    copy.write_all_at(&vec![7; 1 << 20], 2 * MIB).unwrap();
    assert_eq!(try_clone_file(&source, &copy).unwrap(), CloneOutcome::Unsupported);
    copy_sparse(&source, &copy).unwrap();
    std::fs::copy(from.root().join("source"), to.root().join("source")).unwrap();
    assert_same_and_sparse(to.root(), "copy");
}

#[test]
fn manual_copy_gives_the_same_result() {
    let dir = scratch();
    let source = sparse_file(&dir.path().join("source"));
    let copy = empty_file(&dir.path().join("copy"));
    copy.set_len(LENGTH).unwrap();
    copy_by_hand(&source, &copy, 0, LENGTH).unwrap();
    let read = |name| std::fs::read(dir.path().join(name)).unwrap();
    assert!(read("source") == read("copy"));
}

#[test]
fn unshared_copy_shares_nothing_and_keeps_its_blocks() {
    if !root() {
        return;
    }
    for kind in [FsKind::Xfs, FsKind::Btrfs, FsKind::Ext4] {
        let volume = Volume::new(kind);
        let dir = volume.root();
        let source = sparse_file(&dir.join("source"));
        let copy = empty_file(&dir.join("copy"));
        super::super::preallocate(&copy, 0, LENGTH).unwrap();
        copy_apart(&source, &copy).unwrap();
        copy.sync_all().unwrap();
        let read = |name| std::fs::read(dir.join(name)).unwrap();
        assert!(read("source") == read("copy"), "{kind}");
        assert!(allocated_bytes(&dir.join("copy")).unwrap() >= LENGTH, "{kind}");
        let places = |file: File| -> Vec<u64> {
            let extents = crate::extents::extents(file, 0).map(std::result::Result::unwrap);
            extents.map(|extent| extent.physical).collect()
        };
        let of_source = places(source);
        assert!(places(copy).iter().all(|place| !of_source.contains(place)), "{kind}");
    }
}

#[test]
fn an_empty_file_copies_to_an_empty_file() {
    let dir = scratch();
    let source = empty_file(&dir.path().join("source"));
    let copy = empty_file(&dir.path().join("copy"));
    copy.set_len(1000).unwrap();
    assert_eq!(copy_sparse(&source, &copy).unwrap(), 0);
    assert_eq!(copy.metadata().unwrap().len(), 0);
}

#[test]
fn data_and_extents_are_counted() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let file = empty_file(&volume.root().join("file"));
    file.set_len(8 * MIB).unwrap();
    assert!(!has_data(&file).unwrap());
    assert_eq!(extent_count(&file).unwrap(), 0);
    for piece in 0..10 {
        file.write_all_at(&[1; 4096], piece * 256 * 1024).unwrap();
    }
    file.sync_all().unwrap();
    assert!(has_data(&file).unwrap());
    assert_eq!(extent_count(&file).unwrap(), 10);
}

#[test]
fn sharing_probe_leaves_nothing() {
    if !root() {
        return;
    }
    for (kind, shares) in [(FsKind::Xfs, true), (FsKind::Btrfs, true), (FsKind::Ext4, false)] {
        let volume = Volume::new(kind);
        let dir = volume.root().join("pool");
        std::fs::create_dir(&dir).unwrap();
        assert_eq!(can_share_extents(&dir).unwrap(), shares, "{kind}");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "{kind}");
    }
}
