//! A pool that only pretends, for tests of the layers above without root.
//!
//! Volumes hold no bytes. Each has a tag instead, which a test writes and reads and which copies
//! inherit, so that it can be told what a volume is a copy of. Devices are numbers and paths
//! that lead nowhere.

mod draft;
mod state;

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use orlop_model::{
    ALLOCATION_UNIT, Condition, Device, DeviceAccess, Draft, Error, NewSnapshot, NewVolume, Pool,
    PoolCapacity, PoolId, Provisioning, Result, SnapshotId, SnapshotRecord, Topology, VolumeId,
    VolumeRecord,
};

use crate::poison::lock;
use draft::{SnapshotDraft, VolumeDraft};
use state::{Fault, Interlude, MemoryVolume, State};

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
        let state = State { capacity: config.capacity_bytes, ..State::default() };
        Self {
            id: PoolId::from_random(number.to_be_bytes()),
            name: config.name,
            place: config.place,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Lets the next call of this method of the trait fail; `cut` and `commit` are those of
    /// drafts. Several for one method fail one after another.
    pub fn fail_next(&self, operation: &'static str, error: Error) {
        self.fail_after(operation, 0, error);
    }

    /// As [`Self::fail_next`], but so many calls go well before.
    pub fn fail_after(&self, operation: &'static str, successes: usize, error: Error) {
        lock(&self.state).faults.push(Fault { operation, successes, error });
    }

    /// What happens while the next cut is being made, on its thread.
    pub fn during_next_cut(&self, interlude: impl FnOnce() + Send + 'static) {
        lock(&self.state).interlude = Some(Interlude(Box::new(interlude)));
    }

    /// The pool stays, its devices are gone.
    pub fn reboot(&self) {
        for volume in lock(&self.state).volumes.values_mut() {
            volume.read_write.attached = false;
            volume.read_only.attached = false;
        }
    }

    /// What a workload would do with the device.
    pub fn write_tag(&self, id: &VolumeId, tag: &str) -> Result<()> {
        tag.clone_into(&mut lock(&self.state).volume(id)?.tag);
        Ok(())
    }

    /// What was written to the volume, or to what it is a copy of; empty if nothing was.
    pub fn tag(&self, id: &VolumeId) -> Result<String> {
        Ok(lock(&self.state).volume(id)?.tag.clone())
    }

    pub fn snapshot_tag(&self, id: &SnapshotId) -> Option<String> {
        let state = lock(&self.state);
        state.snapshots.get(id).map(|snapshot| snapshot.tag.clone())
    }

    pub fn damage_volume(&self, id: &VolumeId, reason: &str) {
        if let Some(volume) = lock(&self.state).volumes.get_mut(id) {
            volume.damage = Some(reason.to_owned());
        }
    }

    pub fn set_condition(&self, id: &VolumeId, condition: Condition) {
        if let Some(volume) = lock(&self.state).volumes.get_mut(id) {
            volume.condition = Some(condition);
        }
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
    ) -> Vec<(VolumeId, Result<VolumeRecord>)> {
        let state = lock(&self.state);
        let entries = state.volumes.range(after(start)).take(at_most(limit));
        entries.map(|(id, volume)| (id.clone(), volume.checked().cloned())).collect()
    }

    fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>> {
        let mut state = lock(&self.state);
        state.fault("snapshot")?;
        Ok(state.snapshots.get(id).map(|entry| entry.record.clone()))
    }

    fn snapshots(&self, start: Option<&SnapshotId>, limit: usize) -> Vec<SnapshotRecord> {
        let state = lock(&self.state);
        let entries = state.snapshots.range(after(start)).take(at_most(limit));
        entries.map(|(_, entry)| entry.record.clone()).collect()
    }

    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>> {
        lock(&self.state).fault("begin_volume")?;
        Ok(Box::new(VolumeDraft::begin(&self.state, new)?))
    }

    fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>> {
        lock(&self.state).fault("begin_snapshot")?;
        Ok(Box::new(SnapshotDraft::begin(&self.state, new)?))
    }

    fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord),
    ) -> Result<VolumeRecord> {
        let mut state = lock(&self.state);
        state.fault("update_volume")?;
        let volume = state.volume(id)?;
        change(&mut volume.record);
        Ok(volume.record.clone())
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
}

#[cfg(test)]
mod tests;
