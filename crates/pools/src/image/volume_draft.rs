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
use super::original::Original;
use super::room::Demand;
use super::staged::Staged;
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
    reservation: Reservation,
}

impl Store {
    pub(super) fn begin_volume(self: &Arc<Self>, new: &NewVolume) -> Result<VolumeDraft> {
        self.check_present()?;
        // A damaged volume keeps its name until someone has looked at it.
        self.volumes.get(&new.id)?;
        let source = self.original_of(new)?.map(Arc::new);
        let demand = Demand {
            length: new.capacity_bytes,
            promise: new.capacity_bytes,
            physical: self.taken_at_once(new, source.as_deref()),
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
        let mut draft = VolumeDraft {
            store: Arc::clone(self),
            staged,
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

    fn original_of(&self, new: &NewVolume) -> Result<Option<Original>> {
        let (original, length) = match &new.source {
            None => return Ok(None),
            Some(ContentSource::Snapshot(id)) => {
                let record = self.snapshots.require(id)?;
                (Original::open(&self.snapshots, &record)?, record.size_bytes)
            }
            Some(ContentSource::Volume(id)) => {
                let record = self.volumes.require(id)?;
                (Original::open(&self.volumes, &record)?, record.capacity_bytes)
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

    /// Thick takes everything at once: even if extents are shared at first, a thick volume must
    /// find room to have each of them for itself.
    fn taken_at_once(&self, new: &NewVolume, original: Option<&Original>) -> u64 {
        match (new.parameters.provisioning, original) {
            (Provisioning::Thick, _) => new.capacity_bytes,
            (Provisioning::Thin, Some(original)) if !self.shares_extents => original.allocated(),
            (Provisioning::Thin, Some(_) | None) => 0,
        }
    }
}

impl VolumeDraft {
    /// Gives the data its full length and, if thick, its space. Holes of a copy are filled too;
    /// extents that it shares with its source stay shared until one of both is written.
    fn shape(&mut self) -> Result<()> {
        let shaping = || format!("make room for volume {}", self.record.id);
        let bytes = self.record.capacity_bytes;
        let data = self.staged.data();
        file::set_length(data, bytes).doing(shaping)?;
        match self.record.parameters.provisioning {
            Provisioning::Thin => {}
            Provisioning::Thick => file::preallocate(data, 0, bytes).doing(shaping)?,
        }
        let allocated = self.staged.allocated()?;
        self.reservation.note_written(allocated, self.shared);
        Ok(())
    }
}

impl Draft<VolumeRecord> for VolumeDraft {
    fn cut(&mut self) -> Result<()> {
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
        self.cut()?;
        if self.is_copy {
            self.shape()?;
        }
        let Self { store, staged, record, reservation, .. } = self.as_mut();
        store.place(&store.volumes, staged, record, reservation)
    }
}

#[cfg(test)]
mod tests;
