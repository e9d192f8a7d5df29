//! Random histories of a volume: no change is ever missed.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use orlop_model::{DeviceAccess, VolumeRecord};
use rustix::fs::{FallocateFlags, fallocate};

use super::*;

const BLOCK: usize = 4096;
const START_BYTES: u64 = 2 * MIB;
const GROWTH: u64 = MIB;

/// SplitMix64: enough for a test, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Mostly whole blocks, sometimes whatever; never empty.
    fn range(&mut self, size: u64) -> ByteRange {
        let unit = if self.below(4) == 0 { 1 } else { 4096 };
        let longest = if self.below(4) == 0 { size } else { 64 << 10 };
        let start = self.below(size / unit) * unit;
        let length = (1 + self.below(longest)).div_ceil(unit) * unit;
        range(start, length.min(size - start))
    }
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
fn change(dice: &mut Dice, file: &File, size: u64) {
    let at = dice.range(size);
    let allocate = |mode| {
        let _ = fallocate(file, mode, at.start, at.length);
    };
    match dice.below(8) {
        0 => file.write_all_at(&vec![0; usize::try_from(at.length).unwrap()], at.start).unwrap(),
        1 => allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
        2 => allocate(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE),
        3 => allocate(FallocateFlags::KEEP_SIZE),
        4 => file.sync_data().unwrap(),
        _ => file.write_all_at(&pattern(dice.next(), at.length), at.start).unwrap(),
    }
}

/// Sometimes through the volume's device.
fn live_a_while(dice: &mut Dice, pool: &ImagePool, volume: &mut VolumeRecord) {
    if dice.below(4) == 0 {
        let grown = volume.capacity_bytes + GROWTH;
        *volume = pool.provisioner().ensure_capacity(&volume.id, grown).unwrap();
    }
    let attached = dice.below(4) == 0;
    let path = if attached {
        pool.devices().ensure_attached(&volume.id, DeviceAccess::ReadWrite).unwrap().path
    } else {
        data_of(pool, &volume.id)
    };
    let file = OpenOptions::new().write(true).open(path).unwrap();
    for _ in 0..=dice.below(12) {
        change(dice, &file, volume.capacity_bytes);
    }
    // As the engine does before it cuts.
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
    dice: &mut Dice,
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

    let start = dice.below(target.size_bytes + 1);
    assert_eq!(changed(pool, base, target, start), clipped(&ranges, start));
    assert_eq!(allocated(pool, target, start), clipped(&holding, start));
}

fn live(bed: &Bed, pool: &ImagePool, seed: u64, tally: &mut Tally) {
    let mut dice = Dice(seed);
    let thick = dice.below(4) == 0;
    let new = if thick { thick_volume_of } else { volume_of };
    let mut volume = create(pool, &new(pool, "v", START_BYTES));
    let mut snapshots: Vec<SnapshotRecord> = Vec::new();
    for round in 0..3 {
        live_a_while(&mut dice, pool, &mut volume);
        snapshots.push(snapshot(pool, &format!("s{round}"), &volume));
    }
    live_a_while(&mut dice, pool, &mut volume);
    pool.provisioner().ensure_no_volume(&volume.id).unwrap();
    for (base, target) in [(0, 1), (1, 2), (0, 2), (2, 2)] {
        check_pair(pool, &mut dice, &snapshots[base], &snapshots[target], tally);
    }
    for taken in snapshots {
        pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    }
    assert!(listing(bed, "trash").is_empty());
}

/// `ORLOP_TEST_SEEDS` asks for more.
fn live_many(bed: Option<Bed>, name: &str, seeds: u64) {
    let Some(bed) = bed else { return };
    let asked = std::env::var("ORLOP_TEST_SEEDS").ok();
    let seeds = asked.map_or(seeds, |count| count.parse().unwrap());
    let pool = bed.open();
    let mut tally = Tally::default();
    for seed in 0..seeds {
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            live(&bed, &pool, seed, &mut tally);
        }));
        assert!(lived.is_ok(), "{name}: seed {seed}");
    }
    println!("{name}: {tally}");
    assert_eq!(tally.pairs, 4 * seeds);
}

#[test]
fn no_change_is_missed_on_xfs() {
    live_many(Bed::xfs(), "xfs", 100);
}

#[test]
fn no_change_is_missed_on_btrfs() {
    live_many(Bed::btrfs(), "btrfs", 100);
}

#[test]
fn no_change_is_missed_on_compressed_btrfs() {
    live_many(Bed::btrfs_compressed(), "btrfs, compressed", 20);
}

#[test]
fn no_change_is_missed_on_ext4() {
    live_many(Bed::ext4(), "ext4", 20);
}
