//! Making and removing what a pool that only pretends holds.

use orlop_model::{
    ALLOCATION_UNIT, Draft, Error, GroupSnapshotId, GroupSnapshotRecord, NewGroupSnapshot,
    NewSnapshot, NewVolume, Pool, PoolCapacity, PoolSpace, Provisioner, Provisioning, Result,
    SnapshotId, SnapshotRecord, VolumeId, VolumeRecord,
};

use super::MemoryPool;
use super::draft::{MemoryGroupSnapshotDraft, MemorySnapshotDraft, MemoryVolumeDraft};
use crate::poison::lock;

impl Provisioner for MemoryPool {
    fn capacity(&self, _provisioning: Provisioning) -> Result<PoolCapacity> {
        let mut state = lock(&self.state);
        state.fault("capacity")?;
        let available_bytes = state.available();
        Ok(PoolCapacity {
            available_bytes,
            largest_volume: available_bytes / ALLOCATION_UNIT * ALLOCATION_UNIT,
        })
    }

    fn space(&self) -> Result<PoolSpace> {
        let available = self.capacity(Provisioning::Thin)?.available_bytes;
        Ok(PoolSpace { available, ..PoolSpace::default() })
    }

    fn used_bytes(&self, id: &VolumeId) -> Result<u64> {
        let mut state = lock(&self.state);
        state.fault("used_bytes")?;
        Ok(state.volume(id)?.content.used_bytes())
    }

    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>> {
        lock(&self.state).fault("begin_volume")?;
        new.parameters.check_no_layout(self.name(), "memory")?;
        Ok(Box::new(MemoryVolumeDraft::begin(&self.state, new)?))
    }

    fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>> {
        lock(&self.state).fault("begin_snapshot")?;
        Ok(Box::new(MemorySnapshotDraft::begin(&self.state, new, None)?))
    }

    fn begin_group_snapshot(
        &self,
        new: &NewGroupSnapshot,
    ) -> Result<Box<dyn Draft<GroupSnapshotRecord>>> {
        lock(&self.state).fault("begin_group_snapshot")?;
        Ok(Box::new(MemoryGroupSnapshotDraft::begin(&self.state, new)?))
    }

    fn has_atomic_copies(&self) -> bool {
        !lock(&self.state).captures_piecemeal
    }

    fn has_atomic_groups(&self) -> bool {
        !lock(&self.state).captures_groups_piecemeal
    }

    fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord> {
        let mut state = lock(&self.state);
        state.fault("ensure_capacity")?;
        let growth = bytes.saturating_sub(state.volume(id)?.record.capacity_bytes);
        if growth > 0 {
            state.try_reserve(growth)?;
            state.reserved -= growth;
        }
        let record = &mut state.volume(id)?.record;
        record.capacity_bytes += growth;
        Ok(record.clone())
    }

    fn ensure_reclaimed(&self, id: &VolumeId) -> Result<()> {
        let mut state = lock(&self.state);
        state.fault("ensure_reclaimed")?;
        let volume = state.volume(id)?;
        match volume.record.parameters.provisioning {
            Provisioning::Thick => {}
            Provisioning::Thin => volume.content.drop_zeroes(),
        }
        Ok(())
    }

    fn ensure_no_volume(&self, id: &VolumeId) -> Result<()> {
        let mut state = lock(&self.state);
        state.fault("ensure_no_volume")?;
        if let Some(volume) = state.volumes.get(id) {
            volume.checked()?;
        }
        state.volumes.remove(id);
        Ok(())
    }

    fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()> {
        let mut state = lock(&self.state);
        state.fault("ensure_no_snapshot")?;
        if let Some(group) = state.snapshots.get(id).and_then(|s| s.record.group.as_ref()) {
            return Err(Error::invalid(
                "snapshot_id",
                format!("is a member of group snapshot {group} and is deleted with it"),
            ));
        }
        state.snapshots.remove(id);
        Ok(())
    }

    fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        let mut state = lock(&self.state);
        state.fault("ensure_no_group_snapshot")?;
        state.group_snapshots.remove(id);
        state.snapshots.retain(|_, snapshot| snapshot.record.group.as_ref() != Some(id));
        Ok(())
    }
}
