//! Volumes as files in a directory, attached by loop devices.
//!
//! A volume is a sparse or preallocated file; snapshots and clones share its extents where the
//! filesystem can (XFS, btrfs) and are sparse copies elsewhere. `layout.rs` shows the directory.
//! What a change must survive is said where it is made: `staged.rs` for creation,
//! `update.rs`, `delete.rs`.

mod attach;
mod ballast;
mod condition;
mod delete;
mod failure;
mod layout;
mod ledger;
mod managed;
mod marker;
mod open;
mod original;
mod room;
mod shelf;
mod snapshot_draft;
mod staged;
mod store;
#[cfg(test)]
mod testbed;
mod update;
mod volume_draft;

use std::sync::Arc;

use orlop_model::{
    Condition, Device, DeviceAccess, Draft, NewSnapshot, NewVolume, Pool, PoolCapacity, PoolId,
    Provisioning, Result, SnapshotId, SnapshotRecord, Topology, VolumeId, VolumeRecord,
};

pub use open::ImagePoolConfig;
pub use room::Floor;
use store::Store;

/// Open, it holds the pool's lock: nobody else uses the directory.
#[derive(Debug)]
pub struct ImagePool {
    store: Arc<Store>,
}

impl ImagePool {
    /// Makes the pool if there is none.
    pub fn open(config: ImagePoolConfig) -> Result<Self> {
        let store = Store::open(config)?;
        Ok(Self { store })
    }

    /// For an orderly end. A managed pool gives its image back, unless volumes are in use.
    pub fn close(&self) {
        if let Some(managed) = &self.store.managed {
            managed.close();
        }
    }
}

impl Pool for ImagePool {
    fn id(&self) -> &PoolId {
        self.store.id()
    }

    fn name(&self) -> &str {
        &self.store.name
    }

    fn place(&self) -> &Topology {
        &self.store.topology
    }

    fn check_health(&self) -> Result<()> {
        self.store.check_health()
    }

    fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity> {
        self.store.capacity(provisioning)
    }

    fn volume(&self, id: &VolumeId) -> Result<Option<VolumeRecord>> {
        self.store.volumes.get(id)
    }

    fn volumes(
        &self,
        after: Option<&VolumeId>,
        limit: usize,
    ) -> Vec<(VolumeId, Result<VolumeRecord>)> {
        self.store.volumes.page(after, limit)
    }

    fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>> {
        self.store.snapshots.get(id)
    }

    fn snapshots(&self, after: Option<&SnapshotId>, limit: usize) -> Vec<SnapshotRecord> {
        self.store.snapshots.page_of_whole(after, limit)
    }

    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>> {
        Ok(Box::new(self.store.begin_volume(new)?))
    }

    fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>> {
        Ok(Box::new(self.store.begin_snapshot(new)?))
    }

    fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord),
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

    fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device> {
        self.store.ensure_attached(id, access)
    }

    fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        self.store.attached(id, access)
    }

    fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        self.store.attachments.ensure_detached(id, access)
    }

    fn refresh_device(&self, id: &VolumeId) -> Result<u64> {
        self.store.refresh_device(id)
    }

    fn attached_volumes(&self) -> Result<Vec<VolumeId>> {
        self.store.attached_volumes()
    }
}
