//! Taking an atomic group snapshot: first the group snapshot of RBD, then all records in one operation.

use std::time::SystemTime;

use orlop_model::{
    Draft, Error, GroupSnapshotId, GroupSnapshotRecord, NewGroupSnapshot, Result, SnapshotRecord,
};
use orlop_sys::ceph::Update;

use super::super::catalogue::{GroupLocation, GroupSnapshotEntry, SnapshotEntry, SnapshotLocation};
use super::super::image_state::BEING_MADE;
use super::super::uncommitted_group_snapshot::{
    GroupMember, IntendedGroupSnapshot, UncommittedGroupSnapshot,
};
use super::RbdProvisioner;
use crate::capture_progress::CaptureProgress;
use crate::recorded::{new_group_snapshot_record, new_snapshot_record};

/// Another process is making the same group snapshot, or has just made it.
fn busy(id: &GroupSnapshotId) -> Error {
    Error::busy(format!("group snapshot {id}"), BEING_MADE)
}

#[derive(Debug)]
pub(super) struct RbdGroupSnapshotDraft {
    pool: RbdProvisioner,
    record: GroupSnapshotRecord,
    members: Vec<SnapshotRecord>,
    snapshot: UncommittedGroupSnapshot,
    progress: CaptureProgress,
}

impl RbdGroupSnapshotDraft {
    pub(super) fn begin(pool: &RbdProvisioner, new: &NewGroupSnapshot) -> Result<Self> {
        if !pool.takes_group_snapshots {
            return Err(Error::precondition(format!(
                "cannot take a group snapshot in pool {}: librbd of this machine has no rbd_clone4, \
                 so it could not be restored; Ceph 19 has it",
                pool.info.name
            )));
        }
        // A damaged group snapshot keeps its name until an operator has inspected it.
        if pool.catalogue.group_snapshot_records().get(&new.id)?.is_some() {
            return Err(busy(&new.id));
        }
        pool.capacity.check_not_full()?;
        let (mut members, mut records) = (Vec::new(), Vec::new());
        for member in &new.members {
            if pool.catalogue.snapshot_records().entry(&member.id)?.is_some() {
                return Err(Error::busy(format!("snapshot {}", member.id), BEING_MADE));
            }
            let source = pool.images.require(&member.source.id)?;
            pool.images.check_length(&source)?;
            let volume = source.record.id.clone();
            members.push(GroupMember { volume, image_id: source.image_id.clone() });
            records.push(new_snapshot_record(member, source.record, Some(&new.id)));
        }
        let snapshot = UncommittedGroupSnapshot::prepare(
            &pool.session,
            &pool.images,
            &pool.intents,
            &new.id.to_string(),
            members,
        )?;
        Ok(Self {
            pool: pool.clone(),
            record: new_group_snapshot_record(new),
            members: records,
            snapshot,
            progress: CaptureProgress::default(),
        })
    }
}

impl Draft<GroupSnapshotRecord> for RbdGroupSnapshotDraft {
    fn capture(&mut self) -> Result<()> {
        if !self.progress.try_begin()? {
            return Ok(());
        }
        self.snapshot.take()?;
        self.record.created = SystemTime::now().into();
        self.progress.end();
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<GroupSnapshotRecord> {
        self.capture()?;
        let made = self.snapshot.release()?;
        let Self { pool, record, members, snapshot, .. } = *self;
        let key = record.id.to_string();
        let location =
            GroupLocation { rbd_group: snapshot.group(), intended: snapshot.intended().clone() };
        let entry = GroupSnapshotEntry { location, record };
        let mut update = Update::default().expect(&key, None).set(&key, &entry.text()?);
        for ((image, made), member) in
            entry.location.intended.images().iter().zip(made).zip(members)
        {
            let created = entry.record.created.after(member.created);
            let record = SnapshotRecord { created, ..member };
            let location = SnapshotLocation {
                image: image.clone(),
                snapshot: made.name,
                number: Some(made.number),
            };
            let key = record.id.to_string();
            update =
                update.expect(&key, None).set(&key, &SnapshotEntry { location, record }.text()?);
        }
        if !snapshot.try_commit(update)? {
            return Err(busy(&entry.record.id));
        }
        pool.intents.remove_all_for::<IntendedGroupSnapshot>(&key);
        Ok(entry.record)
    }
}
