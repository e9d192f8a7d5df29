//! Is an image as long as the record of its volume says?
//!
//! An image grows before its record does. So one that is shorter was shrunk by an operator, and the data at its
//! end is lost: growing it again would put zeroes there and hide that. One that is longer was left by an
//! interrupted expansion, and nothing was ever written past the end that the record says; or else the record
//! is that of an earlier time, and a device or a copy of that length would lack data.

use orlop_model::{Error, HealthReason, Problem, Result, VolumeRecord};
use orlop_sys::ceph::{Access, DiffExtent, Image, Written};

use super::super::layout::image_of;
use super::{Images, KnownImage};

/// As much is read at a time.
const PIECE: u64 = 4 << 20;

enum Length {
    AsRecorded,
    Short { bytes: u64 },
    Outdated { bytes: u64 },
}

impl Images {
    /// Before the volume is used or copied.
    pub(in super::super) fn check_length(&self, known: &KnownImage) -> Result<()> {
        let looking = || format!("read the size of volume {}", known.record.id);
        let bytes = self.session.ask(looking, |io| io.image_size(&known.image_id))?;
        match self.compare(known, bytes)? {
            Length::AsRecorded => Ok(()),
            Length::Short { bytes } => Err(shrunk(&known.record, bytes)),
            Length::Outdated { bytes } => Err(Error::precondition(outdated(&known.record, bytes))),
        }
    }

    /// For an image that has so many bytes.
    pub(in super::super) fn length_problem(
        &self,
        known: &KnownImage,
        bytes: u64,
    ) -> Result<Option<Problem>> {
        let record = &known.record;
        Ok(match self.compare(known, bytes)? {
            Length::AsRecorded => None,
            Length::Short { bytes } => {
                Some(Problem::new(HealthReason::BackingFileTruncated, shortage(record, bytes)))
            }
            Length::Outdated { bytes } => {
                Some(Problem::new(HealthReason::RecordOutdated, outdated(record, bytes)))
            }
        })
    }

    fn compare(&self, known: &KnownImage, bytes: u64) -> Result<Length> {
        let KnownImage { image_id, record, .. } = known;
        if bytes < record.capacity_bytes {
            return Ok(Length::Short { bytes });
        }
        if bytes == record.capacity_bytes {
            return Ok(Length::AsRecorded);
        }
        let past = (record.capacity_bytes, bytes - record.capacity_bytes);
        let looking = || format!("inspect the data of volume {}", record.id);
        let has_more = self.session.ask(looking, |io| {
            holds_data(&io.open_image_by_id(image_id, None, Access::ReadOnly)?, past)
        })?;
        // Another process may have expanded it in between, and a workload have written to it then.
        let is_current =
            || Ok(self.require(&record.id)?.record.capacity_bytes != record.capacity_bytes);
        Ok(if !has_more || is_current()? { Length::AsRecorded } else { Length::Outdated { bytes } })
    }
}

/// The image, or a snapshot of it, has less bytes than the volume.
pub(in super::super) fn shrunk(record: &VolumeRecord, bytes: u64) -> Error {
    Error::damaged(record.label(), shortage(record, bytes))
}

fn shortage(record: &VolumeRecord, bytes: u64) -> String {
    let promised = record.capacity_bytes;
    format!(
        "its image has {bytes} bytes, its record promises {promised}: the image was shrunk, and the data at its end \
         is lost; restore a snapshot or a backup, or, to use the volume with zeroes in place of that data, run \
         `rbd resize --size {promised}B` on image {}",
        image_of(&record.id)
    )
}

fn outdated(record: &VolumeRecord, bytes: u64) -> String {
    format!(
        "cannot use volume {}: its record is outdated; expand it to {bytes} bytes, or restore its current record \
         (this one says {} bytes, and there is data past that end)",
        record.id, record.capacity_bytes
    )
}

/// Whole objects are known to hold data, and one of them may begin before the range: so what they hold is read.
fn holds_data(image: &Image, range: (u64, u64)) -> orlop_sys::Result<bool> {
    let mut written = Vec::new();
    let note = |extent: DiffExtent| {
        if extent.holds_data {
            written.push((extent.offset.max(range.0), extent.offset + extent.length));
        }
        true
    };
    image.visit_written(Written::Here, range, note)?;
    let mut piece = vec![0; usize::try_from(PIECE).unwrap_or(usize::MAX)];
    for (start, end) in written {
        let mut position = start;
        while position < end {
            let length = usize::try_from(PIECE.min(end - position)).unwrap_or(usize::MAX);
            let read = image.read(position, &mut piece[..length])?;
            if piece[..read].iter().any(|byte| *byte != 0) {
                return Ok(true);
            }
            position += PIECE;
        }
    }
    Ok(false)
}
