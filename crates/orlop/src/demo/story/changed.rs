//! The blocks that changed between two snapshots, as a backup program asks for them.

use std::fs::File;
use std::ops::Range;

use orlop_model::Bytes;
use orlop_sys::extents::{ExtentKind, extents};

use super::Scene;
use crate::demo::failure::{Failure, check};

const COLUMNS: u64 = 56;

impl Scene<'_> {
    /// `overwritten` are ranges of the file, which has to be found again among the blocks of the volume.
    pub(super) fn show_changed(
        &mut self,
        first: &str,
        overwritten: &[Range<u64>],
    ) -> Result<(), Failure> {
        self.screen.begin("changed");
        let after = self.calls.snapshot("after", &self.data)?;
        let changed = self.calls.changed(first, &after)?;
        let written = self.places_of(overwritten)?;
        let missed = written.iter().find(|place| !is_covered(place, &changed));
        check(missed.is_none(), || {
            format!("bytes {missed:?} of the volume were written, and are not reported")
        })?;
        let sum = |lengths: &mut dyn Iterator<Item = u64>| lengths.sum::<u64>();
        let reported = sum(&mut changed.iter().map(|(_, length)| *length));
        let real = sum(&mut written.iter().map(|place| place.end - place.start));
        // Logs and tables of the filesystem change as well; most of the volume did not.
        check(reported < real + self.data.bytes / 4, || {
            format!("{} are reported of {} that were written", Bytes(reported), Bytes(real))
        })?;
        let text = format!(
            "{} of {} since the first snapshot, {} of them overwritten data\n{}",
            Bytes(reported),
            Bytes(self.data.bytes),
            Bytes(real),
            bar(&changed, self.data.bytes)
        );
        self.screen.done(&text)
    }

    /// Where ranges of the file lie in the volume.
    fn places_of(&self, ranges: &[Range<u64>]) -> Result<Vec<Range<u64>>, Failure> {
        let cannot = || "find the data of a file in its volume";
        let file = File::open(self.path()).map_err(Failure::cannot(cannot()))?;
        let mut places = Vec::new();
        for extent in extents(file, 0) {
            let extent = extent.map_err(Failure::cannot(cannot()))?;
            check(extent.kind == ExtentKind::Data, || {
                "the data has no place in the volume".to_owned()
            })?;
            for range in ranges {
                let (start, end) = (range.start.max(extent.logical), range.end.min(extent.end()));
                if start < end {
                    let place = extent.physical + (start - extent.logical);
                    places.push(place..place + (end - start));
                }
            }
        }
        Ok(places)
    }
}

/// Ranges may touch each other.
fn is_covered(place: &Range<u64>, ranges: &[(u64, u64)]) -> bool {
    let mut reached = place.start;
    for (offset, length) in ranges {
        if *offset <= reached {
            reached = reached.max(offset + length);
        }
    }
    reached >= place.end
}

/// One column for an equal part of the volume: unchanged, partly, wholly changed.
fn bar(changed: &[(u64, u64)], bytes: u64) -> String {
    let part = bytes.div_ceil(COLUMNS).max(1);
    let column = |number: u64| {
        let (start, end) = (number * part, ((number + 1) * part).min(bytes));
        let overlap = |(offset, length): &(u64, u64)| {
            (offset + length).min(end).saturating_sub((*offset).max(start))
        };
        match changed.iter().map(overlap).sum::<u64>() {
            0 => '░',
            some if some < (end - start) / 10 * 9 => '▒',
            _ => '█',
        }
    };
    (0..bytes.div_ceil(part)).map(column).collect()
}

#[cfg(test)]
mod tests;
