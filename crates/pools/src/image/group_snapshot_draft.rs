//! Making snapshots of several volumes at once: all of them or none.
//!
//! The group's record is what makes its members real. They are put into their places before it,
//! after a note that the group is not finished: a start that finds the note and no record sweeps
//! them away. Until the record is durable none of them is in the index.

use std::sync::Arc;
use std::time::SystemTime;

use orlop_model::record::RECORD_VERSION;
use orlop_model::{Draft, Error, GroupSnapshotRecord, NewGroupSnapshot, Result, Timestamp};
use orlop_sys::file::RenameOutcome;

use super::failure::Doing;
use super::moment::Moment;
use super::shelf::{Booked, Kept};
use super::snapshot_draft::SnapshotDraft;
use super::store::Store;
use crate::poison::lock;

/// Each member holds its reservation, so either there is room for all or the draft is refused.
#[derive(Debug)]
pub(super) struct GroupSnapshotDraft {
    store: Arc<Store>,
    members: Vec<SnapshotDraft>,
    record: GroupSnapshotRecord,
    /// Where the members are copied from, on a pool that can hold a moment.
    moment: Option<Moment>,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Begun,
    /// Some members may be of this cut. Another one would make the rest of another instant.
    Cutting,
    Cut,
}

impl Store {
    pub(super) fn begin_group_snapshot(
        self: &Arc<Self>,
        new: &NewGroupSnapshot,
    ) -> Result<GroupSnapshotDraft> {
        // A damaged group keeps its name until someone has looked at it.
        self.group_snapshots.get(&new.id)?;
        let draft = |member| self.begin_snapshot(member, Some(&new.id));
        let members = new.members.iter().map(draft).collect::<Result<Vec<_>>>()?;
        Ok(GroupSnapshotDraft {
            store: Arc::clone(self),
            record: GroupSnapshotRecord {
                version: RECORD_VERSION,
                id: new.id.clone(),
                name: new.name.clone(),
                members: new.members.iter().map(|member| member.id.clone()).collect(),
                created: SystemTime::now().into(),
            },
            members,
            moment: None,
            progress: Progress::Begun,
        })
    }
}

impl Draft<GroupSnapshotRecord> for GroupSnapshotDraft {
    /// Where a moment can be held, that is all: what is copied out of it needs no stillness.
    fn capture(&mut self) -> Result<()> {
        match self.progress {
            Progress::Begun => self.progress = Progress::Cutting,
            Progress::Cutting => {
                return Err(Error::failed("cut a group snapshot", "an earlier cut of it failed"));
            }
            Progress::Cut => return Ok(()),
        }
        if let Some(moment) = self.store.try_hold_moment()? {
            self.note_cut(SystemTime::now().into());
            for member in &mut self.members {
                let source = self.store.original_in(&moment, &member.record().source)?;
                member.take_from(source);
            }
            self.moment = Some(moment);
        } else {
            let several = self.members.len() > 1;
            for member in &mut self.members {
                member.copy()?;
                if several {
                    member.note_cut_alone();
                }
            }
            self.note_cut(SystemTime::now().into());
        }
        self.progress = Progress::Cut;
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<GroupSnapshotRecord> {
        self.capture()?;
        for member in &mut self.members {
            member.finish()?;
        }
        self.moment = None;
        self.store.group_snapshots.adopt(&self.record.id)?;
        if let Some(existing) = self.store.group_snapshots.get(&self.record.id)? {
            return self.adopt_members(existing);
        }
        self.place().inspect_err(|_| self.take_back())?;
        self.store.group_snapshots.forget_unfinished(&self.record.id);
        Ok(self.enter())
    }
}

impl GroupSnapshotDraft {
    fn note_cut(&mut self, now: Timestamp) {
        self.record.created = now;
        for member in &mut self.members {
            member.note_cut(now);
        }
    }

    /// An earlier attempt made it, but could not be sure.
    fn adopt_members(&self, existing: GroupSnapshotRecord) -> Result<GroupSnapshotRecord> {
        for member in &existing.members {
            self.store.adopt(&self.store.snapshots, member)?;
        }
        self.store.group_snapshots.forget_unfinished(&existing.id);
        Ok(existing)
    }

    /// Members first, the group's record last: the point from which they exist.
    fn place(&self) -> Result<()> {
        let shelf = &self.store.snapshots;
        let id = &self.record.id;
        let noted = self.store.group_snapshots.note_unfinished(id);
        noted.doing(|| format!("create group snapshot {id}"))?;
        for member in &self.members {
            let record = member.record();
            let home = shelf.home(&record.id);
            // What an earlier attempt could not take back.
            self.store.discard_unlisted(&record.id)?;
            member.staged().note_shared(member.shared());
            match member.staged().place(record, &home)? {
                RenameOutcome::Renamed => {}
                RenameOutcome::TargetExists => {
                    return Err(Error::failed(
                        format!("create snapshot {}", record.id),
                        format!("{} is in the way", home.directory().display()),
                    ));
                }
            }
        }
        self.store.group_snapshots.write_file(&self.record)
    }

    /// If the record cannot be removed, nobody knows whether it is on disk; the members stay with
    /// it, and the next start finds all of the group or nothing.
    fn take_back(&self) {
        let id = &self.record.id;
        if let Err(error) = self.store.group_snapshots.remove_file(id) {
            tracing::warn!(
                %error,
                %id,
                "cannot roll back a group snapshot; the next start commits or removes it"
            );
            return;
        }
        let mut all_gone = true;
        for member in &self.record.members {
            if let Err(error) = self.store.discard_unlisted(member) {
                // What stands there is of another one, and in the index.
                all_gone &= matches!(error, Error::Conflict { .. });
                tracing::warn!(
                    %error,
                    %member,
                    "cannot remove the draft of a group snapshot before the next start"
                );
            }
        }
        if all_gone {
            self.store.group_snapshots.forget_unfinished(id);
        }
    }

    /// Whoever sees the group sees its members, and the other way round.
    fn enter(&mut self) -> GroupSnapshotRecord {
        let mut entries = Vec::new();
        for member in &self.members {
            let record = member.record().clone();
            let charge = record.charge(member.allocated());
            entries.push((record, Booked { charge, own: 0 }, member.shared()));
        }
        let mut ledger = lock(&self.store.ledger);
        for (member, (_, booked, _)) in self.members.iter_mut().zip(&mut entries) {
            ledger.promise(booked.charge);
            booked.own = ledger.note_shelved(member.reservation());
        }
        let group = self.record.clone();
        self.store.snapshots.put_all(entries, || self.store.group_snapshots.put(group));
        self.record.clone()
    }
}

#[cfg(test)]
mod tests;
