//! Making a volume.

use std::sync::Arc;

use orlop_model::{
    ContentSource, Draft, Error, FormatState, NewFilesystem, NewVolume, Provisioning, Result,
    VolumeRecord,
};
use orlop_sys::file::{self, CloneOutcome};

use super::failure::Doing;
use super::layout::Home;
use super::ledger::Reservation;
use super::moment::ThickDraft;
use super::original::Original;
use super::room::Demand;
use super::staged::{Staged, reserve};
use super::store::Store;
use super::templates;
use crate::recorded::new_volume_record;

/// The reservation is the last field, so that it is given back after the files are gone.
#[derive(Debug)]
pub(super) struct VolumeDraft {
    store: Arc<Store>,
    staged: Staged,
    /// Until it is cut: a draft whose cut failed can never be committed as it is.
    original: Option<Arc<Original>>,
    is_copy: bool,
    /// The identity of a filesystem that is copied from a template.
    filesystem: Option<NewFilesystem>,
    /// Bytes that the cut did not copy, because the source has them too.
    shared: u64,
    record: VolumeRecord,
    _thick: Option<ThickDraft>,
    reservation: Reservation,
}

impl Store {
    pub(super) fn begin_volume(self: &Arc<Self>, new: &NewVolume) -> Result<VolumeDraft> {
        self.check_present()?;
        // A damaged volume keeps its name until someone has looked at it.
        self.volumes.get(&new.id)?;
        if new.parameters.provisioning == Provisioning::Thick {
            self.check_thick()?;
        }
        let source = self.original_of(new)?.map(Arc::new);
        let demand = Demand {
            length: new.capacity_bytes,
            promise: new.capacity_bytes,
            physical: self.taken_at_once(new, source.as_deref())?,
            must_fit: true,
        };
        let reservation = self.try_reserve(demand)?;
        // Only now: it may not take what the volume was promised.
        let (original, filesystem) = match source {
            Some(source) => (Some(source), None),
            None => self.template_for(new).unzip(),
        };
        let staged =
            Staged::create(Home::new(self.layout.new_in_staging(&new.id)), self.keeps_order)?;
        let thick = match new.parameters.provisioning {
            Provisioning::Thin => None,
            Provisioning::Thick => Some(self.note_thick_draft()),
        };
        let mut draft = VolumeDraft {
            store: Arc::clone(self),
            staged,
            _thick: thick,
            is_copy: original.is_some(),
            original,
            filesystem,
            shared: 0,
            record: new_volume_record(new),
            reservation,
        };
        if let Some(NewFilesystem { fs, uuid }) = filesystem {
            draft.record.format = FormatState::Formatted { fs, uuid };
        }
        match &draft.original {
            Some(original) => original.prepare(draft.staged.data(), self.backing),
            None => draft.shape()?,
        }
        Ok(draft)
    }

    /// Of a pool in an image: whether that has its blocks.
    pub(super) fn check_thick(&self) -> Result<()> {
        self.managed.as_ref().map_or(Ok(()), |managed| managed.check_thick(self.name()))
    }

    fn original_of(&self, new: &NewVolume) -> Result<Option<Original>> {
        let (original, length) = match &new.source {
            None => return Ok(None),
            Some(ContentSource::Snapshot(id)) => {
                let record = self.snapshots.require(id)?;
                (Original::open(&self.snapshots, &record)?, record.size_bytes)
            }
            Some(ContentSource::Volume(id)) => {
                let record = self.volumes.require(id)?;
                let original = Original::open(&self.volumes, &record)?;
                self.check_still("copy", id)?;
                (original, record.capacity_bytes)
            }
        };
        if length > new.capacity_bytes {
            return Err(Error::OutOfRange(format!(
                "the source has {length} bytes, which do not fit into {}",
                new.capacity_bytes
            )));
        }
        Ok(Some(original))
    }

    /// Thick takes everything at once, also of a copy: it shares nothing in the end.
    fn taken_at_once(&self, new: &NewVolume, original: Option<&Original>) -> Result<u64> {
        match (new.parameters.provisioning, original) {
            (Provisioning::Thick, _) => Ok(new.capacity_bytes),
            (Provisioning::Thin, None) => Ok(0),
            (Provisioning::Thin, Some(original)) => {
                let room_for_source = match &new.source {
                    Some(ContentSource::Volume(id)) => is_thick(&self.volumes.require(id)?),
                    Some(ContentSource::Snapshot(_)) | None => false,
                };
                let taken = room_for_source || !self.shares_extents;
                Ok(if taken { original.allocated() } else { 0 })
            }
        }
    }
}

impl VolumeDraft {
    /// Gives the data its full length and, if thick, its space: for the holes of a copy, and for the
    /// extents that it shares with its source until here.
    fn shape(&mut self) -> Result<()> {
        let shaping = || format!("make room for volume {}", self.record.id);
        let bytes = self.record.capacity_bytes;
        match self.record.parameters.provisioning {
            Provisioning::Thin => file::set_length(self.staged.data(), bytes).doing(shaping)?,
            Provisioning::Thick if self.is_copy && self.store.shares_extents => {
                self.staged.set_apart(bytes, self.store.backing)?;
                self.shared = 0;
            }
            Provisioning::Thick => {
                reserve(self.staged.data(), bytes, self.store.backing).doing(shaping)?;
            }
        }
        let allocated = self.staged.allocated()?;
        self.reservation.note_written(allocated, self.shared);
        Ok(())
    }
}

impl Draft<VolumeRecord> for VolumeDraft {
    fn capture(&mut self) -> Result<()> {
        if let Some(original) = &self.original {
            self.shared = match original.cut_into(self.staged.data(), self.store.shares_extents)? {
                CloneOutcome::Shared => self.staged.allocated()?,
                CloneOutcome::Unsupported => 0,
            };
            if let Some(filesystem) = &self.filesystem {
                templates::renew(self.staged.data(), filesystem)?;
            }
            self.original = None;
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<VolumeRecord> {
        self.capture()?;
        if self.is_copy {
            self.shape()?;
        }
        let Self { store, staged, record, reservation, .. } = self.as_mut();
        store.place(&store.volumes, staged, record, reservation)
    }
}

pub(super) fn is_thick(volume: &VolumeRecord) -> bool {
    match volume.parameters.provisioning {
        Provisioning::Thin => false,
        Provisioning::Thick => true,
    }
}

#[cfg(test)]
mod tests;
