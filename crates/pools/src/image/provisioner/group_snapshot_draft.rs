//! Making snapshots of several volumes at once: all of them or none.
//!
//! The group's record is what makes its members real. They are put into their places before it,
//! after a note that the group is not finished: a start that finds the note and no record sweeps
//! them away. Until the record is durable none of them is in the index.

use std::sync::Arc;
use std::time::SystemTime;

use orlop_model::{Draft, Error, GroupSnapshotRecord, NewGroupSnapshot, Result, Timestamp};
use orlop_sys::file::RenameOutcome;

use super::ImageProvisioner;
use super::snapshot_draft::ImageSnapshotDraft;
use crate::capture_progress::CaptureProgress;
use crate::image::catalogue::record_index::RecordIndex;
use crate::image::failure::cannot;
use crate::image::subvolume_snapshot::SubvolumeSnapshot;
use crate::recorded::new_group_snapshot_record;

/// Each member holds its reservation, so either there is room for all or the draft is refused.
#[derive(Debug)]
pub(super) struct ImageGroupSnapshotDraft {
    pool: ImageProvisioner,
    members: Vec<ImageSnapshotDraft>,
    record: GroupSnapshotRecord,
    /// Where the members are copied from, on a pool that can be snapshotted as a whole.
    subvolume: Option<SubvolumeSnapshot>,
    progress: CaptureProgress,
}

impl ImageGroupSnapshotDraft {
    pub(super) fn begin(pool: &ImageProvisioner, new: &NewGroupSnapshot) -> Result<Self> {
        // A damaged group keeps its name until an operator has inspected it.
        pool.catalogue.group_snapshot_index().get(&new.id)?;
        let draft = |member| ImageSnapshotDraft::begin(pool, member, Some(&new.id));
        let members = new.members.iter().map(draft).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            pool: pool.clone(),
            record: new_group_snapshot_record(new),
            members,
            subvolume: None,
            progress: CaptureProgress::default(),
        })
    }
}

impl Draft<GroupSnapshotRecord> for ImageGroupSnapshotDraft {
    /// Where the subvolume can be snapshotted, that is all: what is copied out of its snapshot needs no
    /// stillness.
    fn capture(&mut self) -> Result<()> {
        if !self.progress.try_begin()? {
            return Ok(());
        }
        let snapshots = Arc::clone(&self.pool.subvolume_snapshots);
        if let Some(subvolume) = snapshots.try_take()? {
            self.note_captured(SystemTime::now().into());
            for member in &mut self.members {
                member.take_from(snapshots.source_in(&subvolume, &member.record().source)?);
            }
            self.subvolume = Some(subvolume);
        } else {
            let several = self.members.len() > 1;
            for member in &mut self.members {
                member.copy()?;
                if several {
                    member.note_captured_alone();
                }
            }
            self.note_captured(SystemTime::now().into());
        }
        self.progress.end();
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<GroupSnapshotRecord> {
        self.capture()?;
        for member in &mut self.members {
            member.finish()?;
        }
        self.subvolume = None;
        self.groups().adopt(&self.record.id)?;
        if let Some(existing) = self.groups().get(&self.record.id)? {
            return self.adopt_members(existing);
        }
        self.make_durable().inspect_err(|_| self.roll_back())?;
        self.groups().forget_unfinished(&self.record.id);
        Ok(self.enter())
    }
}

impl ImageGroupSnapshotDraft {
    fn note_captured(&mut self, now: Timestamp) {
        self.record.created = now;
        for member in &mut self.members {
            member.note_captured(now);
        }
    }

    /// An earlier attempt made it, but could not be sure.
    fn adopt_members(&self, existing: GroupSnapshotRecord) -> Result<GroupSnapshotRecord> {
        for member in &existing.members {
            self.pool.capacity.adopt(self.pool.catalogue.snapshot_index(), member)?;
        }
        self.groups().forget_unfinished(&existing.id);
        Ok(existing)
    }

    /// Members first, the group's record last: the point from which they exist.
    fn make_durable(&self) -> Result<()> {
        let snapshots = self.pool.catalogue.snapshot_index();
        let id = &self.record.id;
        let noted = self.groups().note_unfinished(id);
        noted.map_err(cannot(|| format!("create group snapshot {id}")))?;
        for member in &self.members {
            let record = member.record();
            let home = snapshots.directory_of(&record.id);
            // What an earlier attempt could not take back.
            self.pool.discard_unlisted(&record.id)?;
            member.pending().note_shared(member.shared());
            match member.pending().move_to(&home, record)? {
                RenameOutcome::Renamed => {}
                RenameOutcome::TargetExists => {
                    return Err(Error::failed(
                        format!("create snapshot {}", record.id),
                        format!(
                            "{} exists already and belongs to no snapshot; move it away",
                            home.directory().display()
                        ),
                    ));
                }
            }
        }
        self.groups().write_file(&self.record)
    }

    /// If the record cannot be removed, it may or may not be on disk; so the members stay, and the next
    /// start finds all of the group or nothing.
    fn roll_back(&self) {
        let id = &self.record.id;
        if let Err(error) = self.groups().remove_file(id) {
            tracing::warn!(
                %error,
                %id,
                "cannot roll back a group snapshot; the next start commits or removes it"
            );
            return;
        }
        let mut all_gone = true;
        for member in &self.record.members {
            if let Err(error) = self.pool.discard_unlisted(member) {
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
            self.groups().forget_unfinished(id);
        }
    }

    /// A caller that sees the group sees its members, and the other way round.
    fn enter(&mut self) -> GroupSnapshotRecord {
        let group = self.record.clone();
        let ImageProvisioner { catalogue, capacity, .. } = &self.pool;
        let members = self.members.iter_mut().map(ImageSnapshotDraft::object).collect();
        capacity.enter_all(catalogue.snapshot_index(), members, || {
            catalogue.group_snapshot_index().put(group);
        });
        self.record.clone()
    }

    fn groups(&self) -> &RecordIndex<GroupSnapshotRecord> {
        self.pool.catalogue.group_snapshot_index()
    }
}

#[cfg(test)]
mod tests;
