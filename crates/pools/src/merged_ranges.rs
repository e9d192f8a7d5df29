//! Merges ranges that touch each other into one.
//!
//! A step is bounded: what is wanted may be far away, or have no end in sight.

use orlop_model::{ByteRange, Result};

/// Parts that may be looked at in one step.
const PARTS: usize = 1024;

pub(crate) struct Merged<Parts> {
    parts: Parts,
    /// May still grow.
    last: Option<ByteRange>,
    failed: bool,
}

impl<Parts: Iterator<Item = Result<Option<ByteRange>>>> Merged<Parts> {
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts, last: None, failed: false }
    }
}

impl<Parts: Iterator<Item = Result<Option<ByteRange>>>> Iterator for Merged<Parts> {
    type Item = Result<Option<ByteRange>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        for _ in 0..PARTS {
            match self.parts.next() {
                None => return self.last.take().map(|last| Ok(Some(last))),
                Some(Ok(None)) => return Some(Ok(None)),
                Some(Err(error)) => {
                    // A range that may not be complete is not returned: the caller asks for it again.
                    self.failed = true;
                    self.last = None;
                    return Some(Err(error));
                }
                Some(Ok(Some(part))) => match &mut self.last {
                    Some(last) if last.end() == part.start => last.length += part.length,
                    last => {
                        if let Some(whole) = last.replace(part) {
                            return Some(Ok(Some(whole)));
                        }
                    }
                },
            }
        }
        Some(Ok(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_model::Error;

    fn range(start: u64, length: u64) -> ByteRange {
        ByteRange { start, length }
    }

    #[test]
    fn adjacent_ranges_are_merged() {
        let parts = [range(0, 4), range(4, 4), range(10, 2), range(12, 1), range(20, 1)];
        let parts = parts.into_iter().map(|part| Ok(Some(part)));
        let merged: Vec<_> = Merged::new(parts).filter_map(Result::unwrap).collect();
        assert_eq!(merged, [range(0, 8), range(10, 3), range(20, 1)]);
    }

    /// Else a caller could not call it off: the whole volume may be one range, or none.
    #[test]
    fn merge_step_is_bounded_and_lossless() {
        let parts = (0..10 * PARTS as u64).map(|part| Ok(Some(range(part, 1))));
        let mut merged = Merged::new(parts);
        assert_eq!(merged.next(), Some(Ok(None)));
        let rest: Vec<_> = merged.filter_map(Result::unwrap).collect();
        assert_eq!(rest, [range(0, 10 * PARTS as u64)]);

        let parts = [Ok(Some(range(0, 4))), Ok(None), Ok(Some(range(4, 4))), Ok(None)];
        let merged: Vec<_> = Merged::new(parts.into_iter()).map(Result::unwrap).collect();
        assert_eq!(merged, [None, None, Some(range(0, 8))]);
    }

    #[test]
    fn error_ends_the_ranges() {
        let parts = [Ok(Some(range(0, 4))), Err(Error::Starting), Ok(Some(range(8, 4)))];
        let merged: Vec<_> = Merged::new(parts.into_iter()).collect();
        assert_eq!(merged, [Err(Error::Starting)]);
    }
}
