//! Where a file has data, piece by piece.

use std::fs::File;

use orlop_model::{ByteRange, Result};
use orlop_sys::extents::{Extent, ExtentKind, Extents, extents};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::image::failure::cannot;

/// A part of a file that may hold something else than zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) range: ByteRange,
    pub(super) content: ExtentContent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExtentContent {
    /// The piece begins at this address of the filesystem's device.
    At(u64),
    /// Its address is not known, or proves nothing.
    Unplaced,
}

impl Piece {
    /// What of it lies at or after `start`; `None` if nothing does.
    pub(super) fn from(self, start: u64) -> Option<Self> {
        let cut = start.saturating_sub(self.range.start);
        let length = self.range.length.checked_sub(cut).filter(|length| *length > 0)?;
        let content = match self.content {
            ExtentContent::At(address) => ExtentContent::At(address.saturating_add(cut)),
            ExtentContent::Unplaced => ExtentContent::Unplaced,
        };
        Some(Self { range: ByteRange { start: self.range.start + cut, length }, content })
    }

    fn until(self, end: u64) -> Option<Self> {
        let ByteRange { start, length } = self.range;
        let length = length.min(end.checked_sub(start)?);
        (length > 0).then_some(Self { range: ByteRange { start, length }, ..self })
    }
}

/// The pieces of a file between two offsets, in rising order. Read as they are asked for.
pub(super) struct DataMap {
    source: MapSource,
    position: u64,
    end: u64,
}

enum MapSource {
    Extents(Extents),
    /// By seeking from data to hole, which any filesystem offers; one that cannot tell says that
    /// all is data.
    Runs(File),
}

impl DataMap {
    pub(super) fn of_extents(file: File, start: u64, end: u64) -> Self {
        Self { source: MapSource::Extents(extents(file, start)), position: start, end }
    }

    pub(super) fn of_runs(file: File, start: u64, end: u64) -> Self {
        Self { source: MapSource::Runs(file), position: start, end }
    }

    fn next_piece(&mut self) -> Result<Option<Piece>> {
        while self.position < self.end {
            let found = match &mut self.source {
                MapSource::Extents(extents) => next_extent(extents)?,
                MapSource::Runs(file) => next_run(file, self.position)?,
            };
            let Some(found) = found else {
                self.position = self.end;
                return Ok(None);
            };
            let piece = found.from(self.position).and_then(|piece| piece.until(self.end));
            self.position = self.position.max(found.range.end());
            if piece.is_some() {
                return Ok(piece);
            }
        }
        Ok(None)
    }
}

impl Iterator for DataMap {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_piece().transpose()
    }
}

fn next_extent(extents: &mut Extents) -> Result<Option<Piece>> {
    for extent in extents.by_ref() {
        let Extent { logical, physical, length, kind, .. } =
            extent.map_err(cannot(|| "map the extents of a snapshot".to_owned()))?;
        let content = match kind {
            ExtentKind::Data => ExtentContent::At(physical),
            ExtentKind::Inexact => ExtentContent::Unplaced,
            ExtentKind::Unwritten => continue,
        };
        return Ok(Some(Piece { range: ByteRange { start: logical, length }, content }));
    }
    Ok(None)
}

fn next_run(file: &File, position: u64) -> Result<Option<Piece>> {
    let seeking = || "find the data in a snapshot".to_owned();
    let start = match seek(file, SeekFrom::Data(position)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(cannot(seeking)(std::io::Error::from(errno))),
    };
    let end =
        seek(file, SeekFrom::Hole(start)).map_err(std::io::Error::from).map_err(cannot(seeking))?;
    let range = ByteRange { start, length: end.saturating_sub(start) };
    Ok(Some(Piece { range, content: ExtentContent::Unplaced }))
}
