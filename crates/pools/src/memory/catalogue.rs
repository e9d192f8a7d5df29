//! The records of a pool that only pretends.

use std::ops::Bound;

use orlop_model::{
    Catalogue, Error, GroupSnapshotId, GroupSnapshotRecord, Result, SnapshotId, SnapshotRecord,
    VolumeGroupId, VolumeGroupRecord, VolumeId, VolumeRecord,
};

use super::MemoryPool;
use crate::poison::lock;

fn after<Id>(id: Option<&Id>) -> (Bound<&Id>, Bound<&Id>) {
    (id.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

fn at_most(limit: usize) -> usize {
    if limit == 0 { usize::MAX } else { limit }
}

impl Catalogue for MemoryPool {
    /// Unless it stands for a pool that nodes share.
    fn is_in_memory(&self) -> bool {
        lock(&self.state).sharers.is_none()
    }

    fn volume(&self, id: &VolumeId) -> Result<Option<VolumeRecord>> {
        let mut state = lock(&self.state);
        state.fault("volume")?;
        let volume = state.volumes.get(id);
        volume.map(|v| v.checked().cloned()).transpose()
    }

    fn volumes(
        &self,
        start: Option<&VolumeId>,
        limit: usize,
    ) -> Result<Vec<(VolumeId, Result<VolumeRecord>)>> {
        let mut state = lock(&self.state);
        state.fault("volumes")?;
        let entries = state.volumes.range(after(start)).take(at_most(limit));
        Ok(entries.map(|(id, volume)| (id.clone(), volume.checked().cloned())).collect())
    }

    fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord> {
        let mut state = lock(&self.state);
        state.fault("update_volume")?;
        let volume = state.volume(id)?;
        let mut changed = volume.record.clone();
        change(&mut changed)?;
        volume.record = changed.clone();
        Ok(changed)
    }

    fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>> {
        let mut state = lock(&self.state);
        state.fault("snapshot")?;
        Ok(state.snapshots.get(id).map(|entry| entry.record.clone()))
    }

    fn snapshots(&self, start: Option<&SnapshotId>, limit: usize) -> Result<Vec<SnapshotRecord>> {
        let state = lock(&self.state);
        let entries = state.snapshots.range(after(start)).take(at_most(limit));
        Ok(entries.map(|(_, entry)| entry.record.clone()).collect())
    }

    fn group_snapshot(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshotRecord>> {
        let mut state = lock(&self.state);
        state.fault("group_snapshot")?;
        Ok(state.group_snapshots.get(id).cloned())
    }

    fn volume_group(&self, id: &VolumeGroupId) -> Result<Option<VolumeGroupRecord>> {
        let mut state = lock(&self.state);
        state.fault("volume_group")?;
        Ok(state.volume_groups.get(id).cloned())
    }

    fn volume_groups(
        &self,
        start: Option<&VolumeGroupId>,
        limit: usize,
    ) -> Result<Vec<VolumeGroupRecord>> {
        let state = lock(&self.state);
        let entries = state.volume_groups.range(after(start)).take(at_most(limit));
        Ok(entries.map(|(_, record)| record.clone()).collect())
    }

    fn save_volume_group(
        &self,
        record: &VolumeGroupRecord,
        was: Option<&VolumeGroupRecord>,
    ) -> Result<()> {
        let mut state = lock(&self.state);
        state.fault("save_volume_group")?;
        if state.volume_groups.get(&record.id) != was {
            return Err(Error::busy(
                format!("volume group {}", record.id),
                "it changed during this call",
            ));
        }
        state.volume_groups.insert(record.id.clone(), record.clone());
        Ok(())
    }

    fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()> {
        let mut state = lock(&self.state);
        state.fault("ensure_no_volume_group")?;
        state.volume_groups.remove(id);
        Ok(())
    }
}
