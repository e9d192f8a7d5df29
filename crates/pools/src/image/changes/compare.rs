//! What differs: by the maps, and by reading where they cannot tell.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;

use orlop_model::{ByteRange, Result};

use super::Reading;
use super::overlay::{Comparison, Overlay};
use crate::image::failure::cannot;

/// How much is read at a time, and the unit in which differences are reported.
const STEP: usize = 64 << 10;
const BLOCK: usize = 4 << 10;
/// After so many steps read (4 MiB of each snapshot), or extents skipped, the iterator yields without a range, so that
/// the caller can check whether the answer is still wanted.
const MAX_STEPS_READ: usize = 64;
const MAX_EXTENTS_SKIPPED: usize = 1024;

pub(super) struct Changes {
    overlay: Overlay,
    base: Reading,
    target: Reading,
    /// Still to be read.
    doubtful: Option<ByteRange>,
    /// In the step that was read last.
    found: VecDeque<ByteRange>,
    buffers: [Vec<u8>; 2],
    /// Steps since the caller could last check that.
    read: usize,
    ended: bool,
}

enum Searched {
    Found(ByteRange),
    Nothing,
    Ended,
}

impl Changes {
    pub(super) fn new(overlay: Overlay, base: Reading, target: Reading) -> Self {
        Self {
            overlay,
            base,
            target,
            doubtful: None,
            found: VecDeque::new(),
            buffers: [Vec::new(), Vec::new()],
            read: 0,
            ended: false,
        }
    }

    fn search_on(&mut self) -> Result<Searched> {
        let mut skipped = 0;
        loop {
            if let Some(range) = self.found.pop_front() {
                return Ok(Searched::Found(range));
            }
            if self.read >= MAX_STEPS_READ || skipped >= MAX_EXTENTS_SKIPPED {
                self.read = 0;
                return Ok(Searched::Nothing);
            }
            if let Some(range) = self.doubtful.take() {
                self.read += 1;
                self.read_step(range)?;
                continue;
            }
            skipped += 1;
            match self.overlay.next_range()? {
                Some((range, Comparison::Different)) => return Ok(Searched::Found(range)),
                Some((range, Comparison::Unknown)) => self.doubtful = Some(range),
                Some((_, Comparison::Same)) => {}
                None => return Ok(Searched::Ended),
            }
        }
    }

    fn read_step(&mut self, range: ByteRange) -> Result<()> {
        let step = part_of(range, STEP);
        let rest = ByteRange { start: step.end(), length: range.length - step.length };
        self.doubtful = (rest.length > 0).then_some(rest);
        let [base, target] = &mut self.buffers;
        self.base.read_into(base, step)?;
        self.target.read_into(target, step)?;

        let mut left = step;
        let (mut base, mut target) = (base.as_slice(), target.as_slice());
        while left.length > 0 {
            let block = part_of(left, BLOCK);
            let (base_block, base_rest) = base.split_at(length_of(block));
            let (target_block, target_rest) = target.split_at(length_of(block));
            if base_block != target_block {
                self.found.push_back(block);
            }
            (base, target) = (base_rest, target_rest);
            left = ByteRange { start: block.end(), length: left.length - block.length };
        }
        Ok(())
    }
}

impl Iterator for Changes {
    type Item = Result<Option<ByteRange>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        match self.search_on() {
            Ok(Searched::Found(range)) => Some(Ok(Some(range))),
            Ok(Searched::Nothing) => Some(Ok(None)),
            Ok(Searched::Ended) => {
                self.ended = true;
                None
            }
            Err(error) => {
                self.ended = true;
                Some(Err(error))
            }
        }
    }
}

/// What of the range lies before the next multiple of `unit`.
fn part_of(range: ByteRange, unit: usize) -> ByteRange {
    let unit = u64::try_from(unit).unwrap_or(u64::MAX);
    let length = range.length.min(unit - range.start % unit);
    ByteRange { start: range.start, length }
}

/// The length of a range that is at most one step long.
fn length_of(range: ByteRange) -> usize {
    usize::try_from(range.length).unwrap_or(STEP)
}

impl Reading {
    /// Zeroes where it has ended.
    fn read_into(&self, buffer: &mut Vec<u8>, range: ByteRange) -> Result<()> {
        buffer.clear();
        buffer.resize(length_of(range), 0);
        let present = range.length.min(self.size.saturating_sub(range.start));
        let present = usize::try_from(present).unwrap_or(STEP);
        self.data
            .read_exact_at(&mut buffer[..present], range.start)
            .map_err(cannot(|| "read a snapshot's data".to_owned()))
    }
}
