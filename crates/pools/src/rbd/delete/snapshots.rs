//! Deleting snapshots and group snapshots.

use orlop_model::{Error, GroupSnapshotId, Result, SnapshotId};
use orlop_sys::ceph::{Update, UpdateOutcome};

use super::super::catalogue::{GroupSnapshotEntry, SnapshotEntry, SnapshotLocation};
use super::super::image_state::CHANGED;
use super::super::intent::to_remove;
use super::super::layout::name_of_snapshot_group;
use super::super::uncommitted_group_snapshot::IntendedGroupSnapshot;
use super::super::uncommitted_snapshot::IntendedSnapshot;
use super::Deletion;

impl Deletion {
    /// The record goes first, and in its place comes the intent to remove its data too: a crash in
    /// between leaves that to garbage collection.
    pub(in super::super) fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()> {
        let Some(text) = self.catalogue.snapshot_records().text(id)? else {
            self.intents.remove_all_for::<IntendedSnapshot>(&id.to_string());
            return Ok(());
        };
        let entry = SnapshotEntry::parse(id, &text)?;
        let SnapshotLocation { image, snapshot, .. } = entry.location;
        let (intent, intent_text) = to_remove(&snapshot, IntendedSnapshot::new(&image))?;
        let key = id.to_string();
        let update =
            Update::default().expect(&key, Some(&text)).remove(&key).set(&intent, &intent_text);
        let deleting = || format!("delete snapshot {id}");
        match self.records.update(deleting, &update)? {
            UpdateOutcome::Done => {}
            UpdateOutcome::Differs => return Err(Error::busy(format!("snapshot {id}"), CHANGED)),
        }
        // It is deleted; what goes wrong now costs space until it is retried, not the answer.
        if let Err(error) = self.intents.ensure_removed::<IntendedSnapshot>(&snapshot) {
            tracing::warn!(
                %error,
                snapshot = %id,
                "cannot free the space of a deleted snapshot yet; it will be retried"
            );
        }
        self.background.wake();
        Ok(())
    }

    /// As for a single snapshot: the records go first, and in their place comes an intent.
    pub(in super::super) fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        let key = id.to_string();
        let Some(text) = self.catalogue.group_snapshot_records().text(id)? else {
            self.intents.remove_all_for::<IntendedGroupSnapshot>(&key);
            return Ok(());
        };
        let GroupSnapshotEntry { location, record } = GroupSnapshotEntry::parse(id, &text)?;
        let name = name_of_snapshot_group(&location.rbd_group).ok_or_else(|| {
            let reason = format!("{} is not a group of Orlop's", location.rbd_group);
            Error::damaged(format!("group snapshot {id}"), reason)
        })?;
        let (intent, intent_text) = to_remove(name, location.intended)?;
        let update = Update::default().expect(&key, Some(&text)).remove(&key);
        let members = record.members.iter();
        let update = members.fold(update, |update, member| update.remove(&member.to_string()));
        let deleting = || format!("delete group snapshot {id}");
        let update = update.set(&intent, &intent_text);
        match self.records.update(deleting, &update)? {
            UpdateOutcome::Done => {}
            UpdateOutcome::Differs => {
                return Err(Error::busy(format!("group snapshot {id}"), CHANGED));
            }
        }
        // It is deleted; what goes wrong now costs space until it is retried, not the answer.
        if let Err(error) = self.intents.ensure_removed::<IntendedGroupSnapshot>(name) {
            tracing::warn!(
                %error,
                group = %id,
                "cannot free the space of a deleted snapshot yet; it will be retried"
            );
        }
        self.background.wake();
        Ok(())
    }
}
