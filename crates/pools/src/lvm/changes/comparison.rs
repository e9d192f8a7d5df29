//! What differs between the mappings of two thin devices.

use std::ops::Range;

use super::block::{Blocks, Counted, Read};
use super::tree::{Part, Walk};

/// How much is done at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    pub(super) blocks: usize,
    pub(super) ranges: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Of chunks, in rising order; they do not touch each other.
    pub(super) ranges: Vec<Range<u64>>,
    /// The chunk to go on from. `None`: that was all.
    pub(super) next: Option<u64>,
}

/// Which of the chunks are mapped differently in two trees, given by their roots; without a base, which are mapped.
/// A batch gets at least one chunk further.
pub(super) fn changed_chunks(
    blocks: &mut impl Blocks,
    (base, target): (Option<u64>, u64),
    chunks: Range<u64>,
    limits: BatchLimits,
) -> Read<Batch> {
    let mut blocks = Counted { blocks, count: 0 };
    let base = match base {
        Some(base) => Walk::new(&mut blocks, base, chunks.start)?,
        None => Walk::nothing(),
    };
    let mut comparison = Comparison::new(base, Walk::new(&mut blocks, target, chunks.start)?);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    loop {
        let Some(position) = comparison.position().filter(|chunk| *chunk < chunks.end) else {
            return Ok(Batch { ranges, next: None });
        };
        let is_enough = blocks.count >= limits.blocks || ranges.len() >= limits.ranges;
        if is_enough && position > chunks.start {
            return Ok(Batch { ranges, next: Some(position) });
        }
        if let Some(chunk) = comparison.step(&mut blocks)? {
            match ranges.last_mut() {
                Some(last) if last.end == chunk => last.end += 1,
                Some(_) | None => ranges.push(chunk..chunk + 1),
            }
        }
    }
}

/// Two walks side by side. Parts that are the same for both are passed without being read, so the cost grows with what
/// changed between two snapshots.
#[derive(Debug)]
struct Comparison {
    base: Walk,
    target: Walk,
}

impl Comparison {
    fn new(base: Walk, target: Walk) -> Self {
        Self { base, target }
    }

    /// All before it was compared. `None`: all was.
    fn position(&self) -> Option<u64> {
        let next = [&self.base, &self.target].map(Walk::next);
        next.into_iter().flatten().map(|part| part.from).min()
    }

    /// Passes a mapping, or what both have, or reads the next node of one of them. A chunk is returned that is mapped
    /// differently, or by one of them only.
    fn step(&mut self, blocks: &mut impl Blocks) -> Read<Option<u64>> {
        match (self.base.next(), self.target.next()) {
            (None, None) => {}
            (Some(base), None) => return pass_alone(&mut self.base, base, blocks),
            (None, Some(target)) => return pass_alone(&mut self.target, target, blocks),
            (Some(base), Some(target)) if base.is_same(&target) => {
                self.base.pass();
                self.target.pass();
            }
            (Some(base), Some(target)) if base.is_before(&target) => {
                return pass_alone(&mut self.base, base, blocks);
            }
            (Some(base), Some(target)) if target.is_before(&base) => {
                return pass_alone(&mut self.target, target, blocks);
            }
            (Some(base), Some(target)) if base.height > target.height => self.base.open(blocks)?,
            (Some(base), Some(target)) if base.height < target.height => {
                self.target.open(blocks)?
            }
            // Two mappings that overlap are of one chunk.
            (Some(base), Some(_)) if base.height == 0 => {
                self.base.pass();
                self.target.pass();
                return Ok(Some(base.from));
            }
            (Some(_), Some(_)) => {
                self.base.open(blocks)?;
                self.target.open(blocks)?;
            }
        }
        Ok(None)
    }
}

/// The other device has nothing there.
fn pass_alone(walk: &mut Walk, part: Part, blocks: &mut impl Blocks) -> Read<Option<u64>> {
    if part.height > 0 {
        walk.open(blocks)?;
        return Ok(None);
    }
    walk.pass();
    Ok(Some(part.from))
}

#[cfg(test)]
mod tests;
