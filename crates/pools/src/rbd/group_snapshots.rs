//! Group snapshots: a record among the pool's keys, beside those of the members. All of them are
//! written in one operation, and removed in one.

use std::sync::Arc;
use std::time::SystemTime;

use orlop_model::record::RECORD_VERSION;
use orlop_model::{
    Draft, Error, GroupSnapshotId, GroupSnapshotRecord, NewGroupSnapshot, Result, SnapshotRecord,
};
use orlop_sys::ceph::{Outcome, Update, can_clone_by_number};
use serde::{Deserialize, Serialize};

use super::group_cut::{GroupCut, Member, OfImages};
use super::layout::name_of_cut_group;
use super::pending::dropped;
use super::snapshots::{Entry, Place, new_record};
use super::store::Store;
use crate::recorded::parse_record;

/// Where the data of all members is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupPlace {
    /// What RBD calls it.
    rbd_group: String,
    #[serde(flatten)]
    of: OfImages,
}

#[derive(Debug, Serialize)]
pub(crate) struct GroupEntry {
    #[serde(flatten)]
    pub(crate) place: GroupPlace,
    #[serde(flatten)]
    pub(crate) record: GroupSnapshotRecord,
}

impl GroupEntry {
    pub(crate) fn parse(id: &GroupSnapshotId, text: &[u8]) -> Result<Self> {
        let damaged = |reason| Error::damaged(format!("group snapshot {id}"), reason);
        let record = parse_record(id, &"record", text).map_err(damaged)?;
        let place = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        Ok(Self { place, record })
    }

    pub(crate) fn text(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| {
            Error::failed(format!("write the record of group snapshot {}", self.record.id), error)
        })
    }
}

/// Can what is cut together be restored with the librbd of this machine?
pub(super) fn can_restore_groups() -> bool {
    can_clone_by_number().unwrap_or_else(|error| {
        tracing::warn!(
            %error,
            "cannot tell whether librbd restores group snapshots; none are offered"
        );
        false
    })
}

impl Store {
    fn group_text(&self, id: &GroupSnapshotId) -> Result<Option<Vec<u8>>> {
        let reading = || format!("read group snapshot {id}");
        self.record(reading, &id.to_string())
    }

    pub(super) fn group_snapshot(
        &self,
        id: &GroupSnapshotId,
    ) -> Result<Option<GroupSnapshotRecord>> {
        let entry = self.group_text(id)?.map(|text| GroupEntry::parse(id, &text)).transpose()?;
        Ok(entry.map(|entry| entry.record))
    }

    pub(super) fn begin_group_snapshot(
        self: &Arc<Self>,
        new: &NewGroupSnapshot,
    ) -> Result<GroupSnapshotDraft> {
        if !self.cuts_groups {
            return Err(Error::precondition(format!(
                "volumes of pool {} cannot be cut together: librbd of this machine has no \
                 rbd_clone4, so such snapshots could not be restored; Ceph 19 has it",
                self.info.name
            )));
        }
        // A damaged one keeps its name until someone has looked at it.
        if self.group_snapshot(&new.id)?.is_some() {
            return Err(overtaken(&new.id));
        }
        self.check_any_room()?;
        let (mut members, mut records) = (Vec::new(), Vec::new());
        for member in &new.members {
            if self.snapshot_entry(&member.id)?.is_some() {
                return Err(Error::Busy(format!("snapshot {}", member.id)));
            }
            let source = self.require(&member.source.id)?;
            let volume = source.record.id.clone();
            members.push(Member { volume, image_id: source.image_id.clone() });
            let group = Some(new.id.clone());
            records.push(SnapshotRecord { group, ..new_record(member, source) });
        }
        let cut = GroupCut::prepare(self, &new.id.to_string(), members)?;
        Ok(GroupSnapshotDraft {
            store: Arc::clone(self),
            record: GroupSnapshotRecord {
                version: RECORD_VERSION,
                id: new.id.clone(),
                name: new.name.clone(),
                members: new.members.iter().map(|member| member.id.clone()).collect(),
                created: SystemTime::now().into(),
            },
            members: records,
            cut,
            progress: Progress::Begun,
        })
    }

    /// As for a single snapshot: the records go first, and in their place comes a note.
    pub(super) fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        let key = id.to_string();
        let Some(text) = self.group_text(id)? else {
            self.forget_cuts_for::<OfImages>(&key);
            return Ok(());
        };
        let GroupEntry { place, record } = GroupEntry::parse(id, &text)?;
        let name = name_of_cut_group(&place.rbd_group).ok_or_else(|| {
            let reason = format!("{} is no group of Orlop's", place.rbd_group);
            Error::damaged(format!("group snapshot {id}"), reason)
        })?;
        let (note, text_of_note) = dropped(name, place.of)?;
        let update = Update::default().expect(&key, Some(&text)).remove(&key);
        let members = record.members.iter();
        let update = members.fold(update, |update, member| update.remove(&member.to_string()));
        let deleting = || format!("delete group snapshot {id}");
        let update = update.set(&note, &text_of_note);
        match self.update_records(deleting, &update)? {
            Outcome::Done => {}
            Outcome::Differs => return Err(overtaken(id)),
        }
        // It is deleted; what goes wrong now costs space until someone has time, not the answer.
        if let Err(error) = self.ensure_swept::<OfImages>(name) {
            tracing::warn!(%error, "deleted; its space cannot be freed yet and will be retried");
        }
        self.background.wake();
        Ok(())
    }
}

fn overtaken(id: &GroupSnapshotId) -> Error {
    Error::Busy(format!("group snapshot {id}"))
}

#[derive(Debug)]
pub(super) struct GroupSnapshotDraft {
    store: Arc<Store>,
    record: GroupSnapshotRecord,
    members: Vec<SnapshotRecord>,
    cut: GroupCut,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Begun,
    /// Whether it is there is not known.
    Cutting,
    Cut,
}

impl Draft<GroupSnapshotRecord> for GroupSnapshotDraft {
    fn capture(&mut self) -> Result<()> {
        match self.progress {
            Progress::Begun => self.progress = Progress::Cutting,
            Progress::Cutting => {
                return Err(Error::failed("cut a group snapshot", "an earlier cut of it failed"));
            }
            Progress::Cut => return Ok(()),
        }
        self.cut.cut()?;
        self.record.created = SystemTime::now().into();
        self.progress = Progress::Cut;
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<GroupSnapshotRecord> {
        self.capture()?;
        let made = self.cut.release()?;
        let Self { store, record, members, cut, .. } = *self;
        let key = record.id.to_string();
        let place = GroupPlace { rbd_group: cut.group(), of: cut.images() };
        let entry = GroupEntry { place, record };
        let mut update = Update::default().expect(&key, None).set(&key, &entry.text()?);
        for ((image, snapshot), member) in entry.place.of.images.iter().zip(made).zip(members) {
            let record = SnapshotRecord {
                size_bytes: snapshot.size,
                created: entry.record.created,
                ..member
            };
            let place = Place {
                image: image.clone(),
                snapshot: snapshot.name,
                number: Some(snapshot.number),
            };
            let key = record.id.to_string();
            update = update.expect(&key, None).set(&key, &Entry { place, record }.text()?);
        }
        if !cut.try_commit(update)? {
            return Err(overtaken(&entry.record.id));
        }
        store.forget_cuts_for::<OfImages>(&key);
        Ok(entry.record)
    }
}
