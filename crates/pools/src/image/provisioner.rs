//! Making, growing and removing volumes and snapshots.
//!
//! What a change must survive is said where it is made: `pending_object.rs` for creation,
//! `group_snapshot_draft.rs` for that of several at once, `growth.rs`, `delete.rs`.

mod delete;
mod group_delete;
mod group_snapshot_draft;
mod growth;
mod reclaim;
mod snapshot_draft;
mod volume_draft;

use std::sync::Arc;

use orlop_model::{
    Draft, Error, GroupSnapshotId, GroupSnapshotRecord, NewGroupSnapshot, NewSnapshot, NewVolume,
    PoolCapacity, Provisioner, Provisioning, Result, SnapshotId, SnapshotRecord, VolumeId,
    VolumeRecord,
};

use super::attach::LoopDevices;
use super::capacity::Capacity;
use super::catalogue::ImageCatalogue;
use super::copy_source::{check_data, used_bytes};
use super::directory::PoolDirectory;
use super::emergency_reserve::EmergencyReserve;
use super::subvolume_snapshot::SubvolumeSnapshots;
use super::templates::Templates;
pub(super) use group_delete::sweep_orphans;
use group_snapshot_draft::GroupSnapshotDraft;
use snapshot_draft::SnapshotDraft;
use volume_draft::VolumeDraft;

/// Each part owns its state; what is here has none.
#[derive(Debug, Clone)]
pub(super) struct ImageProvisioner {
    directory: Arc<PoolDirectory>,
    reserve: Arc<EmergencyReserve>,
    catalogue: Arc<ImageCatalogue>,
    capacity: Arc<Capacity>,
    devices: Arc<LoopDevices>,
    templates: Arc<Templates>,
    subvolume_snapshots: Arc<SubvolumeSnapshots>,
}

impl ImageProvisioner {
    pub(super) fn new(
        directory: Arc<PoolDirectory>,
        reserve: Arc<EmergencyReserve>,
        catalogue: Arc<ImageCatalogue>,
        capacity: Arc<Capacity>,
        devices: Arc<LoopDevices>,
        templates: Arc<Templates>,
    ) -> Self {
        let subvolume_snapshots =
            SubvolumeSnapshots::new(Arc::clone(&directory), Arc::clone(&catalogue));
        Self {
            directory,
            reserve,
            catalogue,
            capacity,
            devices,
            templates,
            subvolume_snapshots: Arc::new(subvolume_snapshots),
        }
    }
}

impl Provisioner for ImageProvisioner {
    fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity> {
        self.capacity.available(provisioning)
    }

    fn used_bytes(&self, id: &VolumeId) -> Result<u64> {
        used_bytes(self.catalogue.volume_index(), id)
    }

    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>> {
        Ok(Box::new(VolumeDraft::begin(self, new)?))
    }

    fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>> {
        Ok(Box::new(SnapshotDraft::begin(self, new, None)?))
    }

    fn begin_group_snapshot(
        &self,
        new: &NewGroupSnapshot,
    ) -> Result<Box<dyn Draft<GroupSnapshotRecord>>> {
        Ok(Box::new(GroupSnapshotDraft::begin(self, new)?))
    }

    /// Shared extents are; a copy is read while it is written.
    fn has_atomic_copies(&self) -> bool {
        self.directory.shares_extents()
    }

    fn has_atomic_groups(&self) -> bool {
        self.subvolume_snapshots.are_possible()
    }

    fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord> {
        self.directory.check_present()?;
        let record = self.catalogue.volume_index().require(id)?;
        if bytes <= record.capacity_bytes {
            return Ok(record);
        }
        check_data(self.catalogue.volume_index(), &record)?;
        self.devices.check_shows_data(id)?;
        if is_thick(&record) {
            self.directory.check_thick()?;
        }
        self.grow(record, bytes)
    }

    fn ensure_reclaimed(&self, id: &VolumeId) -> Result<()> {
        let record = self.catalogue.volume_index().require(id)?;
        check_data(self.catalogue.volume_index(), &record)?;
        match record.parameters.provisioning {
            Provisioning::Thick => Ok(()),
            Provisioning::Thin => self.punch_zeroes(id),
        }
    }

    fn ensure_no_volume(&self, id: &VolumeId) -> Result<()> {
        let volumes = self.catalogue.volume_index();
        self.directory.check_present()?;
        self.capacity.adopt(volumes, id)?;
        if volumes.get(id)?.is_some() {
            // A file that a loop device still holds would keep its space, unseen.
            self.devices.ensure_no_device(id)?;
            self.devices.check_deletable(id)?;
        }
        self.ensure_gone(volumes, id)
    }

    fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()> {
        let snapshots = self.catalogue.snapshot_index();
        self.directory.check_present()?;
        self.capacity.adopt(snapshots, id)?;
        match snapshots.get(id)?.and_then(|record| record.group) {
            Some(group) if self.catalogue.group_snapshot_index().holds(&group) => {
                Err(Error::invalid(
                    "snapshot_id",
                    format!("is a member of group snapshot {group} and is deleted with it"),
                ))
            }
            // A member without its group is a leftover.
            Some(_) | None => self.ensure_gone(snapshots, id),
        }
    }

    fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        self.directory.check_present()?;
        self.catalogue.group_snapshot_index().adopt(id)?;
        match self.catalogue.group_snapshot_index().get(id)? {
            Some(record) => self.delete_group(&record),
            None => Ok(()),
        }
    }
}

pub(super) fn is_thick(volume: &VolumeRecord) -> bool {
    match volume.parameters.provisioning {
        Provisioning::Thin => false,
        Provisioning::Thick => true,
    }
}
