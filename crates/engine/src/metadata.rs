//! Which blocks of a snapshot hold data, and which differ from an earlier one.

use orlop_model::{ByteRange, Error, Ranges, Result, SnapshotId, SnapshotRecord};

use crate::engine::Engine;
use crate::request::BlockRanges;

impl Engine {
    /// No lock is held while ranges are read: the files are open, so a snapshot that is deleted
    /// during that time stays readable to the end.
    pub fn allocated_blocks(&self, id: &SnapshotId, start: u64) -> Result<BlockRanges> {
        let snapshot = self.snapshot(id)?;
        check_start(&snapshot, start)?;
        let pool = self.pool(id.pool())?.ok_or_else(|| Self::not_served_snapshot(id))?;
        let offset = data_offset(&snapshot);
        let ranges = pool.changed_blocks().allocated_ranges(id, start.saturating_add(offset))?;
        Ok(BlockRanges {
            capacity_bytes: snapshot.usable_bytes(),
            ranges: behind_header(ranges, offset),
        })
    }

    pub fn changed_blocks(
        &self,
        base: &SnapshotId,
        target: &SnapshotId,
        start: u64,
    ) -> Result<BlockRanges> {
        let (earlier, later) = (self.snapshot(base)?, self.snapshot(target)?);
        check_order(&earlier, &later)?;
        check_start(&later, start)?;
        let pool = self.pool(target.pool())?.ok_or_else(|| Self::not_served_snapshot(target))?;
        let (offset, changed) = (data_offset(&later), pool.changed_blocks());
        let ranges = changed.changed_ranges(base, target, start.saturating_add(offset))?;
        Ok(BlockRanges {
            capacity_bytes: later.usable_bytes(),
            ranges: behind_header(ranges, offset),
        })
    }
}

/// SM-27, SM-32. The end of the volume is a valid offset, at which there are no ranges (point 9 of
/// docs/specification.md).
fn check_start(snapshot: &SnapshotRecord, start: u64) -> Result<()> {
    if start <= snapshot.usable_bytes() {
        return Ok(());
    }
    Err(Error::OutOfRange(format!(
        "starting_offset {start} is beyond the volume's {} bytes",
        snapshot.usable_bytes()
    )))
}

/// Where in the pool's data the first byte is that a workload sees.
fn data_offset(snapshot: &SnapshotRecord) -> u64 {
    snapshot.size_bytes - snapshot.usable_bytes()
}

/// A reader of the blocks has a volume made from the snapshot, and so the device behind the header. What is in the header
/// alone, such as another key, is not visible there.
fn behind_header(ranges: Ranges, offset: u64) -> Ranges {
    if offset == 0 {
        return ranges;
    }
    let moved = move |range: ByteRange| {
        let (start, end) = (range.start.max(offset), range.end());
        ByteRange { start: start - offset, length: end.saturating_sub(start) }
    };
    // An item that is no range stays: the caller counts on it while much is read without a result.
    Box::new(
        ranges.map(move |item| item.map(|range| range.map(moved).filter(|range| range.length > 0))),
    )
}

/// SM-34
fn check_order(base: &SnapshotRecord, target: &SnapshotRecord) -> Result<()> {
    if base.source != target.source {
        return Err(Error::invalid(
            "base_snapshot_id",
            format!("is of volume {}, the target of volume {}", base.source, target.source),
        ));
    }
    if base.created > target.created {
        return Err(Error::invalid("base_snapshot_id", "is later than the target"));
    }
    Ok(())
}
