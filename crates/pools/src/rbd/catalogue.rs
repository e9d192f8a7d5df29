//! The records of the pool, on the cluster: nothing of them is remembered.
//!
//! Those of volumes are with their images (`images.rs`), the others among the pool's keys
//! (`records.rs`).

mod group_snapshots;
mod snapshots;
mod volume_groups;

use std::sync::Arc;

use orlop_model::{
    Catalogue, GroupSnapshotId, GroupSnapshotRecord, PoolInfo, Result, SnapshotId, SnapshotRecord,
    VolumeGroupId, VolumeGroupRecord, VolumeId, VolumeRecord,
};

use super::images::Images;
use super::records::Records;
use super::session::Session;
use group_snapshots::GroupSnapshots;
pub(crate) use group_snapshots::{GroupLocation, GroupSnapshotEntry};
use snapshots::Snapshots;
pub(crate) use snapshots::{SnapshotEntry, SnapshotLocation};
use volume_groups::VolumeGroupRecords;

#[derive(Debug)]
pub(super) struct RbdCatalogue {
    images: Arc<Images>,
    snapshots: Snapshots,
    group_snapshots: GroupSnapshots,
    volume_groups: VolumeGroupRecords,
}

impl RbdCatalogue {
    pub(super) fn new(
        session: &Arc<Session>,
        info: &Arc<PoolInfo>,
        records: &Arc<Records>,
        images: &Arc<Images>,
    ) -> Self {
        Self {
            snapshots: Snapshots::new(info, records),
            group_snapshots: GroupSnapshots::new(records),
            volume_groups: VolumeGroupRecords::new(session, info, records, images),
            images: Arc::clone(images),
        }
    }

    pub(super) fn snapshot_records(&self) -> &Snapshots {
        &self.snapshots
    }

    pub(super) fn group_snapshot_records(&self) -> &GroupSnapshots {
        &self.group_snapshots
    }
}

impl Catalogue for RbdCatalogue {
    /// Other nodes change them.
    fn is_in_memory(&self) -> bool {
        false
    }

    fn volume(&self, id: &VolumeId) -> Result<Option<VolumeRecord>> {
        Ok(self.images.known(id)?.map(|known| known.record))
    }

    fn volumes(
        &self,
        after: Option<&VolumeId>,
        limit: usize,
    ) -> Result<Vec<(VolumeId, Result<VolumeRecord>)>> {
        self.images.page(after, limit)
    }

    fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord> {
        self.images.update(id, change)
    }

    fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>> {
        Ok(self.snapshots.entry(id)?.map(|entry| entry.record))
    }

    fn snapshots(&self, after: Option<&SnapshotId>, limit: usize) -> Result<Vec<SnapshotRecord>> {
        self.snapshots.page(after, limit)
    }

    fn group_snapshot(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshotRecord>> {
        self.group_snapshots.get(id)
    }

    fn volume_group(&self, id: &VolumeGroupId) -> Result<Option<VolumeGroupRecord>> {
        self.volume_groups.get(id)
    }

    fn volume_groups(
        &self,
        after: Option<&VolumeGroupId>,
        limit: usize,
    ) -> Result<Vec<VolumeGroupRecord>> {
        self.volume_groups.page(after, limit)
    }

    fn save_volume_group(
        &self,
        record: &VolumeGroupRecord,
        was: Option<&VolumeGroupRecord>,
    ) -> Result<()> {
        self.volume_groups.save(record, was)
    }

    fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()> {
        self.volume_groups.ensure_none(id)
    }
}
