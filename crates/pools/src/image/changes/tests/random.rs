//! Random histories of a volume: no change is ever missed.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use fastrand::Rng;
use orlop_model::{DeviceAccess, VolumeRecord};
use rustix::fs::{FallocateFlags, fallocate};

use super::*;

const BLOCK: usize = 4096;
const START_BYTES: u64 = 2 * MIB;
const GROWTH: u64 = MIB;

/// Mostly whole blocks, sometimes any range of bytes; never empty.
fn random_range(rng: &mut Rng, size: u64) -> ByteRange {
    let unit = if rng.u64(..4) == 0 { 1 } else { 4096 };
    let longest = if rng.u64(..4) == 0 { size } else { 64 << 10 };
    let start = rng.u64(..size / unit) * unit;
    let length = (1 + rng.u64(..longest)).div_ceil(unit) * unit;
    range(start, length.min(size - start))
}

#[derive(Default)]
struct Tally {
    pairs: u64,
    reported: u64,
    needless: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pairs, reported, needless } = self;
        write!(
            f,
            "{pairs} pairs, {reported} blocks reported, {needless} of them without a difference"
        )
    }
}

/// Changes the file as a loop device does for its users, or by hand. What one filesystem does not
/// offer is left out there.
fn change(rng: &mut Rng, file: &File, size: u64) {
    let at = random_range(rng, size);
    let allocate = |mode| {
        let _ = fallocate(file, mode, at.start, at.length);
    };
    match rng.u64(..8) {
        0 => file.write_all_at(&vec![0; usize::try_from(at.length).unwrap()], at.start).unwrap(),
        1 => allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
        2 => allocate(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE),
        3 => allocate(FallocateFlags::KEEP_SIZE),
        4 => file.sync_data().unwrap(),
        _ => file.write_all_at(&pattern(rng.u64(..), at.length), at.start).unwrap(),
    }
}

/// Sometimes through the volume's device.
fn apply_changes(rng: &mut Rng, pool: &ImagePool, volume: &mut VolumeRecord) {
    if rng.u64(..4) == 0 {
        let grown = volume.capacity_bytes + GROWTH;
        *volume = pool.provisioner().ensure_capacity(&volume.id, grown).unwrap();
    }
    let attached = rng.u64(..4) == 0;
    let path = if attached {
        pool.devices().ensure_attached(&volume.id, DeviceAccess::ReadWrite).unwrap().path
    } else {
        data_of(pool, &volume.id)
    };
    let file = OpenOptions::new().write(true).open(path).unwrap();
    for _ in 0..=rng.u64(..12) {
        change(rng, &file, volume.capacity_bytes);
    }
    // As the engine does before a capture.
    file.sync_all().unwrap();
    drop(file);
    pool.devices().ensure_detached(&volume.id, DeviceAccess::ReadWrite).unwrap();
}

fn assert_rising(ranges: &[ByteRange], size: u64) {
    assert!(ranges.iter().all(|range| range.length > 0 && range.end() <= size), "{ranges:?}");
    assert!(ranges.windows(2).all(|pair| pair[0].end() < pair[1].start), "{ranges:?}");
}

fn clipped(ranges: &[ByteRange], start: u64) -> Vec<ByteRange> {
    let after = ranges.iter().filter(|range| range.end() > start);
    after
        .map(|whole| {
            let from = whole.start.max(start);
            range(from, whole.end() - from)
        })
        .collect()
}

fn within(bytes: &[u8], range: ByteRange) -> std::ops::Range<usize> {
    let [start, end] = [range.start, range.end()].map(|at| usize::try_from(at).unwrap());
    assert!(end <= bytes.len());
    start..end
}

/// Fills `rebuilt` from the ranges of `target`, which must make them equal; counts what would
/// not have been needed.
fn rebuild(mut rebuilt: Vec<u8>, target: &[u8], ranges: &[ByteRange], tally: &mut Tally) {
    rebuilt.resize(target.len(), 0);
    for range in ranges {
        let span = within(target, *range);
        let blocks = rebuilt[span.clone()].chunks(BLOCK).zip(target[span.clone()].chunks(BLOCK));
        for (before, after) in blocks {
            tally.reported += 1;
            tally.needless += u64::from(before == after);
        }
        rebuilt[span.clone()].copy_from_slice(&target[span]);
    }
    assert!(rebuilt == target, "a changed block was missed");
}

fn check_pair(
    pool: &ImagePool,
    rng: &mut Rng,
    base: &SnapshotRecord,
    target: &SnapshotRecord,
    tally: &mut Tally,
) {
    let [before, after] =
        [base, target].map(|snapshot| fs::read(snapshot_data_of(pool, &snapshot.id)).unwrap());
    let ranges = changed(pool, base, target, 0);
    assert_rising(&ranges, target.size_bytes);
    rebuild(before, &after, &ranges, tally);
    tally.pairs += 1;

    let holding = allocated(pool, target, 0);
    assert_rising(&holding, target.size_bytes);
    rebuild(Vec::new(), &after, &holding, &mut Tally::default());

    let start = rng.u64(..target.size_bytes + 1);
    assert_eq!(changed(pool, base, target, start), clipped(&ranges, start));
    assert_eq!(allocated(pool, target, start), clipped(&holding, start));
}

fn check_seed(testbed: &Testbed, pool: &ImagePool, seed: u64, tally: &mut Tally) {
    let mut rng = Rng::with_seed(seed);
    let thick = rng.u64(..4) == 0;
    let new = if thick { thick_volume_of } else { volume_of };
    let mut volume = create(pool, &new(pool, "v", START_BYTES));
    let mut snapshots: Vec<SnapshotRecord> = Vec::new();
    for round in 0..3 {
        apply_changes(&mut rng, pool, &mut volume);
        snapshots.push(snapshot(pool, &format!("s{round}"), &volume));
    }
    apply_changes(&mut rng, pool, &mut volume);
    pool.provisioner().ensure_no_volume(&volume.id).unwrap();
    for (base, target) in [(0, 1), (1, 2), (0, 2), (2, 2)] {
        check_pair(pool, &mut rng, &snapshots[base], &snapshots[target], tally);
    }
    for taken in snapshots {
        pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    }
    assert!(listing(testbed, "trash").is_empty());
}

/// `ORLOP_TEST_SEEDS` asks for more.
fn check_seeds(testbed: Option<Testbed>, name: &str, seeds: u64) {
    let Some(testbed) = testbed else { return };
    let asked = std::env::var("ORLOP_TEST_SEEDS").ok();
    let seeds = asked.map_or(seeds, |count| count.parse().unwrap());
    let pool = testbed.open();
    let mut tally = Tally::default();
    for seed in 0..seeds {
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check_seed(&testbed, &pool, seed, &mut tally);
        }));
        assert!(lived.is_ok(), "{name}: seed {seed}");
    }
    println!("{name}: {tally}");
    assert_eq!(tally.pairs, 4 * seeds);
}

#[test]
fn no_change_is_missed_on_xfs() {
    check_seeds(Testbed::xfs(), "xfs", 100);
}

#[test]
fn no_change_is_missed_on_btrfs() {
    check_seeds(Testbed::btrfs(), "btrfs", 100);
}

#[test]
fn no_change_is_missed_on_compressed_btrfs() {
    check_seeds(Testbed::btrfs_compressed(), "btrfs, compressed", 20);
}

#[test]
fn no_change_is_missed_on_ext4() {
    check_seeds(Testbed::ext4(), "ext4", 20);
}
