//! Checks what was reported against the images.

use crate::delta::figures::Figures;
use crate::delta::reported_blocks::{Bytes, ReportedBlocks};

const BLOCK: usize = 4096;

/// The base, and on top of it from the target what is said to have changed: is it the target?
pub(crate) fn check_delta(
    base: &[u8],
    target: &[u8],
    reported: &ReportedBlocks,
    figures: &mut Figures,
) {
    // A volume never shrinks; what it grew by was zeroes.
    assert!(base.len() <= target.len());
    let mut before = vec![0; target.len()];
    before[..base.len()].copy_from_slice(base);
    for range in &reported.ranges {
        count(&before, target, range, figures);
    }
    let mut rebuilt = before;
    rebuilt[..reported.start].copy_from_slice(&target[..reported.start]);
    for range in &reported.ranges {
        rebuilt[range.clone()].copy_from_slice(&target[range.clone()]);
    }
    assert!(
        rebuilt == target,
        "the change at {:?} was missed; reported from {}: {:?}",
        rebuilt.iter().zip(target).position(|(ours, theirs)| ours != theirs),
        reported.start,
        reported.ranges
    );
    figures.deltas += 1;
    figures.empty += u64::from(reported.ranges.is_empty());
    figures.grown += u64::from(base.len() < target.len());
    figures.volume_bytes += wide(target.len());
}

fn count(before: &[u8], target: &[u8], range: &Bytes, figures: &mut Figures) {
    let blocks = || (range.start..range.end).step_by(BLOCK).map(|at| at..range.end.min(at + BLOCK));
    let is_same = |block: &Bytes| before[block.clone()] == target[block.clone()];
    let unchanged: usize = blocks().filter(is_same).map(|block| block.len()).sum();
    figures.ranges += 1;
    figures.reported_bytes += wide(range.len());
    figures.unchanged_bytes += wide(unchanged);
    figures.unchanged_ranges += u64::from(unchanged == range.len());
}

/// Is there nothing but zeroes where no data is said to be?
pub(crate) fn check_allocated(target: &[u8], reported: &ReportedBlocks) {
    let mut at = reported.start;
    let end = target.len()..target.len();
    for range in reported.ranges.iter().chain([&end]) {
        let gap = at..range.start.max(at);
        let data = target[gap.clone()].chunks(BLOCK).position(|chunk| !is_zero(chunk));
        assert_eq!(data, None, "data in {gap:?}, which is said to have none");
        at = range.end;
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    const ZEROES: [u8; BLOCK] = [0; BLOCK];
    bytes == &ZEROES[..bytes.len()]
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a size")
}

fn reported(range: Bytes) -> ReportedBlocks {
    let mut reported = ReportedBlocks::new(0, 0, 4 * BLOCK);
    reported.ranges.push(range);
    reported
}

fn image(second_block: u8) -> Vec<u8> {
    let mut image = vec![0; 4 * BLOCK];
    image[BLOCK..2 * BLOCK].fill(second_block);
    image
}

#[test]
fn unchanged_blocks_may_be_reported() {
    let mut figures = Figures::default();
    check_delta(&image(1), &image(2), &reported(0..2 * BLOCK), &mut figures);
    assert_eq!((figures.reported_bytes, figures.unchanged_bytes), (wide(2 * BLOCK), wide(BLOCK)));
}

#[test]
#[should_panic(expected = "was missed")]
fn a_missed_change_is_noticed() {
    check_delta(&image(1), &image(2), &reported(2 * BLOCK..3 * BLOCK), &mut Figures::default());
}

#[test]
#[should_panic(expected = "is said to have none")]
fn unreported_data_is_noticed() {
    check_allocated(&image(1), &reported(2 * BLOCK..3 * BLOCK));
}
