//! A pool that only pretends, for tests of the layers above without root.
//!
//! Volumes hold no bytes. Each has a tag instead, which a test writes and reads and which copies
//! inherit, so that it can be told what a volume is a copy of, and knows which of its blocks were
//! written. Devices are numbers and paths that lead nowhere.

mod content;
mod draft;
mod scenario;
mod state;

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use orlop_model::{
    ALLOCATION_UNIT, ByteRange, Condition, Device, DeviceAccess, Draft, Error, GroupSnapshotId,
    GroupSnapshotRecord, NewGroupSnapshot, NewSnapshot, NewVolume, NodeId, Pool, PoolCapacity,
    PoolId, Provisioning, Ranges, Result, SnapshotId, SnapshotRecord, Topology, VolumeGroupId,
    VolumeGroupRecord, VolumeId, VolumeRecord,
};

use crate::poison::lock;
use content::clipped;
use draft::{GroupSnapshotDraft, SnapshotDraft, VolumeDraft};
use state::{Interlude, MemoryVolume, State};

/// Of the range that the kernel leaves to experiments.
const MAJOR: u32 = 240;

/// Shared by all pools of the process, as device numbers are on a machine.
static POOLS: AtomicU32 = AtomicU32::new(1);
static MINORS: AtomicU32 = AtomicU32::new(1);

#[derive(Debug, Clone)]
pub struct MemoryPoolConfig {
    pub name: String,
    pub place: Topology,
    pub capacity_bytes: u64,
}

impl Default for MemoryPoolConfig {
    fn default() -> Self {
        Self { name: "memory".to_owned(), place: Topology::default(), capacity_bytes: 1 << 40 }
    }
}

#[derive(Debug)]
pub struct MemoryPool {
    id: PoolId,
    name: String,
    place: Topology,
    state: Arc<Mutex<State>>,
}

impl MemoryPool {
    pub fn new(config: MemoryPoolConfig) -> Self {
        let number = POOLS.fetch_add(1, Ordering::Relaxed);
        Self::with_id(PoolId::from_random(number.to_be_bytes()), config)
    }

    /// For tests that name volumes by ids which they know beforehand.
    pub fn with_id(id: PoolId, config: MemoryPoolConfig) -> Self {
        let state = State { capacity: config.capacity_bytes, ..State::default() };
        Self { id, name: config.name, place: config.place, state: Arc::new(Mutex::new(state)) }
    }
}

impl MemoryPool {
    fn told(&self, ranges: Vec<ByteRange>) -> Ranges {
        let state = Arc::clone(&self.state);
        Box::new(ranges.into_iter().map(move |range| {
            lock(&state).fault("range")?;
            Ok(Some(range))
        }))
    }
}

fn after<Id>(id: Option<&Id>) -> (Bound<&Id>, Bound<&Id>) {
    (id.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

fn at_most(limit: usize) -> usize {
    if limit == 0 { usize::MAX } else { limit }
}

impl Pool for MemoryPool {
    fn id(&self) -> &PoolId {
        &self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn place(&self) -> &Topology {
        &self.place
    }

    fn is_shared(&self) -> bool {
        lock(&self.state).sharers.is_some()
    }

    fn knows_node(&self, node: &NodeId) -> Result<bool> {
        let mut state = lock(&self.state);
        state.fault("knows_node")?;
        Ok(state.sharers.as_ref().is_some_and(|nodes| nodes.contains(node)))
    }

    fn check_health(&self) -> Result<()> {
        lock(&self.state).fault("check_health")
    }

    fn capacity(&self, _provisioning: Provisioning) -> Result<PoolCapacity> {
        let mut state = lock(&self.state);
        state.fault("capacity")?;
        let available_bytes = state.available();
        Ok(PoolCapacity {
            available_bytes,
            largest_volume: available_bytes / ALLOCATION_UNIT * ALLOCATION_UNIT,
        })
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

    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>> {
        lock(&self.state).fault("begin_volume")?;
        Ok(Box::new(VolumeDraft::begin(&self.state, new)?))
    }

    fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>> {
        lock(&self.state).fault("begin_snapshot")?;
        Ok(Box::new(SnapshotDraft::begin(&self.state, new, None)?))
    }

    fn begin_group_snapshot(
        &self,
        new: &NewGroupSnapshot,
    ) -> Result<Box<dyn Draft<GroupSnapshotRecord>>> {
        lock(&self.state).fault("begin_group_snapshot")?;
        Ok(Box::new(GroupSnapshotDraft::begin(&self.state, new)?))
    }

    fn group_snapshot(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshotRecord>> {
        let mut state = lock(&self.state);
        state.fault("group_snapshot")?;
        Ok(state.group_snapshots.get(id).cloned())
    }

    fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        let mut state = lock(&self.state);
        state.fault("ensure_no_group_snapshot")?;
        state.group_snapshots.remove(id);
        state.snapshots.retain(|_, snapshot| snapshot.record.group.as_ref() != Some(id));
        Ok(())
    }

    fn cuts_at_once(&self) -> bool {
        !lock(&self.state).cuts_piecemeal
    }

    fn cuts_groups_at_once(&self) -> bool {
        !lock(&self.state).cuts_groups_piecemeal
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
            return Err(Error::Busy(format!("volume group {}", record.id)));
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

    fn allocated_ranges(&self, id: &SnapshotId, start: u64) -> Result<Ranges> {
        let mut state = lock(&self.state);
        state.fault("allocated_ranges")?;
        let snapshot = state.snapshot(id)?;
        let found = snapshot.content.allocated();
        Ok(self.told(clipped(found, start, snapshot.record.size_bytes)))
    }

    fn changed_ranges(&self, base: &SnapshotId, target: &SnapshotId, start: u64) -> Result<Ranges> {
        let mut state = lock(&self.state);
        state.fault("changed_ranges")?;
        let (base, target) = (state.snapshot(base)?, state.snapshot(target)?);
        let found = target.content.changed_since(&base.content);
        Ok(self.told(clipped(found, start, target.record.size_bytes)))
    }

    fn holds_data(&self, id: &VolumeId) -> Result<bool> {
        Ok(lock(&self.state).volume(id)?.content.used_bytes() > 0)
    }

    fn used_bytes(&self, id: &VolumeId) -> Result<u64> {
        let mut state = lock(&self.state);
        state.fault("used_bytes")?;
        Ok(state.volume(id)?.content.used_bytes())
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

    fn condition(&self, id: &VolumeId) -> Result<Condition> {
        let mut state = lock(&self.state);
        state.fault("condition")?;
        let volume = state.volumes.get(id).ok_or_else(|| Error::NoSuchVolume(id.to_string()))?;
        Ok(match (volume.checked(), &volume.condition) {
            (Err(damaged), _) => Condition::abnormal(damaged.to_string()),
            (Ok(_), Some(condition)) => condition.clone(),
            (Ok(_), None) => Condition::healthy("in memory"),
        })
    }

    fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device> {
        let interlude = lock(&self.state).attach_interlude.take();
        if let Some(Interlude(happen)) = interlude {
            happen();
        }
        let mut state = lock(&self.state);
        state.fault("ensure_attached")?;
        let path = match access {
            DeviceAccess::ReadWrite => format!("/memory/{id}"),
            DeviceAccess::ReadOnly => format!("/memory/{id}/ro"),
        };
        let port = state.volume(id)?.port(access);
        port.attached = true;
        let device = port.device.get_or_insert_with(|| Device {
            path: PathBuf::from(path),
            major: MAJOR,
            minor: MINORS.fetch_add(1, Ordering::Relaxed),
        });
        Ok(device.clone())
    }

    fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        let mut state = lock(&self.state);
        state.fault("attached")?;
        let volume = state.volumes.get_mut(id);
        Ok(volume.and_then(|volume| volume.port(access).attached().cloned()))
    }

    fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        let mut state = lock(&self.state);
        state.fault("ensure_detached")?;
        if let Some(volume) = state.volumes.get_mut(id) {
            volume.port(access).attached = false;
        }
        Ok(())
    }

    /// What uses a device is the host's to know.
    fn try_detach_unused(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        self.ensure_detached(id, access)
    }

    fn refresh_device(&self, id: &VolumeId) -> Result<u64> {
        let mut state = lock(&self.state);
        state.fault("refresh_device")?;
        let volume = state.volume(id)?;
        if !volume.read_write.attached && !volume.read_only.attached {
            return Err(Error::precondition(format!("volume {id} is not attached")));
        }
        Ok(volume.record.capacity_bytes)
    }

    fn attached_volumes(&self) -> Result<Vec<VolumeId>> {
        let mut state = lock(&self.state);
        state.fault("attached_volumes")?;
        let attached =
            |volume: &MemoryVolume| volume.read_write.attached || volume.read_only.attached;
        let entries = state.volumes.iter().filter(|(_, volume)| attached(volume));
        Ok(entries.map(|(id, _)| id.clone()).collect())
    }

    fn device_trouble(&self, id: &VolumeId) -> Result<Option<String>> {
        Ok(lock(&self.state).volumes.get(id).and_then(|volume| volume.trouble.clone()))
    }

    fn ensure_fenced(&self, id: &VolumeId, node: &NodeId) -> Result<()> {
        let mut state = lock(&self.state);
        state.fault("ensure_fenced")?;
        state.fenced.push((id.clone(), node.clone()));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
