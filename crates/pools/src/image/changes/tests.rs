use std::fs::File;
use std::os::unix::fs::FileExt;

use orlop_model::{ByteRange, ContentSource, Pool, SnapshotRecord};

use super::super::ImagePool;
use super::super::testbed::*;
use super::*;

mod random;

fn range(start: u64, length: u64) -> ByteRange {
    ByteRange { start, length }
}

fn collected(ranges: Ranges) -> Vec<ByteRange> {
    ranges.filter_map(Result::unwrap).collect()
}

fn allocated(pool: &ImagePool, of: &SnapshotRecord, start: u64) -> Vec<ByteRange> {
    collected(pool.changed_blocks().allocated_ranges(&of.id, start).unwrap())
}

fn changed(
    pool: &ImagePool,
    base: &SnapshotRecord,
    target: &SnapshotRecord,
    start: u64,
) -> Vec<ByteRange> {
    collected(pool.changed_blocks().changed_ranges(&base.id, &target.id, start).unwrap())
}

/// One of each way to tell what changed.
fn beds() -> Vec<Testbed> {
    let mut beds = Testbed::all();
    beds.extend(Testbed::btrfs_compressed());
    beds
}

fn write(pool: &ImagePool, volume: &orlop_model::VolumeId, seed: u64, at: ByteRange) {
    let file = File::options().write(true).open(data_of(pool, volume)).unwrap();
    file.write_all_at(&pattern(seed, at.length), at.start).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn only_written_blocks_are_reported() {
    for testbed in beds() {
        let pool = testbed.open();
        let volume = create(&pool, &volume_of(&pool, "a", 64 * MIB));
        let blank = snapshot(&pool, "blank", &volume);
        assert_eq!(allocated(&pool, &blank, 0), []);

        let first = [range(0, 128 << 10), range(8 * MIB, MIB)];
        for at in first {
            write(&pool, &volume.id, 1, at);
        }
        let base = snapshot(&pool, "base", &volume);
        assert_eq!(allocated(&pool, &base, 0), first);
        assert_eq!(changed(&pool, &blank, &base, 0), first);

        let second = [range(64 << 10, 4096), range(9 * MIB, 64 << 10), range(63 * MIB, MIB)];
        for at in second {
            write(&pool, &volume.id, 2, at);
        }
        let target = snapshot(&pool, "target", &volume);
        let reported = changed(&pool, &base, &target, 0);
        for at in second {
            let covers = |range: &&ByteRange| range.start <= at.start && at.end() <= range.end();
            assert_eq!(reported.iter().filter(covers).count(), 1, "{at:?} in {reported:?}");
        }
        // btrfs compresses 128 KiB at a time, so the neighbours of a block are rewritten too; but
        // there the data is compared.
        assert_eq!(reported, second);
        assert_eq!(changed(&pool, &target, &target, 0), []);
    }
}

/// On filesystems that share extents and on those that copy.
#[test]
fn what_only_a_snapshot_has_is_what_deleting_it_frees() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let volume = create(&pool, &volume_of(&pool, "a", 64 * MIB));
        let footprint = |of: ContentSource| pool.changed_blocks().footprint(&of).unwrap().unwrap();
        let exclusive =
            |of: &SnapshotRecord| footprint(ContentSource::Snapshot(of.id.clone())).exclusive;
        let of_volume = || footprint(ContentSource::Volume(volume.id.clone()));
        write(&pool, &volume.id, 1, range(0, 8 * MIB));
        let first = snapshot(&pool, "first", &volume);
        let second = snapshot(&pool, "second", &volume);
        let copied = if pool.directory.shares_extents() { 0 } else { 8 * MIB };
        assert_eq!((exclusive(&first), exclusive(&second)), (copied, copied));
        assert_eq!(of_volume().taken, 8 * MIB);
        assert_eq!(of_volume().shared(), 8 * MIB - copied);
        write(&pool, &volume.id, 2, range(0, 8 * MIB));
        assert_eq!(exclusive(&first), copied, "the second has it too");
        assert_eq!(of_volume().shared(), 0, "all of it was written since");
        pool.provisioner().ensure_no_snapshot(&second.id).unwrap();
        assert_eq!(exclusive(&first), 8 * MIB, "now it is alone");
        let gone = pool.changed_blocks().footprint(&ContentSource::Snapshot(second.id));
        assert!(matches!(gone, Err(Error::NoSuchSnapshot(_))), "{gone:?}");
        // What was written since is seen when all files are looked at, as they are when a pool is opened.
        drop(pool);
        let space = testbed.open().provisioner().space().unwrap();
        assert_eq!(space.stored.unwrap() + space.shared.unwrap(), 16 * MIB, "{space:?}");
    }
}

/// Whether every piece of data in the map of a snapshot has an address, or none; and what changed
/// since the one before.
fn addressed(pool: &ImagePool) -> bool {
    let volume = create(pool, &volume_of(pool, "a", 16 * MIB));
    write(pool, &volume.id, 1, range(MIB, MIB));
    let base = snapshot(pool, "base", &volume);
    write(pool, &volume.id, 2, range(MIB + 4096, 4096));
    let target = snapshot(pool, "target", &volume);
    assert_eq!(changed(pool, &base, &target, 0), [range(MIB + 4096, 4096)]);
    let reading = pool.changed_blocks.open_to_read(&target.id).unwrap();
    let pieces = pool.changed_blocks.map_of(&reading, 0, reading.size).unwrap();
    let placed: Vec<bool> =
        pieces.map(|piece| matches!(piece.unwrap().content, map::ExtentContent::At(_))).collect();
    assert!(!placed.is_empty());
    assert!(placed.iter().all(|at| *at == placed[0]), "{placed:?}");
    placed[0]
}

#[test]
fn extent_addresses_are_trusted_on_xfs_and_btrfs_only() {
    for testbed in Testbed::sharing() {
        assert!(addressed(&testbed.open()));
    }
    for testbed in [Testbed::plain(), Testbed::ext4(), Testbed::tmpfs()].into_iter().flatten() {
        assert!(!addressed(&testbed.open()));
    }
    // It shares extents where the filesystem below does, and is another filesystem all the same.
    for below in Testbed::sharing() {
        let testbed = Testbed::overlay_on(&below);
        let pool = testbed.open();
        assert!(pool.directory.shares_extents());
        assert!(!addressed(&pool));
    }
}

#[test]
fn first_range_starts_at_the_given_offset() {
    for testbed in beds() {
        let pool = testbed.open();
        let volume = create(&pool, &volume_of(&pool, "a", 16 * MIB));
        let base = snapshot(&pool, "base", &volume);
        write(&pool, &volume.id, 1, range(MIB, MIB));
        write(&pool, &volume.id, 2, range(4 * MIB, MIB));
        let target = snapshot(&pool, "target", &volume);
        let from = |start| {
            let reported = changed(&pool, &base, &target, start);
            assert_eq!(allocated(&pool, &target, start), reported);
            reported
        };
        let last = range(4 * MIB, MIB);
        assert_eq!(from(0), [range(MIB, MIB), last]);
        assert_eq!(from(MIB + 4096), [range(MIB + 4096, MIB - 4096), last]);
        assert_eq!(from(MIB + 1), [range(MIB + 1, MIB - 1), last]);
        assert_eq!(from(2 * MIB), [last]);
        assert_eq!(from(3 * MIB), [last]);
        assert_eq!(from(5 * MIB), []);
        assert_eq!(from(16 * MIB), []);
    }
}

#[test]
fn what_was_written_past_the_end_of_the_base_counts() {
    for testbed in beds() {
        let pool = testbed.open();
        let volume = create(&pool, &volume_of(&pool, "a", 8 * MIB));
        write(&pool, &volume.id, 1, range(7 * MIB, MIB));
        let base = snapshot(&pool, "base", &volume);
        let grown = pool.provisioner().ensure_capacity(&volume.id, 32 * MIB).unwrap();
        write(&pool, &volume.id, 2, range(8 * MIB, MIB));
        write(&pool, &volume.id, 3, range(31 * MIB, MIB));
        let target = snapshot(&pool, "target", &grown);
        assert_eq!(target.size_bytes, 32 * MIB);
        let grown = [range(8 * MIB, MIB), range(31 * MIB, MIB)];
        assert_eq!(changed(&pool, &base, &target, 0), grown);
    }
}

#[test]
fn a_thick_volume_is_not_allocated_before_it_is_written() {
    for testbed in beds() {
        let pool = testbed.open();
        let volume = create(&pool, &thick_volume_of(&pool, "a", 16 * MIB));
        let blank = snapshot(&pool, "blank", &volume);
        assert_eq!(allocated(&pool, &blank, 0), []);
        write(&pool, &volume.id, 1, range(MIB, MIB));
        let target = snapshot(&pool, "target", &volume);
        assert_eq!(changed(&pool, &blank, &target, 0), [range(MIB, MIB)]);
    }
}

#[test]
fn deleted_snapshot_is_still_read_to_its_end() {
    for testbed in beds() {
        let pool = testbed.open();
        let volume = create(&pool, &volume_of(&pool, "a", 16 * MIB));
        let base = snapshot(&pool, "base", &volume);
        let pieces: Vec<_> = (0..8).map(|n| range(2 * n * MIB, 64 << 10)).collect();
        for at in &pieces {
            write(&pool, &volume.id, 1, *at);
        }
        let target = snapshot(&pool, "target", &volume);
        let mut readers = [
            pool.changed_blocks().allocated_ranges(&target.id, 0).unwrap(),
            pool.changed_blocks().changed_ranges(&base.id, &target.id, 0).unwrap(),
        ];
        for reader in &mut readers {
            let first = reader.find_map(|step| step.unwrap());
            assert_eq!(first, Some(pieces[0]));
        }
        pool.provisioner().ensure_no_volume(&volume.id).unwrap();
        pool.provisioner().ensure_no_snapshot(&base.id).unwrap();
        pool.provisioner().ensure_no_snapshot(&target.id).unwrap();
        for reader in readers {
            assert_eq!(collected(reader), pieces[1..]);
        }
        let gone = pool.changed_blocks().allocated_ranges(&target.id, 0).err();
        assert!(matches!(gone, Some(Error::NoSuchSnapshot(_))), "{gone:?}");
    }
}

/// Otherwise it could not be cancelled before the whole volume is read.
#[test]
fn data_is_read_in_bounded_steps() {
    let Some(testbed) = Testbed::ext4() else { return };
    let pool = testbed.open();
    let volume = create(&pool, &volume_of(&pool, "a", 64 * MIB));
    write(&pool, &volume.id, 1, range(0, 40 * MIB));
    let base = snapshot(&pool, "base", &volume);
    write(&pool, &volume.id, 2, range(39 * MIB, MIB));
    let target = snapshot(&pool, "target", &volume);
    let steps: Vec<_> =
        pool.changed_blocks().changed_ranges(&base.id, &target.id, 0).unwrap().collect();
    let in_vain = steps.iter().filter(|step| **step == Ok(None)).count();
    assert!(in_vain >= 9, "40 MiB in {in_vain} steps of 4 MiB");
    let found: Vec<_> = steps.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(found, [range(39 * MIB, MIB)]);
}

#[test]
fn truncated_snapshot_is_damaged() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let volume = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let taken = snapshot(&pool, "s", &volume);
    let file = File::options().write(true).open(snapshot_data_of(&pool, &taken.id)).unwrap();
    orlop_sys::file::set_length(&file, MIB).unwrap();
    let refused = pool.changed_blocks().allocated_ranges(&taken.id, 0).err();
    assert!(matches!(refused, Some(Error::Damaged { .. })), "{refused:?}");
}
