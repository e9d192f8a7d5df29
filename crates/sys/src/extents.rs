//! Where the data of a file lies on its device.
//!
//! Two files of one filesystem that map a range to the same address hold the same data there,
//! as long as both are open and nothing writes to them: what one of them still holds is not freed,
//! so its place is not used again.

use std::fs::File;

use rustix::io::{Errno, retry_on_intr};

use crate::abi::{
    ExtentPage, FIEMAP_EXTENT_LAST, FIEMAP_EXTENT_MERGED, FIEMAP_EXTENT_SHARED,
    FIEMAP_EXTENT_UNWRITTEN, FiemapExtent,
};
use crate::error::{Context, Error, Result};

/// Flags that leave an address exact. All others, also those that a later kernel may invent, mean
/// that data was moved, packed or not yet placed.
const EXACT_FLAGS: u32 =
    FIEMAP_EXTENT_LAST | FIEMAP_EXTENT_UNWRITTEN | FIEMAP_EXTENT_MERGED | FIEMAP_EXTENT_SHARED;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub logical: u64,
    /// Means something for [`ExtentKind::Data`] only.
    pub physical: u64,
    pub length: u64,
    pub kind: ExtentKind,
    /// Another file has it too, so that it stays when this file is deleted.
    pub is_shared: bool,
}

impl Extent {
    pub fn end(&self) -> u64 {
        self.logical.saturating_add(self.length)
    }

    fn new(reported: &FiemapExtent) -> Self {
        let has = |flag| reported.flags & flag != 0;
        let kind = if has(!EXACT_FLAGS) {
            ExtentKind::Inexact
        } else if has(FIEMAP_EXTENT_UNWRITTEN) {
            ExtentKind::Unwritten
        } else {
            ExtentKind::Data
        };
        let FiemapExtent { logical, physical, length, .. } = *reported;
        Self { logical, physical, length, kind, is_shared: has(FIEMAP_EXTENT_SHARED) }
    }

    /// Without what lies before `start`; `None` if nothing is left.
    fn cut_before(self, start: u64) -> Option<Self> {
        let cut = start.saturating_sub(self.logical);
        let length = self.length.checked_sub(cut).filter(|left| *left > 0)?;
        Some(Self {
            logical: self.logical.saturating_add(cut),
            physical: self.physical.saturating_add(cut),
            length,
            ..self
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtentKind {
    /// Two extents of one address hold the same.
    Data,
    /// Space without contents: reads as zeroes, like a hole.
    Unwritten,
    /// Data, but the address proves nothing: compressed, inline, not yet written.
    Inexact,
}

/// The extents of `file` from `start` on, in rising order and without overlap; what lies before
/// `start` is left out. What is in no extent is a hole. The last ones may reach past the end of
/// the file, where space can be reserved.
///
/// The map is read in pages, so memory does not grow with the file. Of a file that is written to
/// in that time the pages are of different instants.
pub fn extents(file: File, start: u64) -> Extents {
    Extents { file, page: ExtentPage::empty(), next_in_page: 0, position: start, complete: false }
}

pub struct Extents {
    file: File,
    page: ExtentPage,
    next_in_page: usize,
    /// All before this was reported.
    position: u64,
    /// The page is the last one.
    complete: bool,
}

impl Extents {
    fn next_of_page(&mut self) -> Option<Extent> {
        while let Some(reported) = self.page.extents().get(self.next_in_page) {
            self.next_in_page += 1;
            if let Some(extent) = Extent::new(reported).cut_before(self.position) {
                self.position = extent.end();
                return Some(extent);
            }
        }
        None
    }

    fn read_page(&mut self) -> Result<()> {
        self.next_in_page = 0;
        let (file, position) = (&self.file, self.position);
        match retry_on_intr(|| self.page.read(file, position)) {
            Ok(()) => {}
            // Further on than any file of this filesystem can reach.
            Err(Errno::FBIG) => {
                self.complete = true;
                return Ok(());
            }
            Err(errno) => return Err(errno).on_fd("map the extents of", file),
        }
        let Some(last) = self.page.extents().last() else {
            self.complete = true;
            return Ok(());
        };
        self.complete = last.flags & FIEMAP_EXTENT_LAST != 0;
        if !self.complete && Extent::new(last).end() <= position {
            // To stop here would pass over data, to go on would never end.
            let path = crate::resolve::path_of(file);
            return Err(Error::refused("map the extents of", &path, "the map does not advance"));
        }
        Ok(())
    }
}

impl Iterator for Extents {
    type Item = Result<Extent>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(extent) = self.next_of_page() {
                return Some(Ok(extent));
            }
            if self.complete {
                return None;
            }
            if let Err(error) = self.read_page() {
                self.complete = true;
                // The page may be half-filled.
                self.next_in_page = usize::MAX;
                return Some(Err(error));
            }
        }
    }
}

#[cfg(test)]
mod tests;
