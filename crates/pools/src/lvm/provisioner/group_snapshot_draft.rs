//! Making snapshots of several volumes at once: all of them or none.
//!
//! The record of the group is what makes its members visible, and comes last. A crash before it leaves whole snapshots
//! that name a group which is not there: they are removed when the pool is opened.

use std::time::SystemTime;

use orlop_model::{Draft, Error, GroupSnapshotRecord, NewGroupSnapshot, Result};

use super::LvmProvisioner;
use super::snapshot_draft::LvmSnapshotDraft;
use crate::capture_progress::CaptureProgress;
use crate::lvm::devices::SuspendedDevice;
use crate::recorded::new_group_snapshot_record;

#[derive(Debug)]
pub(super) struct LvmGroupSnapshotDraft {
    pool: LvmProvisioner,
    members: Vec<LvmSnapshotDraft>,
    record: GroupSnapshotRecord,
    progress: CaptureProgress,
    is_committed: bool,
}

impl LvmGroupSnapshotDraft {
    pub(super) fn begin(pool: &LvmProvisioner, new: &NewGroupSnapshot) -> Result<Self> {
        // A damaged group keeps its name until an operator has inspected it.
        pool.catalogue.group_snapshot_records().get(&new.id)?;
        // LVM would refuse the first copy, when all writers wait.
        pool.check_complete(|| format!("take group snapshot {}", new.id))?;
        let draft = |member| LvmSnapshotDraft::begin(pool, member, Some(&new.id));
        Ok(Self {
            pool: pool.clone(),
            members: new.members.iter().map(draft).collect::<Result<_>>()?,
            record: new_group_snapshot_record(new),
            progress: CaptureProgress::default(),
            is_committed: false,
        })
    }
}

impl Draft<GroupSnapshotRecord> for LvmGroupSnapshotDraft {
    /// All are suspended before the first is copied, so all copies are of one instant.
    fn capture(&mut self) -> Result<()> {
        if !self.progress.try_begin()? {
            return Ok(());
        }
        let noted = self.pool.lvm.note_suspended();
        let suspend = |member: &LvmSnapshotDraft| member.suspend_source();
        let suspended: Vec<Option<SuspendedDevice>> =
            self.members.iter().map(suspend).collect::<Result<_>>()?;
        let now = SystemTime::now().into();
        self.record.created = now;
        for member in &mut self.members {
            member.note_captured(now);
            member.copy()?;
        }
        let in_time: Vec<bool> =
            suspended.into_iter().flatten().map(SuspendedDevice::resume).collect();
        drop(noted);
        if in_time.contains(&false) {
            return Err(Error::failed(
                format!("take group snapshot {}", self.record.id),
                "LVM took longer than volumes may be suspended (ORLOP_FREEZE_LIMIT_SECONDS), so their copies are not of one \
                 instant; the kernel log and `ps` may show what it waited for",
            ));
        }
        self.progress.end();
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<GroupSnapshotRecord> {
        self.capture()?;
        for member in &mut self.members {
            member.finish()?;
        }
        self.pool.catalogue.group_snapshot_records().save(&self.record)?;
        self.is_committed = true;
        Ok(self.record.clone())
    }
}

impl Drop for LvmGroupSnapshotDraft {
    fn drop(&mut self) {
        // Where the record was saved after all, its members stay.
        let groups = self.pool.catalogue.group_snapshot_records();
        if !self.is_committed && !groups.holds(&self.record.id) {
            self.members.iter_mut().for_each(LvmSnapshotDraft::roll_back);
        }
    }
}
