//! Making a volume.

use std::sync::Arc;

use orlop_model::{
    ContentSource, Draft, Error, FormatState, NewFilesystem, NewVolume, Provisioning, Result,
    VolumeRecord,
};
use orlop_sys::file::{self, CloneOutcome};

use super::{ImageProvisioner, is_thick};
use crate::image::capacity::{Capacity, Demand, Reservation};
use crate::image::catalogue::ImageCatalogue;
use crate::image::copy_source::CopySource;
use crate::image::directory::PoolDirectory;
use crate::image::failure::cannot;
use crate::image::pending_object::{PendingObject, reserve};
use crate::image::subvolume_snapshot::ThickDraft;
use crate::image::templates;
use crate::recorded::new_volume_record;

/// The reservation is the last field, so that it is given back after the files are gone.
#[derive(Debug)]
pub(super) struct VolumeDraft {
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
    pub(super) fn begin(pool: &ImageProvisioner, new: &NewVolume) -> Result<Self> {
        pool.directory.check_present()?;
        // A damaged volume keeps its name until someone has looked at it.
        pool.catalogue.volume_index().get(&new.id)?;
        if new.parameters.provisioning == Provisioning::Thick {
            pool.directory.check_thick()?;
        }
        let source = pool.source_of(new)?.map(Arc::new);
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

impl ImageProvisioner {
    fn source_of(&self, new: &NewVolume) -> Result<Option<CopySource>> {
        let (source, length) = match &new.source {
            None => return Ok(None),
            Some(ContentSource::Snapshot(id)) => {
                let record = self.catalogue.snapshot_index().require(id)?;
                let source = CopySource::open(self.catalogue.snapshot_index(), &record)?;
                self.devices.check_snapshot_still(id)?;
                (source, record.size_bytes)
            }
            Some(ContentSource::Volume(id)) => {
                let record = self.catalogue.volume_index().require(id)?;
                let volumes = self.catalogue.volume_index();
                let source = CopySource::of_volume(&self.devices, volumes, &record)?;
                (source, record.capacity_bytes)
            }
        };
        if length > new.capacity_bytes {
            return Err(Error::OutOfRange(format!(
                "cannot copy the source: it has {length} bytes, which do not fit into {}; ask for \
                 at least as many",
                new.capacity_bytes
            )));
        }
        Ok(Some(source))
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

impl Draft<VolumeRecord> for VolumeDraft {
    fn capture(&mut self) -> Result<()> {
        if let Some(source) = &self.source {
            self.shared =
                match source.capture_into(self.pending.data(), self.directory.shares_extents())? {
                    CloneOutcome::Shared => self.pending.allocated()?,
                    CloneOutcome::Unsupported => 0,
                };
            if let Some(filesystem) = &self.filesystem {
                templates::renew(self.pending.data(), filesystem)?;
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
