//! Making a snapshot.

use std::time::SystemTime;

use orlop_model::{Draft, GroupSnapshotId, NewSnapshot, Result, SnapshotRecord, Timestamp};

use super::LvmProvisioner;
use super::thick::check_thin;
use super::volume_draft::INACTIVE;
use crate::lvm::capacity::{Demand, Reservation};
use crate::lvm::devices::SuspendedDevice;
use crate::recorded::new_snapshot_record;

/// The reservation is the last field, so that it is given back after the logical volume is gone.
#[derive(Debug)]
pub(super) struct LvmSnapshotDraft {
    pool: LvmProvisioner,
    record: SnapshotRecord,
    progress: Progress,
    _reservation: Reservation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Begun,
    /// The draft is there.
    Captured,
    /// The snapshot is whole; there is nothing to remove.
    Committed,
}

impl LvmSnapshotDraft {
    pub(super) fn begin(
        pool: &LvmProvisioner,
        new: &NewSnapshot,
        group: Option<&GroupSnapshotId>,
    ) -> Result<Self> {
        // A damaged snapshot keeps its name until an operator has inspected it.
        pool.catalogue.snapshot_objects().get(&new.id)?;
        let source = pool.catalogue.volume_objects().require(&new.source.id)?;
        check_thin(&source, "snapshotted")?;
        let reservation = pool.capacity.try_reserve(Demand::Snapshot)?;
        let record = new_snapshot_record(new, source, group);
        Ok(Self {
            pool: pool.clone(),
            record,
            progress: Progress::Begun,
            _reservation: reservation,
        })
    }

    /// So that nothing writes to the source from now on.
    pub(super) fn suspend_source(&self) -> Result<Option<SuspendedDevice>> {
        self.pool.devices.suspend(&self.record.source)
    }

    /// Of one instant: LVM suspends the source.
    pub(super) fn copy(&mut self) -> Result<()> {
        let origin = self.pool.lvm.group().lv(&self.record.source);
        let arguments = [&["--snapshot", "--permission", "r"], &INACTIVE[..], &[&origin]].concat();
        self.pool.catalogue.snapshot_objects().create_copy(&self.record.id, &arguments)?;
        self.progress = Progress::Captured;
        Ok(())
    }

    /// Later than all earlier ones of the volume, whatever the clock says: their order is that of their times.
    pub(super) fn note_captured(&mut self, now: Timestamp) {
        let of_source = |other: &SnapshotRecord| other.source == self.record.source;
        let others = self.pool.catalogue.snapshot_objects().records().filter(of_source);
        let latest = others.map(|other| other.created).max();
        let now = now.after(self.record.created);
        self.record.created = latest.map_or(now, |latest| now.after(latest));
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        self.pool.catalogue.snapshot_objects().commit(&self.record)?;
        self.progress = Progress::Committed;
        Ok(())
    }

    /// Also a whole one that this has made: its group came to nothing.
    pub(super) fn roll_back(&mut self) {
        let (snapshots, id) = (self.pool.catalogue.snapshot_objects(), &self.record.id);
        let removed = match self.progress {
            // A command that failed may have made it.
            Progress::Begun | Progress::Captured => snapshots.ensure_no_draft(id),
            Progress::Committed => snapshots.ensure_gone(id),
        };
        if let Err(error) = removed {
            tracing::warn!(snapshot = %id, %error, "cannot remove a draft before the next start");
        }
        self.progress = Progress::Begun;
    }
}

impl Draft<SnapshotRecord> for LvmSnapshotDraft {
    fn capture(&mut self) -> Result<()> {
        if self.progress == Progress::Begun {
            self.note_captured(SystemTime::now().into());
            self.copy()?;
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<SnapshotRecord> {
        self.capture()?;
        self.finish()?;
        Ok(self.record.clone())
    }
}

impl Drop for LvmSnapshotDraft {
    fn drop(&mut self) {
        if self.progress != Progress::Committed {
            self.roll_back();
        }
    }
}
