//! Two maps laid over each other.

use orlop_model::{ByteRange, Result};

use super::map::{DataMap, ExtentContent, Piece};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Same,
    Different,
    /// Only the data itself can tell.
    Unknown,
}

/// `None` is a hole. Data over a hole counts as different without being read: it was written.
fn compare(base: Option<ExtentContent>, target: Option<ExtentContent>) -> Comparison {
    match (base, target) {
        (None, None) => Comparison::Same,
        (Some(ExtentContent::At(base)), Some(ExtentContent::At(target))) if base == target => {
            Comparison::Same
        }
        (Some(ExtentContent::Unplaced), _) | (_, Some(ExtentContent::Unplaced)) => {
            Comparison::Unknown
        }
        (Some(ExtentContent::At(_)), _) | (_, Some(ExtentContent::At(_))) => Comparison::Different,
    }
}

/// The stretches in which neither map changes, but for those where both have holes.
pub(super) struct Overlay {
    base: Cursor,
    target: Cursor,
    position: u64,
}

impl Overlay {
    pub(super) fn new(base: DataMap, target: DataMap) -> Self {
        Self { base: Cursor::new(base), target: Cursor::new(target), position: 0 }
    }

    pub(super) fn next_range(&mut self) -> Result<Option<(ByteRange, Comparison)>> {
        let ahead = [self.base.ahead(self.position)?, self.target.ahead(self.position)?];
        let pieces = || ahead.iter().flatten();
        let Some(start) = pieces().map(|piece| piece.range.start).min() else {
            return Ok(None);
        };
        let change = |piece: &Piece| match piece.range.start {
            begin if begin > start => begin,
            _ => piece.range.end(),
        };
        let end = pieces().map(change).min().unwrap_or(start);
        let [base, target] =
            ahead.map(|piece| piece.filter(|piece| piece.range.start == start).map(|p| p.content));
        self.position = end;
        Ok(Some((ByteRange { start, length: end - start }, compare(base, target))))
    }
}

/// A map and the piece of it that was not passed yet.
struct Cursor {
    map: DataMap,
    piece: Option<Piece>,
}

impl Cursor {
    fn new(map: DataMap) -> Self {
        Self { map, piece: None }
    }

    /// The first piece at or after `position`.
    fn ahead(&mut self, position: u64) -> Result<Option<Piece>> {
        self.piece = self.piece.and_then(|piece| piece.from(position));
        while self.piece.is_none() {
            match self.map.next() {
                Some(piece) => self.piece = piece?.from(position),
                None => break,
            }
        }
        Ok(self.piece)
    }
}
