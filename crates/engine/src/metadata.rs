//! Which blocks of a snapshot hold data, and which differ from an earlier one.

use orlop_model::{Error, Result, SnapshotId, SnapshotRecord};

use crate::engine::Engine;
use crate::request::BlockRanges;

impl Engine {
    /// No lock is held while ranges are read: the files are open, so a snapshot that is deleted
    /// during that time stays readable to the end.
    pub fn allocated_blocks(&self, id: &SnapshotId, start: u64) -> Result<BlockRanges> {
        let snapshot = self.snapshot(id)?;
        check_start(&snapshot, start)?;
        let pool = self.pool(id.pool())?.ok_or_else(|| Self::not_served_snapshot(id))?;
        let ranges = pool.changed_blocks().allocated_ranges(id, start)?;
        Ok(BlockRanges { capacity_bytes: snapshot.size_bytes, ranges })
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
        let ranges = pool.changed_blocks().changed_ranges(base, target, start)?;
        Ok(BlockRanges { capacity_bytes: later.size_bytes, ranges })
    }
}

/// SM-27, SM-32. The end of the volume is a valid offset, at which there are no ranges (point 9 of
/// docs/specification.md).
fn check_start(snapshot: &SnapshotRecord, start: u64) -> Result<()> {
    if start <= snapshot.size_bytes {
        return Ok(());
    }
    Err(Error::OutOfRange(format!(
        "starting_offset {start} is beyond the volume's {} bytes",
        snapshot.size_bytes
    )))
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
