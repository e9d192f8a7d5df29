//! Volumes as files in a directory, attached by loop devices.
//!
//! A volume is a sparse or preallocated file; snapshots and clones share its extents where the
//! filesystem can (XFS, btrfs) and are sparse copies elsewhere. `layout.rs` shows the directory.
//! What a change must survive is said where it is made: `staged.rs` for creation,
//! `group_snapshot_draft.rs` for that of several at once, `update.rs`, `delete.rs`.

pub(crate) mod attach;
mod ballast;
mod changes;
mod check;
mod condition;
mod delete;
mod entering;
mod failure;
mod foreign;
mod group_delete;
mod group_snapshot_draft;
mod inspect;
mod layout;
mod ledger;
mod making;
mod managed;
pub(crate) mod marker;
mod moment;
mod open;
mod original;
mod reclaim;
mod register;
mod rights;
mod room;
mod served_by;
mod set_aside;
mod shelf;
mod snapshot_draft;
mod staged;
mod store;
mod survey;
mod templates;
#[cfg(test)]
mod testbed;
mod update;
mod volume_draft;
mod volume_groups;

use std::sync::Arc;

use orlop_model::{
    Catalogue, ChangedBlocks, Condition, Device, DeviceAccess, Devices, Draft, GroupSnapshotId,
    GroupSnapshotRecord, Health, NewGroupSnapshot, NewSnapshot, NewVolume, Pool, PoolCapacity,
    PoolId, PoolInfo, Provisioner, Provisioning, Ranges, Result, Shared, SnapshotId,
    SnapshotRecord, StorageProbe, VolumeGroupId, VolumeGroupRecord, VolumeId, VolumeRecord,
};

pub use check::Start;
pub use inspect::Inspection;
pub use open::ImagePoolConfig;
pub use room::Floor;
pub use served_by::ServedBy;
use store::Store;

/// Open, it holds the pool's lock: nobody else uses the directory.
#[derive(Debug)]
pub struct ImagePool {
    store: Arc<Store>,
}

impl ImagePool {
    /// Makes the pool if there is none.
    pub fn open(config: ImagePoolConfig) -> Result<Self> {
        Self::open_if(config, |_| Ok(()))
    }

    /// As [`Self::open`], if the id is not refused: before anything in the pool is changed or attached.
    pub fn open_if(
        config: ImagePoolConfig,
        check: impl FnOnce(&PoolId) -> Result<()>,
    ) -> Result<Self> {
        let store = Store::open(config, check)?;
        Ok(Self { store })
    }

    /// The stamp of the run directory whose daemon served the pool last.
    pub fn run_stamp(&self) -> Option<String> {
        ServedBy::read(self.store.marker.root())?.run_stamp
    }

    /// The run directory with this stamp has the records of all that is used from now on.
    pub fn set_run_stamp(&self, stamp: String) -> Result<()> {
        let served_by = ServedBy {
            name: self.store.name().to_owned(),
            place: self.store.info.topology.clone(),
            run_stamp: Some(stamp),
        };
        served_by.write(self.store.marker.root())
    }

    /// For an orderly end, when no thread does anything in the pool any more. A managed pool gives its
    /// image back, unless volumes are in use.
    pub fn close(&self) {
        self.store.surveyor.wait();
        self.store.templates.clear();
        if let Some(managed) = &self.store.managed {
            managed.close();
        }
        // Threads that wait for another pool may keep this value, and a successor need not wait.
        self.store.marker.leave();
    }
}

impl Drop for ImagePool {
    /// The pool's lock ends with the last who holds the store.
    fn drop(&mut self) {
        self.store.surveyor.wait();
    }
}

impl Pool for ImagePool {
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
        self
    }

    fn changed_blocks(&self) -> &dyn ChangedBlocks {
        self
    }

    fn health(&self) -> &dyn Health {
        self
    }

    fn shared(&self) -> Option<&dyn Shared> {
        None
    }
}

impl Catalogue for ImagePool {
    fn volume(&self, id: &VolumeId) -> Result<Option<VolumeRecord>> {
        self.store.volumes.get(id)
    }

    fn volumes(
        &self,
        after: Option<&VolumeId>,
        limit: usize,
    ) -> Result<Vec<(VolumeId, Result<VolumeRecord>)>> {
        Ok(self.store.volumes.page(after, limit))
    }

    fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord> {
        self.store.update_volume(id, change)
    }

    fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>> {
        self.store.snapshots.get(id)
    }

    fn snapshots(&self, after: Option<&SnapshotId>, limit: usize) -> Result<Vec<SnapshotRecord>> {
        Ok(self.store.snapshots.page_of_whole(after, limit))
    }

    fn group_snapshot(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshotRecord>> {
        self.store.group_snapshots.get(id)
    }

    fn volume_group(&self, id: &VolumeGroupId) -> Result<Option<VolumeGroupRecord>> {
        self.store.volume_groups.get(id)
    }

    fn volume_groups(
        &self,
        after: Option<&VolumeGroupId>,
        limit: usize,
    ) -> Result<Vec<VolumeGroupRecord>> {
        Ok(self.store.volume_groups.page_of_whole(after, limit))
    }

    /// Nobody else writes to this pool, so what it was is known.
    fn save_volume_group(
        &self,
        record: &VolumeGroupRecord,
        _was: Option<&VolumeGroupRecord>,
    ) -> Result<()> {
        self.store.save_volume_group(record)
    }

    fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()> {
        self.store.ensure_no_volume_group(id)
    }
}

impl Provisioner for ImagePool {
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
        Ok(Box::new(self.store.begin_snapshot(new, None)?))
    }

    fn begin_group_snapshot(
        &self,
        new: &NewGroupSnapshot,
    ) -> Result<Box<dyn Draft<GroupSnapshotRecord>>> {
        Ok(Box::new(self.store.begin_group_snapshot(new)?))
    }

    /// Shared extents are; a copy is read while it is written.
    fn has_atomic_copies(&self) -> bool {
        self.store.shares_extents
    }

    fn has_atomic_groups(&self) -> bool {
        self.store.can_hold_moment()
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

impl Devices for ImagePool {
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
}

impl ChangedBlocks for ImagePool {
    fn allocated_ranges(&self, id: &SnapshotId, start: u64) -> Result<Ranges> {
        self.store.allocated_ranges(id, start)
    }

    fn changed_ranges(&self, base: &SnapshotId, target: &SnapshotId, start: u64) -> Result<Ranges> {
        self.store.changed_ranges(base, target, start)
    }

    fn holds_data(&self, id: &VolumeId) -> Result<bool> {
        self.store.holds_data(id)
    }
}

impl Health for ImagePool {
    fn check(&self) -> Result<()> {
        self.store.check_health()
    }

    fn storage_probe(&self) -> Option<&dyn StorageProbe> {
        Some(self)
    }

    fn condition(&self, id: &VolumeId) -> Result<Condition> {
        self.store.condition(id)
    }

    fn conditions(&self, ids: &[VolumeId]) -> Vec<Condition> {
        self.store.conditions(ids)
    }
}

impl StorageProbe for ImagePool {
    fn try_storage(&self) -> Result<()> {
        self.store.try_storage()
    }
}
