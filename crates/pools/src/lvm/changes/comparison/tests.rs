use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::*;
use crate::lvm::changes::testbed::Written;

type Mappings = BTreeMap<u64, u64>;

const ALL: BatchLimits = BatchLimits { blocks: usize::MAX, ranges: usize::MAX };

/// All batches, as chunks.
fn compare(
    written: &mut Written,
    trees: (Option<u64>, u64),
    chunks: Range<u64>,
    limits: BatchLimits,
) -> Vec<u64> {
    let (mut found, mut next) = (Vec::new(), Some(chunks.start));
    while let Some(start) = next {
        let batch = changed_chunks(written, trees, start..chunks.end, limits).unwrap();
        assert!(batch.ranges.iter().all(|range| range.start < range.end && range.start >= start));
        assert!(batch.ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{batch:?}");
        assert!(batch.next.is_none_or(|next| next > start), "{batch:?} gets no further");
        assert!(batch.ranges.len() <= limits.ranges.saturating_add(1), "{batch:?}");
        found.extend(batch.ranges.into_iter().flatten());
        next = batch.next;
    }
    found
}

fn expected(base: &Mappings, target: &Mappings, chunks: Range<u64>) -> Vec<u64> {
    let keys: BTreeSet<u64> = base.keys().chain(target.keys()).copied().collect();
    let differs = |key: &u64| base.get(key) != target.get(key);
    keys.range(chunks).copied().filter(differs).collect()
}

/// As workloads do: runs of chunks that are written or discarded.
fn change(rng: &mut Rng, mappings: &mut Mappings, next: &mut u64, size: u64) {
    for _ in 0..rng.u64(0..6) {
        let start = rng.u64(0..size);
        let end = (start + rng.u64(1..=1 + size / 8)).min(size);
        let is_discard = rng.u64(0..4) == 0;
        for chunk in start..end {
            if is_discard {
                mappings.remove(&chunk);
            } else {
                *next += 1;
                mappings.insert(chunk, *next);
            }
        }
    }
}

#[test]
fn random_trees_differ_where_their_mappings_do() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let largest = [10, 100, 500][rng.usize(0..3)];
        let size = rng.u64(1..=largest);
        let (mut written, mut next) = (Written::default(), 0);
        let mut base = Mappings::new();
        change(&mut rng, &mut base, &mut next, size);
        let mut target = base.clone();
        change(&mut rng, &mut target, &mut next, size);
        let trees = (written.tree(&base), written.tree(&target));
        let limits = BatchLimits { blocks: rng.usize(0..40), ranges: rng.usize(1..20) };
        for limits in [ALL, limits] {
            let start = rng.u64(0..size);
            for chunks in [0..u64::MAX, start..start + rng.u64(0..size)] {
                let found = compare(&mut written, (Some(trees.0), trees.1), chunks.clone(), limits);
                assert_eq!(found, expected(&base, &target, chunks.clone()), "seed {seed}");
                let found = compare(&mut written, (None, trees.1), chunks.clone(), limits);
                let all: Vec<u64> = target.range(chunks).map(|(chunk, _)| *chunk).collect();
                assert_eq!(found, all, "seed {seed}");
            }
        }
    }
}

/// No pool has that; it would be a change of both places.
#[test]
fn chunk_that_is_mapped_elsewhere_is_no_shared_one() {
    let mut written = Written::default();
    let trees = [3, 7].map(|chunk| written.tree(&Mappings::from([(chunk, 9)])));
    let found = compare(&mut written, (Some(trees[0]), trees[1]), 0..u64::MAX, ALL);
    assert_eq!(found, [3, 7]);
}

/// And not with the size.
#[test]
fn cost_grows_with_what_changed() {
    let base: Mappings = (0..10_000).map(|chunk| (chunk, chunk)).collect();
    let mut written = Written::default();
    let before = written.tree(&base);
    let mut reads = |target: &Mappings| {
        let after = written.tree(target);
        written.reads = 0;
        let found = compare(&mut written, (Some(before), after), 0..u64::MAX, ALL);
        assert_eq!(found, expected(&base, target, 0..u64::MAX));
        written.reads
    };
    assert!(written_nodes(&base) > 1000);
    // The way down to a leaf, in both trees.
    let unchanged = reads(&base);
    assert!(unchanged < 40, "{unchanged}");
    let mut target = base.clone();
    target.insert(5_000, 1_000_000);
    let one = reads(&target);
    assert!(one < 100, "{one}");
    target.extend((7_000..7_100).map(|chunk| (chunk, chunk + 1_000_000)));
    assert!(reads(&target) < 300);
}

fn written_nodes(mappings: &Mappings) -> usize {
    let mut written = Written::default();
    written.tree(mappings);
    written.blocks.len()
}
