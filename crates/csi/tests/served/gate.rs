//! A pool whose creations can be held up, or made to panic.

use std::sync::{Arc, Condvar, Mutex};

use orlop_model::{
    Condition, Device, DeviceAccess, Draft, NewSnapshot, NewVolume, Pool, PoolCapacity, PoolId,
    Provisioning, Result, SnapshotId, SnapshotRecord, Topology, VolumeId, VolumeRecord,
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

    pass_on! {
        fn id(&self) -> &PoolId;
        fn name(&self) -> &str;
        fn place(&self) -> &Topology;
        fn check_health(&self) -> Result<()>;
        fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity>;
        fn volume(&self, id: &VolumeId) -> Result<Option<VolumeRecord>>;
        fn volumes(
            &self, after: Option<&VolumeId>, limit: usize
        ) -> Vec<(VolumeId, Result<VolumeRecord>)>;
        fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>>;
        fn snapshots(&self, after: Option<&SnapshotId>, limit: usize) -> Vec<SnapshotRecord>;
        fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>>;
        fn update_volume(
            &self, id: &VolumeId, change: &mut dyn FnMut(&mut VolumeRecord)
        ) -> Result<VolumeRecord>;
        fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord>;
        fn ensure_no_volume(&self, id: &VolumeId) -> Result<()>;
        fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()>;
        fn condition(&self, id: &VolumeId) -> Result<Condition>;
        fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device>;
        fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>>;
        fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()>;
        fn refresh_device(&self, id: &VolumeId) -> Result<u64>;
        fn attached_volumes(&self) -> Result<Vec<VolumeId>>;
    }
}
