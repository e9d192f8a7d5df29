//! Making, growing and removing volumes and snapshots; the draft of a volume is here.
//!
//! What a change must survive is said where it is made: `pending_object.rs` for creation,
//! `group_snapshot_draft.rs` for that of several at once, `growth.rs`, `delete.rs`.

mod delete;
mod group_delete;
mod group_snapshot_draft;
mod growth;
mod reclaim;
mod snapshot_draft;

use std::sync::Arc;

use orlop_model::{
    ContentSource, Draft, Error, FormatState, GroupSnapshotId, GroupSnapshotRecord, NewFilesystem,
    NewGroupSnapshot, NewSnapshot, NewVolume, PoolCapacity, Provisioner, Provisioning, Result,
    SnapshotId, SnapshotRecord, VolumeId, VolumeRecord,
};
use orlop_sys::file::{self, CloneOutcome};

use super::attach::LoopDevices;
use super::capacity::{Capacity, Demand, Reservation};
use super::catalogue::{ImageCatalogue, check_data, used_bytes};
use super::copy_source::{CopySource, Templates, renew_identity};
use super::directory::PoolDirectory;
use super::emergency_reserve::EmergencyReserve;
use super::failure::cannot;
use super::pending_object::{PendingObject, reserve};
use super::subvolume_snapshot::{SubvolumeSnapshots, ThickDraft};
use crate::recorded::new_volume_record;
pub(super) use group_delete::sweep_orphans;
use group_snapshot_draft::GroupSnapshotDraft;
use snapshot_draft::SnapshotDraft;

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

    /// Thick takes everything at once, also of a copy: it shares nothing in the end.
    fn taken_at_once(&self, new: &NewVolume, source: Option<&CopySource>) -> Result<u64> {
        match (new.parameters.provisioning, source) {
            (Provisioning::Thick, _) => Ok(new.capacity_bytes),
            (Provisioning::Thin, None) => Ok(0),
            (Provisioning::Thin, Some(source)) => {
                let room_for_source = match &new.source {
                    Some(ContentSource::Volume(id)) => {
                        is_thick(&self.catalogue.volume_index().require(id)?)
                    }
                    Some(ContentSource::Snapshot(_)) | None => false,
                };
                let taken = room_for_source || !self.directory.shares_extents();
                Ok(if taken { source.allocated() } else { 0 })
            }
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
        self.directory.check_takes_data()?;
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

/// The reservation is the last field, so that it is given back after the files are gone.
#[derive(Debug)]
struct VolumeDraft {
    directory: Arc<PoolDirectory>,
    catalogue: Arc<ImageCatalogue>,
    capacity: Arc<Capacity>,
    pending: PendingObject,
    /// Until the capture: a draft whose capture failed can never be committed as it is.
    source: Option<Arc<CopySource>>,
    is_copy: bool,
    /// The identity of a filesystem that is copied from a template.
    filesystem: Option<NewFilesystem>,
    /// Bytes that the capture did not copy, because the source has them too.
    shared: u64,
    record: VolumeRecord,
    _thick: Option<ThickDraft>,
    reservation: Reservation,
}

impl VolumeDraft {
    fn begin(pool: &ImageProvisioner, new: &NewVolume) -> Result<Self> {
        pool.directory.check_takes_data()?;
        // A damaged volume keeps its name until an operator has inspected it.
        pool.catalogue.volume_index().get(&new.id)?;
        if new.parameters.provisioning == Provisioning::Thick {
            pool.directory.check_thick()?;
        }
        let source = CopySource::of_new(&pool.catalogue, &pool.devices, new)?.map(Arc::new);
        let demand = Demand {
            length: new.capacity_bytes,
            promise: new.capacity_bytes,
            physical: pool.taken_at_once(new, source.as_deref())?,
            must_fit: true,
        };
        let reservation = pool.capacity.try_reserve(demand)?;
        // Only now: it may not take what the volume was promised.
        let (source, filesystem) = match source {
            Some(source) => (Some(source), None),
            None => pool.templates.for_volume(new).unzip(),
        };
        let pending = PendingObject::create(&pool.directory, &new.id)?;
        let thick = match new.parameters.provisioning {
            Provisioning::Thin => None,
            Provisioning::Thick => Some(pool.subvolume_snapshots.note_thick_draft()),
        };
        let mut draft = Self {
            directory: Arc::clone(&pool.directory),
            catalogue: Arc::clone(&pool.catalogue),
            capacity: Arc::clone(&pool.capacity),
            pending,
            _thick: thick,
            is_copy: source.is_some(),
            source,
            filesystem,
            shared: 0,
            record: new_volume_record(new),
            reservation,
        };
        if let Some(NewFilesystem { fs, uuid }) = filesystem {
            draft.record.format = FormatState::Formatted { fs, uuid };
        }
        match &draft.source {
            Some(source) => source.prepare(draft.pending.data(), pool.directory.backing()),
            None => draft.shape()?,
        }
        Ok(draft)
    }

    /// Gives the data its full length and, if thick, its space: for the holes of a copy, and for the
    /// extents that it shares with its source until here.
    fn shape(&mut self) -> Result<()> {
        let shaping = || format!("reserve space for {}", self.record.label());
        let bytes = self.record.capacity_bytes;
        match self.record.parameters.provisioning {
            Provisioning::Thin => {
                file::set_length(self.pending.data(), bytes).map_err(cannot(shaping))?
            }
            Provisioning::Thick if self.is_copy && self.directory.shares_extents() => {
                self.pending.set_apart(bytes, self.directory.backing())?;
                self.shared = 0;
            }
            Provisioning::Thick => {
                reserve(self.pending.data(), bytes, self.directory.backing())
                    .map_err(cannot(shaping))?;
            }
        }
        let allocated = self.pending.allocated()?;
        self.reservation.note_written(allocated, self.shared);
        Ok(())
    }
}

impl Draft<VolumeRecord> for VolumeDraft {
    fn capture(&mut self) -> Result<()> {
        if let Some(source) = &self.source {
            self.shared =
                match source.capture_into(self.pending.data(), self.directory.shares_extents())? {
                    CloneOutcome::Shared => self.pending.allocated()?,
                    CloneOutcome::Unsupported => 0,
                };
            if let Some(filesystem) = &self.filesystem {
                renew_identity(self.pending.data(), filesystem)?;
            }
            self.source = None;
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<VolumeRecord> {
        self.capture()?;
        if self.is_copy {
            self.shape()?;
        }
        let Self { catalogue, capacity, pending, record, reservation, .. } = self.as_mut();
        pending.commit(record, catalogue.volume_index(), capacity, reservation)
    }
}

#[cfg(test)]
mod tests;
