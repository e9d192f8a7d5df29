//! The ranges of a snapshot, a batch at a time.
//!
//! A stream may be open for hours while its caller writes a backup. The metadata is reserved for one batch at a time, and
//! looked up again for the next: what a snapshot maps does not change while it exists, as it is read-only, and what
//! changes in other devices leaves its tree as it is.

use std::collections::VecDeque;
use std::sync::Arc;

use orlop_model::{ByteRange, Error, Result, SnapshotId};

use super::block::Birth;
use super::comparison::{BatchLimits, changed_chunks};
use super::metadata::{ReservedMetadata, ThinMetadata};

/// While the metadata is reserved, no more is read than takes a fraction of a second.
const LIMITS: BatchLimits = BatchLimits { blocks: 1024, ranges: 4096 };

/// A snapshot whose mappings are read.
#[derive(Debug)]
pub(super) struct SnapshotDevice {
    id: SnapshotId,
    /// Of its thin device.
    number: u64,
    /// Once it was found.
    birth: Option<Birth>,
}

impl SnapshotDevice {
    pub(super) fn new(id: &SnapshotId, number: u64) -> Self {
        Self { id: id.clone(), number, birth: None }
    }

    /// Of its mappings. An error if the snapshot was deleted, also if another device has its number by now.
    fn root(&mut self, metadata: &mut ReservedMetadata<'_>) -> Result<u64> {
        let missing = || Error::NoSuchSnapshot(self.id.to_string());
        let device = metadata.thin_device(self.number)?.ok_or_else(missing)?;
        match self.birth.replace(device.details.birth) {
            Some(birth) if birth != device.details.birth => Err(missing()),
            Some(_) | None => Ok(device.root),
        }
    }
}

pub(super) struct Batches {
    metadata: Arc<ThinMetadata>,
    base: Option<SnapshotDevice>,
    target: SnapshotDevice,
    /// Asked once the devices were found: are they those of the snapshots?
    confirm: Option<Confirm>,
    position: u64,
    end: u64,
    found: VecDeque<ByteRange>,
    limits: BatchLimits,
}

pub(super) type Confirm = Box<dyn FnOnce() -> Result<()> + Send>;

impl Batches {
    /// What the target has that the base has not, or has differently; without a base all that it has. In bytes, from
    /// `start` to `end`.
    pub(super) fn new(
        metadata: &Arc<ThinMetadata>,
        base: Option<SnapshotDevice>,
        target: SnapshotDevice,
        (start, end): (u64, u64),
        confirm: Confirm,
    ) -> Self {
        Self {
            metadata: Arc::clone(metadata),
            base,
            target,
            confirm: Some(confirm),
            position: start,
            end,
            found: VecDeque::new(),
            limits: LIMITS,
        }
    }

    #[cfg(test)]
    pub(super) fn limited_to(self, limits: BatchLimits) -> Self {
        Self { limits, ..self }
    }

    fn read_batch(&mut self) -> Result<()> {
        let metadata = Arc::clone(&self.metadata);
        let mut metadata = metadata.reserve()?;
        let base = self.base.as_mut().map(|base| base.root(&mut metadata)).transpose()?;
        let target = self.target.root(&mut metadata)?;
        if let Some(confirm) = self.confirm.take() {
            confirm()?;
        }
        let chunk = metadata.superblock.chunk_bytes;
        let chunks = self.position / chunk..self.end.div_ceil(chunk);
        let batch = changed_chunks(&mut metadata.blocks, (base, target), chunks, self.limits)
            .map_err(|error| self.metadata.failure(error))?;
        for range in batch.ranges {
            let start = range.start.saturating_mul(chunk).max(self.position);
            let end = range.end.saturating_mul(chunk).min(self.end);
            if let Some(length) = end.checked_sub(start).filter(|length| *length > 0) {
                self.found.push_back(ByteRange { start, length });
            }
        }
        let next = batch.next.map_or(self.end, |next| next.saturating_mul(chunk));
        self.position = next.min(self.end);
        Ok(())
    }
}

impl Iterator for Batches {
    type Item = Result<Option<ByteRange>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(range) = self.found.pop_front() {
            return Some(Ok(Some(range)));
        }
        if self.position >= self.end {
            return None;
        }
        let read = self.read_batch();
        if read.is_err() {
            self.position = self.end;
        }
        Some(read.map(|()| self.found.pop_front()))
    }
}
