//! Making a snapshot.

use std::sync::Arc;
use std::time::SystemTime;

use orlop_model::{
    Consistency, Draft, GroupSnapshotId, NewSnapshot, Result, SnapshotRecord, Timestamp,
};
use orlop_sys::file::{self, CloneOutcome};

use super::{ImageProvisioner, PendingObject, is_thick};
use crate::image::PoolDirectory;
use crate::image::capacity::{Demand, ImageCapacity, NewObject, Reservation};
use crate::image::catalogue::ImageCatalogue;
use crate::image::copy_source::CopySource;
use crate::image::failure::cannot;
use crate::recorded::new_snapshot_record;

/// The reservation is the last field, so that it is given back after the files are gone.
#[derive(Debug)]
pub(super) struct ImageSnapshotDraft {
    directory: Arc<PoolDirectory>,
    catalogue: Arc<ImageCatalogue>,
    capacity: Arc<ImageCapacity>,
    pending: PendingObject,
    /// Until the capture: a draft whose capture failed can never be committed as it is.
    copy_source: Option<CopySource>,
    /// Bytes that the capture did not copy, because the source has them too.
    shared: u64,
    /// What the data takes, shared or not, once it is finished.
    allocated: u64,
    record: SnapshotRecord,
    reservation: Reservation,
}

impl ImageSnapshotDraft {
    pub(super) fn begin(
        pool: &ImageProvisioner,
        new: &NewSnapshot,
        group: Option<&GroupSnapshotId>,
    ) -> Result<Self> {
        let ImageProvisioner { directory, catalogue, capacity, .. } = pool;
        directory.check_takes_data()?;
        // A damaged snapshot keeps its name until an operator has inspected it.
        catalogue.snapshot_index().get(&new.id)?;
        let source = catalogue.volume_index().require(&new.source.id)?;
        let copy_source = CopySource::of_volume(&pool.devices, catalogue.volume_index(), &source)?;
        // A thick volume that shares its blocks needs as many again to be overwritten (decision 0029).
        let takes = !directory.shares_extents() || is_thick(&source);
        let demand = Demand {
            length: source.capacity_bytes,
            promise: copy_source.allocated(),
            physical: if takes { copy_source.allocated() } else { 0 },
            must_fit: takes,
        };
        let reservation = capacity.try_reserve(demand)?;
        let pending = PendingObject::create(directory, &new.id)?;
        copy_source.prepare(pending.data(), directory.backing());
        Ok(Self {
            directory: Arc::clone(directory),
            catalogue: Arc::clone(catalogue),
            capacity: Arc::clone(capacity),
            pending,
            copy_source: Some(copy_source),
            shared: 0,
            allocated: 0,
            record: new_snapshot_record(new, source, group),
            reservation,
        })
    }

    pub(super) fn record(&self) -> &SnapshotRecord {
        &self.record
    }

    /// The data is to come from there instead.
    pub(super) fn take_from(&mut self, copy_source: CopySource) {
        self.copy_source = Some(copy_source);
    }

    /// Later than all earlier ones of the volume, whatever the clock says: their order is that of
    /// their times.
    pub(super) fn note_captured(&mut self, now: Timestamp) {
        let source = &self.record.source;
        let created = |other: &SnapshotRecord| (other.source == *source).then_some(other.created);
        let latest = self.catalogue.snapshot_index().greatest(created);
        let now = now.after(self.record.created);
        self.record.created = latest.map_or(now, |latest| now.after(latest));
    }

    /// Not with the others of its group, though the caller may have been promised that before the first
    /// thick volume was begun.
    pub(super) fn note_captured_alone(&mut self) {
        if self.record.consistency == Consistency::Crash {
            self.record.consistency = Consistency::Alone;
        }
    }

    /// Copies the data, if that was not done yet.
    pub(super) fn copy(&mut self) -> Result<()> {
        if let Some(copy_source) = &self.copy_source {
            self.shared = match copy_source
                .capture_into(self.pending.data(), self.directory.shares_extents())?
            {
                CloneOutcome::Shared => self.pending.allocated()?,
                CloneOutcome::Unsupported => 0,
            };
            self.copy_source = None;
        }
        Ok(())
    }

    /// Brings the data into its final shape; only its place is wanting then.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.copy()?;
        // A crash while the source grew may have left its data longer than its record says.
        file::set_length(self.pending.data(), self.record.size_bytes)
            .map_err(cannot(|| format!("create {}", self.record.label())))?;
        self.allocated = self.pending.allocated()?;
        self.reservation.note_written(self.allocated, self.shared);
        Ok(())
    }

    pub(super) fn pending(&self) -> &PendingObject {
        &self.pending
    }

    pub(super) fn shared(&self) -> u64 {
        self.reservation.shared()
    }

    /// What it becomes, for the catalogue and the ledger.
    pub(super) fn object(&mut self) -> NewObject<'_, SnapshotRecord> {
        let (record, allocated) = (self.record.clone(), self.allocated);
        NewObject { record, allocated, reservation: &mut self.reservation }
    }
}

impl Draft<SnapshotRecord> for ImageSnapshotDraft {
    fn capture(&mut self) -> Result<()> {
        if self.copy_source.is_some() {
            self.copy()?;
            self.note_captured(SystemTime::now().into());
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<SnapshotRecord> {
        self.capture()?;
        self.finish()?;
        let Self { catalogue, capacity, pending, record, reservation, .. } = self.as_mut();
        pending.commit(record, catalogue.snapshot_index(), capacity, reservation)
    }
}

#[cfg(test)]
mod tests;
