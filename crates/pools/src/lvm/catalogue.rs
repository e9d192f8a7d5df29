//! What exists in the pool: the records of all that is whole, in memory.

use std::sync::Arc;

use orlop_model::{
    Catalogue, GroupSnapshotId, GroupSnapshotRecord, PoolId, Result, SnapshotId, SnapshotRecord,
    VolumeGroupId, VolumeGroupRecord, VolumeId, VolumeRecord,
};

use super::commands::Lvm;
use super::layout::is_of_tag;
use super::objects::Objects;
use super::pool_records::PoolRecords;
use super::report::{GroupReport, Lv};
use crate::recorded::Recorded;

#[derive(Debug)]
pub(super) struct LvmCatalogue {
    volumes: Objects<VolumeRecord>,
    snapshots: Objects<SnapshotRecord>,
    group_snapshots: PoolRecords<GroupSnapshotRecord>,
    volume_groups: PoolRecords<VolumeGroupRecord>,
}

impl LvmCatalogue {
    pub(super) fn load(
        lvm: &Arc<Lvm>,
        pool: &PoolId,
        report: &GroupReport,
        thin_pool: &Lv,
    ) -> Self {
        Self {
            volumes: Objects::load(lvm, pool, report),
            snapshots: Objects::load(lvm, pool, report),
            group_snapshots: PoolRecords::load(lvm, pool, thin_pool),
            volume_groups: PoolRecords::load(lvm, pool, thin_pool),
        }
    }

    pub(super) fn volume_objects(&self) -> &Objects<VolumeRecord> {
        &self.volumes
    }

    pub(super) fn snapshot_objects(&self) -> &Objects<SnapshotRecord> {
        &self.snapshots
    }

    pub(super) fn group_snapshot_records(&self) -> &PoolRecords<GroupSnapshotRecord> {
        &self.group_snapshots
    }

    pub(super) fn require_snapshot(&self, id: &SnapshotId) -> Result<SnapshotRecord> {
        self.snapshot(id)?.ok_or_else(|| SnapshotRecord::missing(id))
    }

    /// Also one that a command under way has just made.
    pub(super) fn is_own(&self, lv: &Lv) -> bool {
        lv.tags.iter().any(|tag| is_of_tag(tag))
    }

    pub(super) fn volume_group_records(&self) -> &PoolRecords<VolumeGroupRecord> {
        &self.volume_groups
    }

    /// What a start says of records that it cannot use.
    pub(super) fn log_unusable(&self) {
        self.volumes.log_unusable();
        self.snapshots.log_unusable();
        self.group_snapshots.log_unusable();
        self.volume_groups.log_unusable();
    }

    /// A member of a group snapshot is there when its group is.
    pub(super) fn is_visible(&self, snapshot: &SnapshotRecord) -> bool {
        snapshot.group.as_ref().is_none_or(|group| self.group_snapshots.holds(group))
    }

    /// Removes what a daemon that was killed has not finished. What cannot be removed now is not visible either.
    pub(super) fn remove_unfinished(&self) {
        let is_orphan = |snapshot: &SnapshotRecord| !self.is_visible(snapshot);
        let orphans = self.snapshots.records().filter(is_orphan).map(|snapshot| snapshot.id);
        let snapshots: Vec<SnapshotId> =
            self.snapshots.unfinished().into_iter().chain(orphans).collect();
        for id in snapshots {
            log_removal("snapshot", &id, self.snapshots.ensure_gone(&id));
        }
        for id in self.volumes.unfinished() {
            log_removal("volume", &id, self.volumes.ensure_gone(&id));
        }
    }
}

fn log_removal(kind: &str, id: &dyn std::fmt::Display, removed: Result<()>) {
    match removed {
        Ok(()) => tracing::info!(kind, %id, "removed what an earlier daemon had not finished"),
        Err(error) => tracing::warn!(
            kind, %id, %error,
            "cannot remove what an earlier daemon had not finished; the next start tries again"
        ),
    }
}

impl Catalogue for LvmCatalogue {
    fn is_in_memory(&self) -> bool {
        true
    }

    fn volume(&self, id: &VolumeId) -> Result<Option<VolumeRecord>> {
        self.volumes.get(id)
    }

    fn volumes(
        &self,
        after: Option<&VolumeId>,
        limit: usize,
    ) -> Result<Vec<(VolumeId, Result<VolumeRecord>)>> {
        Ok(self.volumes.page(after, limit))
    }

    fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord> {
        let mut record = self.volumes.require(id)?;
        change(&mut record)?;
        self.volumes.replace(&record)?;
        Ok(record)
    }

    fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>> {
        Ok(self.snapshots.get(id)?.filter(|record| self.is_visible(record)))
    }

    fn snapshots(&self, after: Option<&SnapshotId>, limit: usize) -> Result<Vec<SnapshotRecord>> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let records =
            self.snapshots.page(after, 0).into_iter().filter_map(|(_, record)| record.ok());
        Ok(records.filter(|record| self.is_visible(record)).take(limit).collect())
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
        Ok(self.volume_groups.page(after, limit))
    }

    /// No other process writes to this pool, so what it was is known.
    fn save_volume_group(
        &self,
        record: &VolumeGroupRecord,
        _was: Option<&VolumeGroupRecord>,
    ) -> Result<()> {
        self.volume_groups.save(record)
    }

    fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()> {
        self.volume_groups.remove(id)
    }
}

#[cfg(test)]
mod tests;
