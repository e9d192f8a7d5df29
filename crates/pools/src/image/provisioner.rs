//! Making, growing and removing volumes and snapshots. How a volume is made is here, up to the rename that
//! makes it visible.
//!
//! What a change must survive is said where it is made: [`PendingObject`] for creation,
//! `group_snapshot_draft.rs` for that of several at once, `growth.rs`, `delete.rs`.

mod delete;
mod group_delete;
mod group_snapshot_draft;
mod growth;
mod reclaim;
mod snapshot_draft;

use std::fmt::Display;
use std::fs::File;
use std::sync::Arc;

use orlop_model::{
    ContentSource, Draft, Error, FormatState, GroupSnapshotId, GroupSnapshotRecord, NewFilesystem,
    NewGroupSnapshot, NewSnapshot, NewVolume, PoolCapacity, PoolSpace, Provisioner, Provisioning,
    Result, SnapshotId, SnapshotRecord, VolumeId, VolumeRecord,
};
use orlop_sys::file::{self, BackingKind, CloneOutcome, RenameOutcome};

use super::PoolDirectory;
use super::attach::LoopDevices;
use super::capacity::{Demand, ImageCapacity, NewObject, Reservation};
use super::catalogue::{ImageCatalogue, ObjectIndex, SHARED, StoredRecord, used_bytes};
use super::copy_source::{CopySource, Templates, renew_identity};
use super::emergency_reserve::EmergencyReserve;
use super::failure::cannot;
use super::layout::ObjectDir;
use super::subvolume_snapshot::{SubvolumeSnapshots, ThickDraft};
use crate::recorded::{Recorded, new_volume_record, to_text};
pub(super) use group_delete::remove_orphaned_members;
use group_snapshot_draft::ImageGroupSnapshotDraft;
use snapshot_draft::ImageSnapshotDraft;

/// Each part owns its state; what is here has none.
#[derive(Debug, Clone)]
pub(super) struct ImageProvisioner {
    directory: Arc<PoolDirectory>,
    reserve: Arc<EmergencyReserve>,
    catalogue: Arc<ImageCatalogue>,
    capacity: Arc<ImageCapacity>,
    devices: Arc<LoopDevices>,
    templates: Arc<Templates>,
    subvolume_snapshots: Arc<SubvolumeSnapshots>,
}

impl ImageProvisioner {
    pub(super) fn new(
        directory: Arc<PoolDirectory>,
        reserve: Arc<EmergencyReserve>,
        catalogue: Arc<ImageCatalogue>,
        capacity: Arc<ImageCapacity>,
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

    fn space(&self) -> Result<PoolSpace> {
        self.capacity.figures()
    }

    fn used_bytes(&self, id: &VolumeId) -> Result<u64> {
        used_bytes(self.catalogue.volume_index(), id)
    }

    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>> {
        Ok(Box::new(ImageVolumeDraft::begin(self, new)?))
    }

    fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>> {
        Ok(Box::new(ImageSnapshotDraft::begin(self, new, None)?))
    }

    fn begin_group_snapshot(
        &self,
        new: &NewGroupSnapshot,
    ) -> Result<Box<dyn Draft<GroupSnapshotRecord>>> {
        Ok(Box::new(ImageGroupSnapshotDraft::begin(self, new)?))
    }

    /// Shared extents are; a copy is read while it is written.
    fn has_atomic_copies(&self) -> bool {
        self.directory.shares_extents()
    }

    fn has_atomic_groups(&self) -> bool {
        self.subvolume_snapshots.are_possible()
    }

    fn check_takes(&self, id: &VolumeId, bytes: u64) -> Result<()> {
        match is_thick(&self.catalogue.volume_index().require(id)?) {
            true => Ok(()),
            false => self.capacity.check_takes(&format!("volume {id}"), bytes),
        }
    }

    fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord> {
        self.grow_volume(id, bytes)
    }

    fn ensure_reclaimed(&self, id: &VolumeId) -> Result<()> {
        self.reclaim_volume(id)
    }

    fn ensure_no_volume(&self, id: &VolumeId) -> Result<()> {
        self.delete_volume(id)
    }

    fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()> {
        self.delete_snapshot(id)
    }

    fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        self.delete_group_snapshot(id)
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
struct ImageVolumeDraft {
    directory: Arc<PoolDirectory>,
    catalogue: Arc<ImageCatalogue>,
    capacity: Arc<ImageCapacity>,
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

impl ImageVolumeDraft {
    fn begin(pool: &ImageProvisioner, new: &NewVolume) -> Result<Self> {
        pool.directory.check_takes_data()?;
        new.parameters.check_no_layout(pool.directory.name(), "image")?;
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

impl Draft<VolumeRecord> for ImageVolumeDraft {
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

/// A volume or snapshot in the making: a directory that is filled under a temporary name and
/// renamed into its place.
#[derive(Debug)]
pub(super) struct PendingObject {
    /// Before the directory, and so closed before that is removed: the blocks of a file that is open are
    /// not freed at once.
    data: File,
    home: DraftDir,
    keeps_order: bool,
}

/// Removed when dropped, unless it was moved into its place by then.
#[derive(Debug)]
struct DraftDir(ObjectDir);

impl PendingObject {
    pub(super) fn create(pool: &PoolDirectory, name: &impl Display) -> Result<Self> {
        let home = ObjectDir::new(pool.layout().new_in_staging(name));
        home.create()?;
        let home = DraftDir(home);
        let path = home.0.data();
        let data =
            file::create_file(&path).map_err(cannot(|| format!("create {}", path.display())))?;
        Ok(Self { data, home, keeps_order: pool.keeps_order() })
    }

    pub(super) fn data(&self) -> &File {
        &self.data
    }

    /// Makes the data, which may share extents with what it is a copy of, a copy that has `bytes` for
    /// itself. That takes as long as the data is large, and comes after the capture, when nothing holds the
    /// source's writers any more. A crash leaves it in staging/ with the rest of the draft.
    pub(super) fn set_apart(&mut self, bytes: u64, backing: BackingKind) -> Result<()> {
        let data = self.home.0.data();
        let apart = data.with_extension("apart");
        let copying = || format!("unshare the blocks of {}", data.display());
        let own = file::create_file(&apart).map_err(cannot(copying))?;
        reserve(&own, bytes, backing).map_err(cannot(copying))?;
        file::copy_apart(&self.data, &own).map_err(cannot(copying))?;
        file::ensure_no_file(&data).map_err(cannot(copying))?;
        match file::rename_new(&apart, &data).map_err(cannot(copying))? {
            RenameOutcome::Renamed => {}
            RenameOutcome::TargetExists => {
                return Err(Error::failed(copying(), "another file has its name"));
            }
        }
        self.data = own;
        Ok(())
    }

    pub(super) fn allocated(&self) -> Result<u64> {
        file::allocated_bytes(&self.home.0.data())
            .map_err(cannot(|| "read the size of the new data".to_owned()))
    }

    pub(super) fn note_shared(&self, bytes: u64) {
        if let Err(error) = file::set_number(&self.data, SHARED, bytes) {
            tracing::debug!(
                %error,
                "cannot record how much of this copy is shared; after a restart all of it \
                 counts as shared"
            );
        }
    }

    /// Gives it its place in the pool and in the catalogue, or finds there what an earlier attempt
    /// made and could not report. What is there may also be something else: a volume that came back
    /// with a pool that had been away.
    pub(super) fn commit<R: StoredRecord>(
        &self,
        record: &R,
        index: &ObjectIndex<R>,
        capacity: &ImageCapacity,
        reservation: &mut Reservation,
    ) -> Result<R> {
        let allocated = self.allocated()?;
        // A volume that is no copy may share with a template, and with all others made from it.
        if record.is_copy() || reservation.shared() > 0 {
            self.note_shared(reservation.shared());
        }
        let directory = index.directory_of(record.id());
        match self.move_to(&directory, record) {
            Ok(RenameOutcome::Renamed) => {
                let object = NewObject { record: record.clone(), allocated, reservation };
                capacity.enter_all(index, vec![object], || {});
                Ok(record.clone())
            }
            Ok(RenameOutcome::TargetExists) => {
                capacity.adopt(index, record.id()).map_err(|why| created_already(record, why))?;
                let found = index.require(record.id())?;
                found.check_answers(record)?;
                Ok(found)
            }
            Err(why) if directory.may_exist() => {
                // The catalogue has to know it: a repeated call must find it, and create no second one elsewhere.
                if let Err(error) = capacity.adopt(index, record.id()) {
                    tracing::error!(id = %record.id(), %error, "cannot read what was just created");
                    let object = NewObject { record: record.clone(), allocated, reservation };
                    capacity.enter_uncertain(index, object);
                }
                Err(created_already(record, why))
            }
            Err(why) => Err(why),
        }
    }

    /// Makes it visible on disk, whole and durable, in one step.
    ///
    /// A crash before the rename leaves a directory in staging/ that the next start sweeps away;
    /// a crash after it leaves the finished thing, which a repeated creation finds. For that, all
    /// that is in the directory must be on disk before the directory's new name is.
    pub(super) fn move_to<R: Recorded>(
        &self,
        directory: &ObjectDir,
        record: &R,
    ) -> Result<RenameOutcome> {
        let creating = || format!("create {} {}", R::KIND, record.id());
        let text = to_text(record)?;
        if self.keeps_order {
            // The fsync after the rename takes all of this along (decision 0028).
            file::write_out(&self.data).map_err(cannot(creating))?;
            file::create_file_written_out(&self.home.0.record(), &text)
                .map_err(cannot(creating))?;
        } else {
            // The record first: where one journal serves the whole filesystem, it takes the data's
            // length and extents along, and little is left for the sync that follows.
            file::create_file_durable(&self.home.0.record(), &text).map_err(cannot(creating))?;
            file::sync_file(&self.data).map_err(cannot(creating))?;
            file::sync_dir(self.home.0.directory()).map_err(cannot(creating))?;
        }
        file::rename_new(self.home.0.directory(), directory.directory()).map_err(cannot(creating))
    }
}

/// Another pool takes what does not fit into this one; not so what has its name here already.
fn created_already<R: Recorded>(record: &R, why: Error) -> Error {
    if let Error::Exhausted(reason) = why {
        let doing = format!("finish the creation of {} {}", R::KIND, record.id());
        return Error::failed(doing, reason);
    }
    why
}

/// Gives an empty file its length and all space for it.
pub(super) fn reserve(data: &File, bytes: u64, backing: BackingKind) -> orlop_sys::Result<()> {
    if backing == BackingKind::Btrfs {
        // Else each overwrite would need free space as well (decision 0029).
        file::overwrite_in_place(data)?;
    }
    file::set_length(data, bytes)?;
    file::preallocate(data, 0, bytes)
}

impl Drop for DraftDir {
    /// After the rename there is nothing under the temporary name, and names are not used twice.
    fn drop(&mut self) {
        if let Err(error) = self.0.remove() {
            tracing::warn!(%error, "cannot remove a draft before the next start");
        }
    }
}

#[cfg(test)]
mod tests;
