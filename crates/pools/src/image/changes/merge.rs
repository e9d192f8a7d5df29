//! Ranges that touch each other, told as one.

use orlop_model::{ByteRange, Result};

pub(super) struct Merged<Parts> {
    parts: Parts,
    /// May still grow.
    last: Option<ByteRange>,
    failed: bool,
}

impl<Parts: Iterator<Item = Result<ByteRange>>> Merged<Parts> {
    pub(super) fn new(parts: Parts) -> Self {
        Self { parts, last: None, failed: false }
    }
}

impl<Parts: Iterator<Item = Result<ByteRange>>> Iterator for Merged<Parts> {
    type Item = Result<ByteRange>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            match self.parts.next() {
                None => break,
                Some(Err(error)) => {
                    // A range that may have more to it is not told: the reader comes back for it.
                    self.failed = true;
                    self.last = None;
                    return Some(Err(error));
                }
                Some(Ok(part)) => match &mut self.last {
                    Some(last) if last.end() == part.start => last.length += part.length,
                    last => {
                        if let Some(whole) = last.replace(part) {
                            return Some(Ok(whole));
                        }
                    }
                },
            }
        }
        self.last.take().map(Ok)
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
    fn what_touches_becomes_one() {
        let parts = [range(0, 4), range(4, 4), range(10, 2), range(12, 1), range(20, 1)];
        let merged: Vec<_> = Merged::new(parts.into_iter().map(Ok)).map(Result::unwrap).collect();
        assert_eq!(merged, [range(0, 8), range(10, 3), range(20, 1)]);
    }

    #[test]
    fn an_error_is_the_end() {
        let parts = [Ok(range(0, 4)), Err(Error::Starting), Ok(range(8, 4))];
        let merged: Vec<_> = Merged::new(parts.into_iter()).collect();
        assert_eq!(merged, [Err(Error::Starting)]);
    }
}
