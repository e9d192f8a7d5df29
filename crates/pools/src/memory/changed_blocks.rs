//! Which blocks were written, of volumes that hold no bytes.

use std::sync::Arc;

use orlop_model::{
    ByteRange, ChangedBlocks, ContentSource, Footprint, Ranges, Result, SnapshotId, VolumeId,
};

use super::MemoryPool;
use super::content::clipped;
use crate::poison::lock;

impl MemoryPool {
    fn ranges(&self, ranges: Vec<ByteRange>) -> Ranges {
        let state = Arc::clone(&self.state);
        Box::new(ranges.into_iter().map(move |range| {
            lock(&state).fault("range")?;
            Ok(Some(range))
        }))
    }
}

impl ChangedBlocks for MemoryPool {
    fn allocated_ranges(&self, id: &SnapshotId, start: u64) -> Result<Ranges> {
        let mut state = lock(&self.state);
        state.fault("allocated_ranges")?;
        let snapshot = state.snapshot(id)?;
        let found = snapshot.content.allocated();
        Ok(self.ranges(clipped(found, start, snapshot.record.size_bytes)))
    }

    fn changed_ranges(&self, base: &SnapshotId, target: &SnapshotId, start: u64) -> Result<Ranges> {
        let mut state = lock(&self.state);
        state.fault("changed_ranges")?;
        let (base, target) = (state.snapshot(base)?, state.snapshot(target)?);
        let found = target.content.changed_since(&base.content);
        Ok(self.ranges(clipped(found, start, target.record.size_bytes)))
    }

    fn holds_data(&self, id: &VolumeId) -> Result<bool> {
        Ok(lock(&self.state).volume(id)?.content.used_bytes() > 0)
    }

    /// Copies share nothing here.
    fn footprint(&self, of: &ContentSource) -> Result<Option<Footprint>> {
        let mut state = lock(&self.state);
        state.fault("footprint")?;
        let taken = match of {
            ContentSource::Snapshot(id) => state.snapshot(id)?.content.used_bytes(),
            ContentSource::Volume(id) => state.volume(id)?.content.used_bytes(),
        };
        Ok(Some(Footprint { taken, exclusive: taken }))
    }
}
