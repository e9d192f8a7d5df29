//! Which blocks of a snapshot hold data: as far as is known without the metadata of the thin pool, all of them may.

use std::sync::Arc;

use orlop_model::{
    ByteRange, ChangedBlocks, ContentSource, Footprint, Ranges, Result, SnapshotId, VolumeId,
};

use super::catalogue::LvmCatalogue;
use super::commands::Lvm;

#[derive(Debug)]
pub(super) struct ThinMaps {
    lvm: Arc<Lvm>,
    catalogue: Arc<LvmCatalogue>,
}

impl ThinMaps {
    pub(super) fn new(lvm: &Arc<Lvm>, catalogue: &Arc<LvmCatalogue>) -> Self {
        Self { lvm: Arc::clone(lvm), catalogue: Arc::clone(catalogue) }
    }
}

impl ChangedBlocks for ThinMaps {
    fn allocated_ranges(&self, id: &SnapshotId, start: u64) -> Result<Ranges> {
        let length = self.catalogue.require_snapshot(id)?.size_bytes.saturating_sub(start);
        let all = (length > 0).then(|| Ok(Some(ByteRange { start, length })));
        Ok(Box::new(all.into_iter()))
    }

    fn changed_ranges(&self, base: &SnapshotId, target: &SnapshotId, start: u64) -> Result<Ranges> {
        self.catalogue.require_snapshot(base)?;
        self.allocated_ranges(target, start)
    }

    /// Before the first write to a thin volume none of its blocks is taken.
    fn holds_data(&self, id: &VolumeId) -> Result<bool> {
        self.catalogue.volume_objects().require(id)?;
        let report = self.lvm.report()?;
        let used = report.lv(&id.to_string()).and_then(|lv| Some(lv.data_used?.of(lv.size)));
        Ok(used != Some(0))
    }

    fn footprint(&self, _of: &ContentSource) -> Result<Option<Footprint>> {
        Ok(None)
    }
}
