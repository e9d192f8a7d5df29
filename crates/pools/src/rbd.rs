//! Volumes as images of a Ceph cluster, which many machines reach at once.
//!
//! `layout.rs` shows what is where. Nothing is remembered here: any number of processes work on one
//! pool, and each change says what it expects to find (`volume_records.rs`, `cut.rs`). What a change
//! must survive is said where it is made: `volume_draft.rs` for creation, `snapshots.rs`, `burial.rs`
//! for the end; `fence.rs` keeps a node that lost a volume from writing to it.

mod attach;
mod background;
mod burial;
pub(crate) mod capacity;
mod changes;
mod connection;
pub(crate) mod cut;
mod depth;
mod devices;
mod elsewhere;
mod failure;
mod fence;
pub(crate) mod group_cut;
pub(crate) mod group_snapshots;
mod growth;
mod image_lock;
mod inspect;
mod layout;
pub(crate) mod marker;
mod nodes;
mod own_client;
pub(crate) mod pending;
mod pulse;
mod records;
mod removals;
mod size_lock;
pub(crate) mod snapshots;
mod store;
mod trash_lease;
mod volume_draft;
mod volume_groups;
mod volume_records;

use std::sync::Arc;

use orlop_model::{
    Condition, Device, DeviceAccess, Draft, GroupSnapshotId, GroupSnapshotRecord, NewGroupSnapshot,
    NewSnapshot, NewVolume, NodeId, Pool, PoolCapacity, PoolId, Provisioning, Ranges, Result,
    SnapshotId, SnapshotRecord, Topology, VolumeGroupId, VolumeGroupRecord, VolumeId, VolumeRecord,
};

use connection::Connection;
use group_snapshots::can_restore_groups;
pub use store::RbdPoolConfig;
use store::Store;

#[derive(Debug)]
pub struct RbdPool {
    store: Arc<Store>,
}

impl RbdPool {
    /// What RBD cuts together can be restored where librbd has `rbd_clone4` (decision 0019).
    pub fn cuts_groups() -> bool {
        can_restore_groups()
    }

    pub fn open(config: &RbdPoolConfig) -> Result<Self> {
        Self::open_if(config, |_| Ok(()))
    }

    /// As [`Self::open`], if the id is not refused: before anything in the pool is changed or attached.
    pub fn open_if(
        config: &RbdPoolConfig,
        check: impl FnOnce(&PoolId) -> Result<()>,
    ) -> Result<Self> {
        let store = Store::open(config, check)?;
        Ok(Self { store })
    }

    /// Would [`Self::open`] refuse this before it asks the cluster?
    pub fn check(config: &RbdPoolConfig) -> Result<()> {
        Connection::check_keyring(&config.cluster(), &config.pool)
    }

    /// When no call is under way any more, and before the process ends.
    pub fn close(&self) {
        self.store.close();
    }
}

impl Pool for RbdPool {
    fn id(&self) -> &PoolId {
        &self.store.id
    }

    fn name(&self) -> &str {
        &self.store.name
    }

    fn place(&self) -> &Topology {
        &self.store.topology
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn knows_node(&self, node: &NodeId) -> Result<bool> {
        self.store.knows_node(node)
    }

    fn inline_elsewhere(&self, id: &VolumeId) -> Result<Option<NodeId>> {
        self.store.inline_elsewhere(id)
    }

    fn check_health(&self) -> Result<()> {
        self.store.check_health()
    }

    fn check_takes_writes(&self) -> Result<()> {
        self.store.check_takes_writes()
    }

    fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity> {
        self.store.capacity(provisioning)
    }

    fn volume(&self, id: &VolumeId) -> Result<Option<VolumeRecord>> {
        Ok(self.store.known(id)?.map(|known| known.record))
    }

    fn volumes(
        &self,
        after: Option<&VolumeId>,
        limit: usize,
    ) -> Result<Vec<(VolumeId, Result<VolumeRecord>)>> {
        self.store.volumes(after, limit)
    }

    fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>> {
        Ok(self.store.snapshot_entry(id)?.map(|entry| entry.record))
    }

    fn snapshots(&self, after: Option<&SnapshotId>, limit: usize) -> Result<Vec<SnapshotRecord>> {
        self.store.snapshots(after, limit)
    }

    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>> {
        Ok(Box::new(self.store.begin_volume(new)?))
    }

    fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>> {
        Ok(Box::new(self.store.begin_snapshot(new)?))
    }

    fn begin_group_snapshot(
        &self,
        new: &NewGroupSnapshot,
    ) -> Result<Box<dyn Draft<GroupSnapshotRecord>>> {
        Ok(Box::new(self.store.begin_group_snapshot(new)?))
    }

    fn group_snapshot(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshotRecord>> {
        self.store.group_snapshot(id)
    }

    fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        self.store.ensure_no_group_snapshot(id)
    }

    fn cuts_at_once(&self) -> bool {
        true
    }

    fn cuts_groups_at_once(&self) -> bool {
        true
    }

    fn volume_group(&self, id: &VolumeGroupId) -> Result<Option<VolumeGroupRecord>> {
        self.store.volume_group(id)
    }

    fn volume_groups(
        &self,
        after: Option<&VolumeGroupId>,
        limit: usize,
    ) -> Result<Vec<VolumeGroupRecord>> {
        self.store.volume_groups(after, limit)
    }

    fn save_volume_group(
        &self,
        record: &VolumeGroupRecord,
        was: Option<&VolumeGroupRecord>,
    ) -> Result<()> {
        self.store.save_volume_group(record, was)
    }

    fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()> {
        self.store.ensure_no_volume_group(id)
    }

    fn allocated_ranges(&self, id: &SnapshotId, start: u64) -> Result<Ranges> {
        self.store.allocated_ranges(id, start)
    }

    fn changed_ranges(&self, base: &SnapshotId, target: &SnapshotId, start: u64) -> Result<Ranges> {
        self.store.changed_ranges(base, target, start)
    }

    fn holds_data(&self, id: &VolumeId) -> Result<bool> {
        self.store.holds_data(id)
    }

    fn used_bytes(&self, id: &VolumeId) -> Result<u64> {
        self.store.used_bytes(id)
    }

    fn ensure_reclaimed(&self, id: &VolumeId) -> Result<()> {
        self.store.ensure_reclaimed(id)
    }

    fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord> {
        self.store.update_volume(id, change)
    }

    fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord> {
        self.store.ensure_capacity(id, bytes)
    }

    fn ensure_no_volume(&self, id: &VolumeId) -> Result<()> {
        self.store.ensure_no_volume(id)
    }

    fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()> {
        self.store.ensure_no_snapshot(id)
    }

    fn condition(&self, id: &VolumeId) -> Result<Condition> {
        self.store.condition(id)
    }

    fn conditions(&self, ids: &[VolumeId]) -> Vec<Condition> {
        self.store.conditions(ids)
    }

    fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device> {
        self.store.ensure_attached(id, access)
    }

    fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        self.store.attached(id, access)
    }

    fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        self.store.ensure_detached(id, access)
    }

    fn try_detach_unused(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        self.store.try_detach_unused(id, access)
    }

    fn refresh_device(&self, id: &VolumeId) -> Result<u64> {
        self.store.refresh_device(id)
    }

    fn attached_volumes(&self) -> Result<Vec<VolumeId>> {
        self.store.attached_volumes()
    }

    fn device_trouble(&self, id: &VolumeId) -> Result<Option<String>> {
        self.store.device_trouble(id)
    }

    fn ensure_fenced(&self, id: &VolumeId, node: &NodeId) -> Result<()> {
        self.store.ensure_fenced(id, node)
    }
}
