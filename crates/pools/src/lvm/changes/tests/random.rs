//! Random histories of thin devices: no change is ever missed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::FileExt;

use fastrand::Rng;
use orlop_model::ByteRange;
use orlop_sys::tool;

use super::super::comparison::BatchLimits;
use super::thin_devices::{CHUNK, ThinPool, ThinVolume};

const BLOCK: u64 = 4096;
const ALL: BatchLimits = BatchLimits { blocks: usize::MAX, ranges: usize::MAX };

fn assert_rising(ranges: &[ByteRange], (start, end): (u64, u64)) {
    assert!(ranges.iter().all(|it| it.length > 0 && it.start >= start && it.end() <= end));
    assert!(ranges.windows(2).all(|pair| pair[0].end() < pair[1].start), "{ranges:?}");
}

fn clipped(ranges: &[ByteRange], from: u64) -> Vec<ByteRange> {
    let after = ranges.iter().filter(|range| range.end() > from);
    let clip = |range: &ByteRange| {
        let start = range.start.max(from);
        ByteRange { start, length: range.end() - start }
    };
    after.map(clip).collect()
}

/// A snapshot, and what was on the volume when it was taken.
struct Taken {
    number: u64,
    data: Vec<u8>,
}

fn size_of(taken: &Taken) -> u64 {
    u64::try_from(taken.data.len()).unwrap()
}

/// Fills `rebuilt` from the ranges of `target`, which must make them equal.
fn rebuild(mut rebuilt: Vec<u8>, target: &Taken, ranges: &[ByteRange], seed: u64) {
    rebuilt.resize(target.data.len(), 0);
    for range in ranges {
        let [start, end] = [range.start, range.end()].map(|at| usize::try_from(at).unwrap());
        rebuilt[start..end].copy_from_slice(&target.data[start..end]);
    }
    assert!(rebuilt == target.data, "seed {seed}: a change was missed");
}

fn change(rng: &mut Rng, volume: &ThinVolume, size: u64) {
    for _ in 0..rng.u64(0..8) {
        let unit = [1, BLOCK, CHUNK][rng.usize(0..3)];
        let start = rng.u64(0..size / unit) * unit;
        let longest = if rng.u64(0..6) == 0 { size } else { CHUNK + BLOCK };
        let length = (1 + rng.u64(0..longest)).div_ceil(unit) * unit;
        let length = length.min(size / unit * unit - start);
        match rng.u64(0..5) {
            0 if unit == CHUNK => volume.discard(start, length),
            1 => volume.write(start, &vec![0; usize::try_from(length).unwrap()]),
            _ => {
                let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(1..)).take(512).collect();
                let bytes = bytes.repeat(usize::try_from(length.div_ceil(512)).unwrap());
                volume.write(start, &bytes[..usize::try_from(length).unwrap()]);
            }
        }
    }
}

fn check_pair(pool: &ThinPool, rng: &mut Rng, base: &Taken, target: &Taken, seed: u64) {
    let span = (0, size_of(target));
    let (of_base, of_target) = (Some(base.number), target.number);
    let changed = pool.ranges(of_base, of_target, span, ALL);
    assert_rising(&changed, span);
    rebuild(base.data.clone(), target, &changed, seed);

    // From anywhere; sometimes in batches of one range each, which costs the pool two commits for each.
    let limits = if seed.is_multiple_of(10) { BatchLimits { blocks: 0, ranges: 1 } } else { ALL };
    let from = rng.u64(0..=span.1);
    let found = pool.ranges(of_base, of_target, (from, span.1), limits);
    assert_eq!(found, clipped(&changed, from), "seed {seed}, from {from}");
}

/// `ORLOP_TEST_SEEDS` asks for more.
fn seeds(default: u64) -> u64 {
    std::env::var("ORLOP_TEST_SEEDS").map_or(default, |seeds| seeds.parse().unwrap())
}

#[test]
fn no_change_is_missed_on_thin_devices() {
    const SEEDS_PER_VOLUME: u64 = 25;
    let Some(mut pool) = ThinPool::new(1, 192) else { return };
    let largest = 24 * CHUNK;
    let (mut volume, mut taken): (Option<ThinVolume>, Vec<Taken>) = (None, Vec::new());
    let mut size = 0;
    let seeds = seeds(200);
    for seed in 0..seeds {
        let mut rng = Rng::with_seed(seed);
        if seed.is_multiple_of(SEEDS_PER_VOLUME) {
            drop(volume.take());
            for old in taken.drain(..) {
                pool.send(&format!("delete {}", old.number));
            }
            volume = Some(pool.create(largest));
            size = CHUNK + rng.u64(0..40) * BLOCK;
        }
        let volume = volume.as_ref().unwrap();
        change(&mut rng, volume, size);
        let mut data = volume.read();
        data.truncate(usize::try_from(size).unwrap());
        taken.push(Taken { number: pool.snapshot(volume), data });

        let target = taken.last().unwrap();
        let allocated = pool.ranges(None, target.number, (0, size), ALL);
        assert_rising(&allocated, (0, size));
        rebuild(Vec::new(), target, &allocated, seed);
        for _ in 0..2 {
            let base = &taken[rng.usize(..taken.len())];
            check_pair(&pool, &mut rng, base, target, seed);
        }
        // The volume grows between two snapshots, not always by whole chunks.
        if rng.u64(0..3) == 0 {
            size = (size + rng.u64(0..40) * BLOCK).min(largest);
        }
        // Other devices come and go, which moves nodes that these point to.
        if rng.u64(0..4) == 0 && taken.len() > 2 {
            let old = taken.swap_remove(rng.usize(..taken.len() - 1));
            pool.send(&format!("delete {}", old.number));
        }
    }
    check_devices(&pool, &taken);
    println!("{seeds} seeds");
}

/// What was read of the volume is what its snapshots hold.
fn check_devices(pool: &ThinPool, taken: &[Taken]) {
    assert!(!taken.is_empty());
    for snapshot in taken {
        let device = pool.activate(snapshot.number, size_of(snapshot).next_multiple_of(512));
        assert!(device.read()[..snapshot.data.len()] == snapshot.data);
    }
}

/// The chunks that are mapped, and by which write.
type Mapped = BTreeMap<u64, u64>;

/// Trees of several levels. That what is written is read again is for the test above; here each chunk that is reported has
/// changed, and the ranges are those of thin_delta.
#[test]
fn large_trees_differ_as_thin_delta_says() {
    let Some(mut pool) = ThinPool::new(2, 440) else { return };
    let chunks: u64 = 1 << 16;
    let volume = pool.create(chunks * CHUNK);
    let direct = volume.direct();
    let room = vec![7; 8192];
    let block = &room[room.as_ptr().align_offset(4096)..][..4096];
    let mut rng = Rng::with_seed(1);
    let (mut mapped, mut write) = (Mapped::new(), 0);
    let mut put = |chunk: u64, mapped: &mut Mapped| {
        direct.write_all_at(block, chunk * CHUNK).unwrap();
        write += 1;
        mapped.insert(chunk, write);
    };
    for index in 0..1500 {
        put(index * 40, &mut mapped);
    }
    let mut taken = vec![(pool.snapshot(&volume), mapped.clone())];
    for _ in 0..5 {
        for _ in 0..rng.u64(1..8) {
            let (start, length) = (rng.u64(..chunks - 64), rng.u64(1..24));
            if rng.u64(..3) == 0 {
                volume.discard(start * CHUNK, length * 30 * CHUNK);
                mapped.retain(|chunk, _| !(start..start + length * 30).contains(chunk));
            } else {
                (start..start + length).for_each(|chunk| put(chunk, &mut mapped));
            }
        }
        taken.push((pool.snapshot(&volume), mapped.clone()));
    }

    let span = (0, chunks * CHUNK);
    let mut with_oracle = 0;
    for (index, (target, of_target)) in taken.iter().enumerate() {
        let (base, of_base) = &taken[rng.usize(..=index)];
        for (base, of_base) in [(Some(*base), of_base), (None, &Mapped::new())] {
            let found = pool.ranges(base, *target, span, BatchLimits { blocks: 20, ranges: 400 });
            assert_eq!(found, differing(of_base, of_target), "{base:?} {target}");
        }
        if index % 3 == 2 {
            with_oracle += 1;
            let ours = pool.ranges(Some(*base), *target, span, ALL);
            assert_eq!(ours, thin_delta(&pool, *base, *target));
        }
    }
    assert_eq!(with_oracle, 2);
}

fn merged(chunks: impl Iterator<Item = u64>) -> Vec<ByteRange> {
    let mut ranges: Vec<ByteRange> = Vec::new();
    for chunk in chunks {
        match ranges.last_mut() {
            Some(last) if last.end() == chunk * CHUNK => last.length += CHUNK,
            Some(_) | None => ranges.push(ByteRange { start: chunk * CHUNK, length: CHUNK }),
        }
    }
    ranges
}

fn differing(base: &Mapped, target: &Mapped) -> Vec<ByteRange> {
    let mut chunks: Vec<u64> = base.keys().chain(target.keys()).copied().collect();
    chunks.sort_unstable();
    chunks.dedup();
    merged(chunks.into_iter().filter(|chunk| base.get(chunk) != target.get(chunk)))
}

/// As the tool of the kernel's developers finds them.
fn thin_delta(pool: &ThinPool, base: u64, target: u64) -> Vec<ByteRange> {
    let reserved = pool.metadata.reserve().unwrap();
    let (base, target) = (base.to_string(), target.to_string());
    let device = pool.metadata_device().display().to_string();
    let arguments = ["--metadata-snap", "--thin1", &base, "--thin2", &target, &device];
    let output = tool::run("thin_delta", arguments).unwrap();
    drop(reserved);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut seen = String::new();
    let mut chunks = Vec::new();
    for line in text.lines().map(str::trim) {
        let kind = line.trim_start_matches('<').split(' ').next().unwrap();
        if ["different", "left_only", "right_only"].contains(&kind) {
            let attribute = |name: &str| -> u64 {
                let value = line.split(name).nth(1).unwrap().trim_start_matches("=\"");
                value.split('"').next().unwrap().parse().unwrap()
            };
            let begin = attribute("begin");
            chunks.extend(begin..begin + attribute("length"));
        }
        write!(seen, "{kind} ").unwrap();
    }
    assert!(seen.contains("same") && seen.contains("diff"), "{seen}");
    merged(chunks.into_iter())
}
