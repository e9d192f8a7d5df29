//! A pool whose creations can be held up, or made to panic, and whose snapshots can be endless.

use std::sync::{Arc, Condvar, Mutex};

use orlop_model::{
    ByteRange, Catalogue, ChangedBlocks, ContentSource, Devices, Draft, Footprint, GroupSnapshotId,
    GroupSnapshotRecord, Health, NewGroupSnapshot, NewSnapshot, NewVolume, Pool, PoolCapacity,
    PoolInfo, PoolSpace, Provisioner, Provisioning, Ranges, Result, Shared, SnapshotId,
    SnapshotRecord, VolumeId, VolumeRecord,
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
    fn provisioner(&self) -> &dyn Provisioner {
        self
    }

    fn changed_blocks(&self) -> &dyn ChangedBlocks {
        self
    }

    pass_on! {
        fn info(&self) -> &PoolInfo;
        fn catalogue(&self) -> &dyn Catalogue;
        fn devices(&self) -> &dyn Devices;
        fn health(&self) -> &dyn Health;
        fn shared(&self) -> Option<&dyn Shared>;
    }
}

impl Provisioner for GatedPool {
    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>> {
        self.gate.pass();
        self.pool.begin_volume(new)
    }

    pass_on! {
        fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity>;
        fn space(&self) -> Result<PoolSpace>;
        fn used_bytes(&self, id: &VolumeId) -> Result<u64>;
        fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>>;
        fn begin_group_snapshot(
            &self, new: &NewGroupSnapshot
        ) -> Result<Box<dyn Draft<GroupSnapshotRecord>>>;
        fn has_atomic_copies(&self) -> bool;
        fn has_atomic_groups(&self) -> bool;
        fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord>;
        fn ensure_reclaimed(&self, id: &VolumeId) -> Result<()>;
        fn ensure_no_volume(&self, id: &VolumeId) -> Result<()>;
        fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()>;
        fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()>;
    }
}

impl ChangedBlocks for GatedPool {
    fn allocated_ranges(&self, id: &SnapshotId, start: u64) -> Result<Ranges> {
        let is_endless = self.gate.state.lock().unwrap().is_endless;
        if is_endless {
            return Ok(Box::new(Endless::new(Arc::clone(&self.gate))));
        }
        self.pool.allocated_ranges(id, start)
    }

    pass_on! {
        fn changed_ranges(
            &self, base: &SnapshotId, target: &SnapshotId, start: u64
        ) -> Result<Ranges>;
        fn holds_data(&self, id: &VolumeId) -> Result<bool>;
        fn footprint(&self, of: &ContentSource) -> Result<Option<Footprint>>;
    }
}
