//! Which blocks hold data, and which changed.

use crate::error::Result;
use crate::id::{SnapshotId, VolumeId};

/// A part of a volume, in bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    pub start: u64,
    pub length: u64,
}

impl ByteRange {
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}

/// Ranges in rising order, none empty, none overlapping; read from the pool as they are asked
/// for, so that memory does not grow with the volume. `None` is no range and not the end: much was
/// looked at and nothing can be said yet, and the caller may check whether it is still wanted.
pub type Ranges = Box<dyn Iterator<Item = Result<Option<ByteRange>>> + Send>;

pub trait ChangedBlocks: Send + Sync {
    /// What was ever written before the snapshot, from `start` on: perhaps more, never less. The
    /// first range may begin before `start`, but ends after it.
    fn allocated_ranges(&self, id: &SnapshotId, start: u64) -> Result<Ranges>;

    /// Where `target` may differ from `base`, an earlier snapshot of the same volume: perhaps
    /// more, never less. Beyond the end of a smaller base all that was written counts.
    fn changed_ranges(&self, base: &SnapshotId, target: &SnapshotId, start: u64) -> Result<Ranges>;

    /// Is anything but zeroes known to be in the volume, wherever in it? For a look before mkfs.
    fn holds_data(&self, id: &VolumeId) -> Result<bool>;
}
