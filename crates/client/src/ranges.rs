//! Ranges of a snapshot's blocks: as a list, in total, and as a bar of the volume's width.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Range {
    pub(crate) offset: u64,
    pub(crate) size_bytes: u64,
}

impl Range {
    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(self.size_bytes)
    }
}

/// Neighbours become one; they come in order, as CSI demands.
pub(crate) fn push(ranges: &mut Vec<Range>, next: Range) {
    match ranges.last_mut() {
        Some(last) if last.end() == next.offset => last.size_bytes += next.size_bytes,
        Some(_) | None => ranges.push(next),
    }
}

pub(crate) fn total(ranges: &[Range]) -> u64 {
    ranges.iter().map(|range| range.size_bytes).sum()
}

/// One character for each part of the volume: how much of it is in the ranges.
pub(crate) fn bar(ranges: &[Range], capacity: u64, width: u64) -> String {
    (0..width).map(|cell| shade(covered(ranges, capacity, cell, width))).collect()
}

/// Bytes of the ranges in a cell, and the bytes of the cell.
fn covered(ranges: &[Range], capacity: u64, cell: u64, width: u64) -> (u64, u64) {
    let edge = |cell: u64| {
        let at = u128::from(capacity) * u128::from(cell) / u128::from(width.max(1));
        u64::try_from(at).unwrap_or(u64::MAX)
    };
    let (from, to) = (edge(cell), edge(cell + 1));
    let overlap = |range: &Range| range.end().min(to).saturating_sub(range.offset.max(from));
    (ranges.iter().map(overlap).sum(), to - from)
}

fn shade((bytes, of): (u64, u64)) -> char {
    match bytes {
        0 => '·',
        bytes if bytes.saturating_mul(4) < of => '░',
        bytes if bytes.saturating_mul(2) < of => '▒',
        bytes if bytes < of => '▓',
        _ => '█',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, size_bytes: u64) -> Range {
        Range { offset, size_bytes }
    }

    #[test]
    fn a_bar_shows_how_much_of_each_part() {
        let ranges = [range(0, 25), range(50, 1), range(75, 13)];
        assert_eq!(bar(&ranges, 100, 4), "█·░▓");
        assert_eq!(bar(&[], 100, 4), "····");
        assert_eq!(bar(&[range(0, 100)], 100, 3), "███");
        // A volume of fewer bytes than cells, and one without any.
        assert_eq!(bar(&[range(0, 2)], 2, 4).chars().count(), 4);
        assert_eq!(bar(&[], 0, 4).chars().count(), 4);
        // The smallest change is seen.
        assert_eq!(bar(&[range(1 << 40, 4096)], 2 << 40, 2), "·░");
    }

    #[test]
    fn neighbours_become_one() {
        let mut ranges = Vec::new();
        for (offset, size) in [(0, 10), (10, 5), (20, 5)] {
            push(&mut ranges, range(offset, size));
        }
        assert_eq!(ranges, [range(0, 15), range(20, 5)]);
        assert_eq!(total(&ranges), 20);
    }
}
