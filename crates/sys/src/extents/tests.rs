#![allow(clippy::unwrap_used)]

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;
use crate::file::{CloneOutcome, preallocate, try_clone_file};
use crate::filesystem::FsKind;
use crate::testbed::{Disk, MIB, Mounted, SMALL, Volume, pattern, root, scratch};

const BLOCK: u64 = 4096;

fn new_file(path: &Path, length: u64) -> File {
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len(length).unwrap();
    file
}

fn all(file: &File, start: u64) -> Vec<Extent> {
    extents(file.try_clone().unwrap(), start).collect::<Result<_>>().unwrap()
}

fn write_block(file: &File, block: u64, seed: u64) {
    file.write_all_at(&pattern(seed, 4096), block * BLOCK).unwrap();
}

/// Joined where they touch: filesystems differ in how they cut an extent.
fn ranges(extents: &[Extent], kind: ExtentKind) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for extent in extents.iter().filter(|extent| extent.kind == kind) {
        match joined.last_mut() {
            Some(last) if last.end == extent.logical => last.end = extent.end(),
            Some(_) | None => joined.push(extent.logical..extent.end()),
        }
    }
    joined
}

fn assert_rising(extents: &[Extent], start: u64) {
    let mut position = start;
    for extent in extents {
        assert!(extent.logical >= position && extent.length > 0, "{extent:?} after {position}");
        position = extent.end();
    }
}

/// Blocks with anything but zeroes in them, found by reading.
fn blocks_with_data(file: &File) -> Vec<u64> {
    let mut found = Vec::new();
    let mut block = [0; 4096];
    for number in 0..file.metadata().unwrap().len() / BLOCK {
        file.read_exact_at(&mut block, number * BLOCK).unwrap();
        if block.iter().any(|byte| *byte != 0) {
            found.push(number);
        }
    }
    found
}

fn is_within(block: u64, extents: &[Extent]) -> bool {
    let offset = block * BLOCK;
    extents.iter().any(|extent| (extent.logical..extent.end()).contains(&offset))
}

#[test]
fn data_holes_and_reserved_space_differ() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let volume = Volume::new(kind);
        let file = new_file(&volume.root().join("file"), 16 * MIB);
        assert_eq!(all(&file, 0), [], "{kind}");
        for block in [0, 1, 2, 700] {
            write_block(&file, block, block + 1);
        }
        preallocate(&file, 8 * MIB, MIB).unwrap();
        write_block(&file, 8 * MIB / BLOCK + 16, 5);

        // Nothing was synced: the map itself sees to it.
        let map = all(&file, 0);
        assert_rising(&map, 0);
        let written = 8 * MIB + 16 * BLOCK;
        let data = [0..3 * BLOCK, 700 * BLOCK..701 * BLOCK, written..written + BLOCK];
        assert_eq!(ranges(&map, ExtentKind::Data), data, "{kind}");
        let reserved = [8 * MIB..written, written + BLOCK..9 * MIB];
        assert_eq!(ranges(&map, ExtentKind::Unwritten), reserved, "{kind}");
        assert_eq!(ranges(&map, ExtentKind::Inexact), [], "{kind}");
    }
}

#[test]
fn many_extents_come_in_pages_and_from_any_start() {
    if !root() {
        return;
    }
    const COUNT: u64 = 1500;
    for kind in FsKind::ALL {
        let volume = Volume::new(kind);
        let file = new_file(&volume.root().join("file"), 2 * COUNT * BLOCK);
        for number in 0..COUNT {
            write_block(&file, 2 * number, number + 1);
        }
        let map = all(&file, 0);
        assert_rising(&map, 0);
        let blocks: Vec<u64> = map.iter().map(|extent| extent.logical / BLOCK).collect();
        assert_eq!(blocks, (0..COUNT).map(|number| 2 * number).collect::<Vec<_>>(), "{kind}");
        assert_eq!(blocks, blocks_with_data(&file), "{kind}");

        for start in [1, BLOCK - 1, BLOCK, 1023 * BLOCK, 1024 * BLOCK, 1024 * BLOCK + 100] {
            let rest: Vec<Extent> =
                map.iter().filter_map(|extent| extent.cut_before(start)).collect();
            assert_eq!(all(&file, start), rest, "{kind} from {start}");
        }
        for past_the_end in [2 * COUNT * BLOCK, 1 << 50, u64::MAX] {
            assert_eq!(all(&file, past_the_end), [], "{kind}");
        }
    }
}

#[test]
fn a_start_within_an_extent_keeps_the_address_of_each_byte() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let volume = Volume::new(kind);
        let file = new_file(&volume.root().join("file"), 0);
        file.write_all_at(&pattern(1, 1 << 20), 0).unwrap();
        let address = |map: &[Extent], offset: u64| {
            let extent = map.iter().find(|extent| extent.end() > offset).unwrap();
            extent.physical + (offset - extent.logical)
        };
        let (whole, later) = (all(&file, 0), all(&file, 300_000));
        assert_eq!(later[0].logical, 300_000, "{kind}");
        assert_eq!(address(&whole, 400_000), address(&later, 400_000), "{kind}");
    }
}

/// Equal addresses mean equal data, and every block that differs has another address.
#[test]
fn shared_blocks_have_one_address_and_others_do_not() {
    if !root() {
        return;
    }
    for kind in [FsKind::Xfs, FsKind::Btrfs] {
        let volume = Volume::new(kind);
        let live = new_file(&volume.root().join("live"), 4 * MIB);
        live.write_all_at(&pattern(1, 1 << 20), MIB).unwrap();
        let snapshot = new_file(&volume.root().join("snapshot"), 0);
        assert_eq!(try_clone_file(&live, &snapshot).unwrap(), CloneOutcome::Shared);
        for block in [0, 256, 300, 301, 511, 900] {
            write_block(&live, block, 100 + block);
        }

        let (old, new) = (all(&snapshot, 0), all(&live, 0));
        let address = |map: &[Extent], block: u64| {
            let offset = block * BLOCK;
            let extent = map.iter().find(|extent| extent.end() > offset)?;
            (extent.logical <= offset).then(|| extent.physical + (offset - extent.logical))
        };
        for block in 0..4 * MIB / BLOCK {
            let (mut before, mut after) = ([0; 4096], [0; 4096]);
            snapshot.read_exact_at(&mut before, block * BLOCK).unwrap();
            live.read_exact_at(&mut after, block * BLOCK).unwrap();
            let moved = address(&old, block) != address(&new, block);
            assert_eq!(moved, before != after, "{kind}: block {block}");
        }
    }
}

/// What is written over since is the old file's alone.
#[test]
fn extents_of_two_files_are_marked_as_shared() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let live = new_file(&volume.root().join("live"), 4 * MIB);
    live.write_all_at(&pattern(1, 1 << 20), MIB).unwrap();
    let alone = |file: &File| -> u64 {
        all(file, 0).iter().filter(|it| !it.is_shared).map(|it| it.length).sum()
    };
    assert_eq!(alone(&live), MIB);
    let snapshot = new_file(&volume.root().join("snapshot"), 0);
    assert_eq!(try_clone_file(&live, &snapshot).unwrap(), CloneOutcome::Shared);
    assert_eq!((alone(&live), alone(&snapshot)), (0, 0));
    for block in [256, 300, 301] {
        write_block(&live, block, block);
    }
    assert_eq!((alone(&live), alone(&snapshot)), (3 * BLOCK, 3 * BLOCK));
}

#[test]
fn compressed_and_inline_data_is_inexact() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::formatted(dir.path(), SMALL, FsKind::Btrfs);
    let mounted = Mounted::new(&disk, FsKind::Btrfs, dir.path().join("mnt"), &["compress-force"]);
    let compressed = new_file(&mounted.point.join("compressed"), 0);
    compressed.write_all_at(&vec![b'x'; 1 << 20], 0).unwrap();
    let inline = new_file(&mounted.point.join("inline"), 0);
    inline.write_all_at(b"a few bytes", 0).unwrap();
    for file in [compressed, inline] {
        let map = all(&file, 0);
        assert!(is_within(0, &map));
        assert!(map.iter().all(|extent| extent.kind == ExtentKind::Inexact), "{map:?}");
    }
}

#[test]
fn unknown_flags_make_an_address_inexact() {
    let kind = |flags| {
        let mut reported = FiemapExtent::nothing();
        (reported.length, reported.flags) = (BLOCK, flags);
        Extent::new(&reported).kind
    };
    let exact = FIEMAP_EXTENT_LAST | FIEMAP_EXTENT_SHARED | FIEMAP_EXTENT_MERGED;
    assert_eq!(kind(exact), ExtentKind::Data);
    assert_eq!(kind(exact | FIEMAP_EXTENT_UNWRITTEN), ExtentKind::Unwritten);
    // UNKNOWN, DELALLOC, ENCODED, DATA_ENCRYPTED, NOT_ALIGNED, DATA_INLINE, DATA_TAIL, and one
    // that does not exist yet.
    for flag in [0x2, 0x4, 0x8, 0x80, 0x100, 0x200, 0x400, 0x8000_0000] {
        assert_eq!(kind(flag), ExtentKind::Inexact);
        assert_eq!(kind(flag | FIEMAP_EXTENT_UNWRITTEN), ExtentKind::Inexact);
    }
}

#[test]
fn every_block_with_data_is_mapped() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let volume = Volume::new(kind);
        let file = new_file(&volume.root().join("file"), 8 * MIB);
        for (step, block) in pattern(7, 400).iter().zip(pattern(8, 400)).enumerate() {
            let (action, block) = (block.0 % 4, u64::from(block.1) * 8);
            let step = u64::try_from(step).unwrap();
            match action {
                0 | 1 => write_block(&file, block, step + 1),
                2 => preallocate(&file, block * BLOCK, 3 * BLOCK).unwrap(),
                _ => file.write_all_at(&[0; 4096], block * BLOCK).unwrap(),
            }
        }
        let mut map = all(&file, 0);
        assert_rising(&map, 0);
        map.retain(|extent| extent.kind != ExtentKind::Unwritten);
        for block in blocks_with_data(&file) {
            assert!(is_within(block, &map), "{kind}: block {block} is in no extent");
        }
    }
}

#[test]
fn missing_fiemap_support_is_reported_once() {
    let file = File::open("/proc/self/maps").unwrap();
    let mut map = extents(file, 0);
    assert_eq!(map.next().unwrap().unwrap_err().errno(), Some(Errno::OPNOTSUPP));
    assert!(map.next().is_none());
}
