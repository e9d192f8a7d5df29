//! Records that are kept beside the data they describe.

use orlop_model::{Error, Result, SnapshotRecord, VolumeRecord};

use crate::recorded::Recorded;

/// A record that is kept beside the data it describes.
pub(in crate::image) trait StoredRecord: Recorded {
    /// Is its data never written to once it is there?
    const IS_STILL: bool;

    /// How long the data is at least.
    fn length(&self) -> u64;

    /// Was its data taken from something else in the pool?
    fn is_copy(&self) -> bool;

    /// Whether this is what a caller who asks for `asked` would have got.
    fn check_answers(&self, asked: &Self) -> Result<()>;

    /// What of the pool's space is promised to it, when its data takes `allocated` bytes.
    fn charge(&self, allocated: u64) -> u64;

    /// The same, of one whose record is not known, by its data alone.
    fn charge_of_unread(length: u64, allocated: u64) -> u64;
}

impl StoredRecord for VolumeRecord {
    const IS_STILL: bool = false;

    fn length(&self) -> u64 {
        self.capacity_bytes
    }

    fn is_copy(&self) -> bool {
        self.source.is_some()
    }

    fn check_answers(&self, asked: &Self) -> Result<()> {
        let differs = [
            (self.capacity_bytes != asked.capacity_bytes, "its capacity"),
            (self.capabilities != asked.capabilities, "its capabilities"),
            (self.parameters != asked.parameters, "its parameters"),
            (self.source != asked.source, "its source"),
        ];
        conflict(self, &differs)
    }

    /// A volume may be filled at any time.
    fn charge(&self, _allocated: u64) -> u64 {
        self.capacity_bytes
    }

    fn charge_of_unread(length: u64, allocated: u64) -> u64 {
        length.max(allocated)
    }
}

impl StoredRecord for SnapshotRecord {
    const IS_STILL: bool = true;

    fn length(&self) -> u64 {
        self.size_bytes
    }

    fn is_copy(&self) -> bool {
        true
    }

    fn check_answers(&self, asked: &Self) -> Result<()> {
        conflict(self, &[(self.source != asked.source, "its source")])
    }

    /// A snapshot never grows.
    fn charge(&self, allocated: u64) -> u64 {
        allocated
    }

    fn charge_of_unread(_length: u64, allocated: u64) -> u64 {
        allocated
    }
}

fn conflict<R: StoredRecord>(existing: &R, aspects: &[(bool, &str)]) -> Result<()> {
    let differing: Vec<&str> =
        aspects.iter().filter(|(differs, _)| *differs).map(|(_, name)| *name).collect();
    if differing.is_empty() {
        return Ok(());
    }
    let what = format!("{} {}", R::KIND, existing.id());
    Err(Error::conflict(
        what,
        format!("it differs from what is asked for in {}", differing.join(", ")),
    ))
}
