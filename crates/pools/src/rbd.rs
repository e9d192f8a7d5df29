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
    Catalogue, ChangedBlocks, Devices, Draft, GroupSnapshotId, GroupSnapshotRecord, Health,
    NewGroupSnapshot, NewSnapshot, NewVolume, NodeId, Pool, PoolCapacity, PoolId, PoolInfo,
    Provisioner, Provisioning, Result, Shared, SnapshotId, SnapshotRecord, VolumeGroupId,
    VolumeGroupRecord, VolumeId, VolumeRecord,
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
    fn info(&self) -> &PoolInfo {
        &self.store.info
    }

    fn catalogue(&self) -> &dyn Catalogue {
        self
    }

    fn provisioner(&self) -> &dyn Provisioner {
        self
    }

    fn devices(&self) -> &dyn Devices {
        &*self.store
    }

    fn changed_blocks(&self) -> &dyn ChangedBlocks {
        &*self.store
    }

    fn health(&self) -> &dyn Health {
        &*self.store
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(self)
    }
}

impl Catalogue for RbdPool {
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

    fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord> {
        self.store.update_volume(id, change)
    }

    fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>> {
        Ok(self.store.snapshot_entry(id)?.map(|entry| entry.record))
    }

    fn snapshots(&self, after: Option<&SnapshotId>, limit: usize) -> Result<Vec<SnapshotRecord>> {
        self.store.snapshots(after, limit)
    }

    fn group_snapshot(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshotRecord>> {
        self.store.group_snapshot(id)
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
}

impl Provisioner for RbdPool {
    fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity> {
        self.store.capacity(provisioning)
    }

    fn used_bytes(&self, id: &VolumeId) -> Result<u64> {
        self.store.used_bytes(id)
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

    fn has_atomic_copies(&self) -> bool {
        true
    }

    fn has_atomic_groups(&self) -> bool {
        true
    }

    fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord> {
        self.store.ensure_capacity(id, bytes)
    }

    fn ensure_reclaimed(&self, id: &VolumeId) -> Result<()> {
        self.store.ensure_reclaimed(id)
    }

    fn ensure_no_volume(&self, id: &VolumeId) -> Result<()> {
        self.store.ensure_no_volume(id)
    }

    fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()> {
        self.store.ensure_no_snapshot(id)
    }

    fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        self.store.ensure_no_group_snapshot(id)
    }
}

impl Shared for RbdPool {
    fn knows_node(&self, node: &NodeId) -> Result<bool> {
        self.store.knows_node(node)
    }

    fn inline_elsewhere(&self, id: &VolumeId) -> Result<Option<NodeId>> {
        self.store.inline_elsewhere(id)
    }

    fn ensure_fenced(&self, id: &VolumeId, node: &NodeId) -> Result<()> {
        self.store.ensure_fenced(id, node)
    }

    fn check_takes_writes(&self) -> Result<()> {
        self.store.check_takes_writes()
    }

    fn device_trouble(&self, id: &VolumeId) -> Result<Option<String>> {
        self.store.device_trouble(id)
    }
}
