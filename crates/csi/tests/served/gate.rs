//! A pool whose creations can be held up, or made to panic, and whose snapshots can be endless.

use std::sync::{Arc, Condvar, Mutex};

use orlop_model::{
    ByteRange, Condition, Device, DeviceAccess, Draft, GroupSnapshotId, GroupSnapshotRecord,
    NewGroupSnapshot, NewSnapshot, NewVolume, Pool, PoolCapacity, PoolId, Provisioning, Ranges,
    Result, SnapshotId, SnapshotRecord, Topology, VolumeGroupId, VolumeGroupRecord, VolumeId,
    VolumeRecord,
};
use orlop_pools::MemoryPool;

#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    waiting: usize,
    panics: bool,
    is_endless: bool,
    is_barren: bool,
    is_over: bool,
    ranges_read: u64,
    readers: usize,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.state.lock().unwrap().is_closed = true;
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().is_closed = false;
        self.changed.notify_all();
    }

    /// The next creation panics.
    pub(crate) fn set_trap(&self) {
        self.state.lock().unwrap().panics = true;
    }

    /// From now on, what is allocated never ends.
    pub(crate) fn make_endless(&self) {
        self.state.lock().unwrap().is_endless = true;
    }

    /// From now on, what is read without end holds nothing.
    pub(crate) fn make_barren(&self, is_barren: bool) {
        self.state.lock().unwrap().is_barren = is_barren;
    }

    /// What waits or reads without end does so no longer.
    pub(crate) fn end(&self) {
        self.state.lock().unwrap().is_over = true;
        self.open();
    }

    /// How many endless ranges were handed out, and to how many streams that are still open.
    pub(crate) fn endless(&self) -> (u64, usize) {
        let state = self.state.lock().unwrap();
        (state.ranges_read, state.readers)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        if std::mem::take(&mut state.panics) {
            drop(state);
            panic!("a bug in a pool");
        }
        state.waiting += 1;
        let mut state = self.changed.wait_while(state, |state| state.is_closed).unwrap();
        state.waiting -= 1;
    }
}

/// Every other block, until the test is over.
struct Endless {
    gate: Arc<Gate>,
    next: u64,
}

impl Endless {
    fn new(gate: Arc<Gate>) -> Self {
        gate.state.lock().unwrap().readers += 1;
        Self { gate, next: 0 }
    }
}

impl Iterator for Endless {
    type Item = Result<Option<ByteRange>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut state = self.gate.state.lock().unwrap();
        if state.is_over {
            return None;
        }
        state.ranges_read += 1;
        if state.is_barren {
            return Some(Ok(None));
        }
        drop(state);
        let range = ByteRange { start: self.next, length: 4096 };
        self.next += 8192;
        Some(Ok(Some(range)))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.gate.state.lock().unwrap().readers -= 1;
    }
}

pub(crate) struct GatedPool {
    pool: Arc<MemoryPool>,
    gate: Arc<Gate>,
}

impl GatedPool {
    pub(crate) fn new(pool: Arc<MemoryPool>, gate: Arc<Gate>) -> Self {
        Self { pool, gate }
    }
}

macro_rules! pass_on {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        $(fn $name(&self $(, $argument: $type)*) -> $answer {
            self.pool.$name($($argument),*)
        })*
    };
}

impl Pool for GatedPool {
    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>> {
        self.gate.pass();
        self.pool.begin_volume(new)
    }

    fn allocated_ranges(&self, id: &SnapshotId, start: u64) -> Result<Ranges> {
        let is_endless = self.gate.state.lock().unwrap().is_endless;
        if is_endless {
            return Ok(Box::new(Endless::new(Arc::clone(&self.gate))));
        }
        self.pool.allocated_ranges(id, start)
    }

    pass_on! {
        fn id(&self) -> &PoolId;
        fn name(&self) -> &str;
        fn place(&self) -> &Topology;
        fn check_health(&self) -> Result<()>;
        fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity>;
        fn volume(&self, id: &VolumeId) -> Result<Option<VolumeRecord>>;
        fn volumes(
            &self, after: Option<&VolumeId>, limit: usize
        ) -> Result<Vec<(VolumeId, Result<VolumeRecord>)>>;
        fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>>;
        fn snapshots(&self, after: Option<&SnapshotId>, limit: usize) -> Result<Vec<SnapshotRecord>>;
        fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>>;
        fn begin_group_snapshot(
            &self, new: &NewGroupSnapshot
        ) -> Result<Box<dyn Draft<GroupSnapshotRecord>>>;
        fn group_snapshot(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshotRecord>>;
        fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()>;
        fn cuts_at_once(&self) -> bool;
        fn cuts_groups_at_once(&self) -> bool;
        fn volume_group(&self, id: &VolumeGroupId) -> Result<Option<VolumeGroupRecord>>;
        fn volume_groups(
            &self, after: Option<&VolumeGroupId>, limit: usize
        ) -> Result<Vec<VolumeGroupRecord>>;
        fn save_volume_group(
            &self,
            record: &VolumeGroupRecord,
            was: Option<&VolumeGroupRecord>
        ) -> Result<()>;
        fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()>;
        fn changed_ranges(
            &self, base: &SnapshotId, target: &SnapshotId, start: u64
        ) -> Result<Ranges>;
        fn holds_data(&self, id: &VolumeId) -> Result<bool>;
        fn used_bytes(&self, id: &VolumeId) -> Result<u64>;
        fn ensure_reclaimed(&self, id: &VolumeId) -> Result<()>;
        fn update_volume(
            &self, id: &VolumeId, change: &mut dyn FnMut(&mut VolumeRecord) -> Result<()>
        ) -> Result<VolumeRecord>;
        fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord>;
        fn ensure_no_volume(&self, id: &VolumeId) -> Result<()>;
        fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()>;
        fn condition(&self, id: &VolumeId) -> Result<Condition>;
        fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device>;
        fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>>;
        fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()>;
        fn try_detach_unused(&self, id: &VolumeId, access: DeviceAccess) -> Result<()>;
        fn refresh_device(&self, id: &VolumeId) -> Result<u64>;
        fn attached_volumes(&self) -> Result<Vec<VolumeId>>;
    }
}
