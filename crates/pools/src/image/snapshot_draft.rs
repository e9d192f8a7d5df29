//! Making a snapshot.

use std::sync::Arc;
use std::time::SystemTime;

use orlop_model::record::RECORD_VERSION;
use orlop_model::{
    Consistency, Draft, GroupSnapshotId, NewSnapshot, Result, SnapshotRecord, Timestamp,
};
use orlop_sys::file::{self, CloneOutcome};

use super::failure::Doing;
use super::layout::Home;
use super::ledger::Reservation;
use super::original::Original;
use super::room::Demand;
use super::staged::Staged;
use super::store::Store;
use super::volume_draft::is_thick;

/// The reservation is the last field, so that it is given back after the files are gone.
#[derive(Debug)]
pub(super) struct SnapshotDraft {
    store: Arc<Store>,
    staged: Staged,
    /// Until it is cut: a draft whose cut failed can never be committed as it is.
    original: Option<Original>,
    /// Bytes that the cut did not copy, because the source has them too.
    shared: u64,
    /// What the data takes, shared or not, once it is finished.
    allocated: u64,
    record: SnapshotRecord,
    reservation: Reservation,
}

impl Store {
    pub(super) fn begin_snapshot(
        self: &Arc<Self>,
        new: &NewSnapshot,
        group: Option<&GroupSnapshotId>,
    ) -> Result<SnapshotDraft> {
        self.check_present()?;
        // A damaged snapshot keeps its name until someone has looked at it.
        self.snapshots.get(&new.id)?;
        let source = self.volumes.require(&new.source.id)?;
        let original = Original::open(&self.volumes, &source)?;
        self.check_still("copy", &source.id)?;
        // A thick volume that shares its blocks needs as many again to be overwritten (decision 0029).
        let takes = !self.shares_extents || is_thick(&source);
        let demand = Demand {
            length: source.capacity_bytes,
            promise: original.allocated(),
            physical: if takes { original.allocated() } else { 0 },
            must_fit: takes,
        };
        let reservation = self.try_reserve(demand)?;
        let staged =
            Staged::create(Home::new(self.layout.new_in_staging(&new.id)), self.keeps_order)?;
        original.prepare(staged.data(), self.backing);
        Ok(SnapshotDraft {
            store: Arc::clone(self),
            staged,
            original: Some(original),
            shared: 0,
            allocated: 0,
            record: SnapshotRecord {
                version: RECORD_VERSION,
                id: new.id.clone(),
                name: new.name.clone(),
                source: source.id,
                size_bytes: source.capacity_bytes,
                format: new.format,
                capabilities: source.capabilities,
                created: SystemTime::now().into(),
                group: group.cloned(),
                consistency: new.consistency,
            },
            reservation,
        })
    }
}

impl SnapshotDraft {
    pub(super) fn record(&self) -> &SnapshotRecord {
        &self.record
    }

    /// The data is to come from there instead.
    pub(super) fn take_from(&mut self, original: Original) {
        self.original = Some(original);
    }

    /// Later than all earlier ones of the volume, whatever the clock says: their order is that of
    /// their times.
    pub(super) fn note_cut(&mut self, now: Timestamp) {
        let source = &self.record.source;
        let created = |other: &SnapshotRecord| (other.source == *source).then_some(other.created);
        let latest = self.store.snapshots.greatest(created);
        self.record.created = latest.map_or(now, |latest| now.after(latest));
    }

    /// Not with the others of its group, though the caller may have been promised that before the first
    /// thick volume was begun.
    pub(super) fn note_cut_alone(&mut self) {
        if self.record.consistency == Consistency::Crash {
            self.record.consistency = Consistency::Alone;
        }
    }

    /// Copies the data, if that was not done yet.
    pub(super) fn copy(&mut self) -> Result<()> {
        if let Some(original) = &self.original {
            self.shared = match original.cut_into(self.staged.data(), self.store.shares_extents)? {
                CloneOutcome::Shared => self.staged.allocated()?,
                CloneOutcome::Unsupported => 0,
            };
            self.original = None;
        }
        Ok(())
    }

    /// Brings the data into its final shape; only its place is wanting then.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.copy()?;
        // A crash while the source grew may have left its data longer than its record says.
        file::set_length(self.staged.data(), self.record.size_bytes)
            .doing(|| format!("make snapshot {}", self.record.id))?;
        self.allocated = self.staged.allocated()?;
        self.reservation.note_written(self.allocated, self.shared);
        Ok(())
    }

    pub(super) fn staged(&self) -> &Staged {
        &self.staged
    }

    pub(super) fn allocated(&self) -> u64 {
        self.allocated
    }

    pub(super) fn shared(&self) -> u64 {
        self.reservation.shared()
    }

    pub(super) fn reservation(&mut self) -> &mut Reservation {
        &mut self.reservation
    }
}

impl Draft<SnapshotRecord> for SnapshotDraft {
    fn capture(&mut self) -> Result<()> {
        if self.original.is_some() {
            self.copy()?;
            self.note_cut(SystemTime::now().into());
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<SnapshotRecord> {
        self.capture()?;
        self.finish()?;
        let Self { store, staged, record, reservation, .. } = self.as_mut();
        store.place(&store.snapshots, staged, record, reservation)
    }
}

#[cfg(test)]
mod tests;
