//! What a volume holds instead of bytes: a tag, and a number for each block that was written.

use std::collections::BTreeMap;

use orlop_model::{ByteRange, Error, Result};

pub(super) const BLOCK: u64 = 4096;

/// The number of a block that holds zeroes.
const ZEROES: u64 = 0;

#[derive(Debug, Clone, Default)]
pub(super) struct MemoryContent {
    pub(super) tag: String,
    /// Every write gives its blocks another number.
    blocks: BTreeMap<u64, u64>,
    writes: u64,
}

impl MemoryContent {
    pub(super) fn write(&mut self, range: ByteRange, size: u64) -> Result<()> {
        self.writes += 1;
        self.set(range, size, self.writes)
    }

    pub(super) fn write_zeroes(&mut self, range: ByteRange, size: u64) -> Result<()> {
        self.set(range, size, ZEROES)
    }

    fn set(&mut self, range: ByteRange, size: u64, number: u64) -> Result<()> {
        if range.end() > size {
            return Err(Error::OutOfRange(format!("the volume ends at {size}")));
        }
        let touched = range.start / BLOCK..range.end().div_ceil(BLOCK);
        self.blocks.extend(touched.map(|block| (block, number)));
        Ok(())
    }

    pub(super) fn drop_zeroes(&mut self) {
        self.blocks.retain(|_, number| *number != ZEROES);
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.blocks.keys().map(|_| BLOCK).sum()
    }

    pub(super) fn allocated(&self) -> Vec<ByteRange> {
        ranges_of(self.blocks.keys().copied())
    }

    pub(super) fn changed_since(&self, base: &Self) -> Vec<ByteRange> {
        let changed = |block: &&u64| base.blocks.get(block) != self.blocks.get(block);
        let mut blocks: Vec<u64> = self.blocks.keys().filter(changed).copied().collect();
        blocks.extend(base.blocks.keys().filter(|block| !self.blocks.contains_key(block)));
        blocks.sort_unstable();
        ranges_of(blocks.into_iter())
    }
}

/// Of blocks in rising order; neighbours become one range.
fn ranges_of(blocks: impl Iterator<Item = u64>) -> Vec<ByteRange> {
    let mut ranges: Vec<ByteRange> = Vec::new();
    for start in blocks.map(|block| block * BLOCK) {
        match ranges.last_mut() {
            Some(last) if last.end() == start => last.length += BLOCK,
            Some(_) | None => ranges.push(ByteRange { start, length: BLOCK }),
        }
    }
    ranges
}

/// As the trait asks for: from `start` on, and not past the end.
pub(super) fn clipped(ranges: Vec<ByteRange>, start: u64, size: u64) -> Vec<ByteRange> {
    let clip = |range: ByteRange| {
        let (from, to) = (range.start.max(start), range.end().min(size));
        (from < to).then(|| ByteRange { start: from, length: to - from })
    };
    ranges.into_iter().filter_map(clip).collect()
}
