//! Deleting a group snapshot, and what is left of one that was never finished.
//!
//! The group's record goes first, after a note that its members are to follow. Once it is durably
//! gone they are leftovers, and removing those can wait for the next start if it must.

use orlop_model::{
    Error, GroupSnapshotId, GroupSnapshotRecord, Result, SnapshotId, SnapshotRecord,
};

use super::ImageProvisioner;
use crate::image::catalogue::ObjectIndex;
use crate::image::catalogue::record_index::RecordIndex;
use crate::image::failure::cannot;
use crate::image::layout::{Layout, ObjectDir};
use crate::image::quarantine::quarantine;

impl ImageProvisioner {
    pub(super) fn delete_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        self.directory.check_present()?;
        self.catalogue.group_snapshot_index().adopt(id)?;
        match self.catalogue.group_snapshot_index().get(id)? {
            Some(record) => self.delete_group(&record),
            None => Ok(()),
        }
    }

    fn delete_group(&self, record: &GroupSnapshotRecord) -> Result<()> {
        let (id, snapshots) = (&record.id, self.catalogue.snapshot_index());
        let groups = self.catalogue.group_snapshot_index();
        for member in &record.members {
            // Of a group that was adopted, so are its members; a damaged one is refused while
            // nothing has happened yet.
            self.capacity.adopt(snapshots, member)?;
            snapshots.get(member)?;
        }
        let deleting = || format!("delete group snapshot {id}");
        self.reserve.with_reserve(|| groups.note_unfinished(id)).map_err(cannot(deleting))?;
        self.reserve.with_reserve(|| groups.remove_file(id)).map_err(cannot(deleting))?;
        let mut all_gone = true;
        for member in &record.members {
            all_gone &= self.forget_member(member);
        }
        if all_gone {
            groups.forget_unfinished(id);
        }
        groups.take_out(id);
        self.reserve.ensure();
        Ok(())
    }

    /// `false`: it still has its name.
    fn forget_member(&self, id: &SnapshotId) -> bool {
        let snapshots = self.catalogue.snapshot_index();
        let home = snapshots.directory_of(id);
        let layout = self.directory.layout();
        let moved = self.reserve.with_reserve(|| layout.move_to_trash(home.directory(), id));
        let discarded = discard(id, moved);
        if let Err(error) = &discarded {
            tracing::warn!(
                %error,
                %id,
                "cannot free the space of a deleted object before the next start"
            );
        }
        self.capacity.remove(snapshots, id);
        discarded.is_ok()
    }

    /// Removes what stands under a member's id without being in the index.
    pub(super) fn discard_unlisted(&self, id: &SnapshotId) -> Result<()> {
        let snapshots = self.catalogue.snapshot_index();
        if snapshots.get(id)?.is_some() {
            return Err(Error::conflict(
                format!(
                    "snapshot \
                 {id}"
                ),
                "it belongs to another group snapshot",
            ));
        }
        let directory = snapshots.directory_of(id);
        discard(id, self.directory.layout().move_to_trash(directory.directory(), id))
    }
}

/// Members without their group's record are of a group that was not finished, or not deleted to
/// the end, if that was noted: no client was given them, or they were deleted. Without such a note
/// the record was lost, and its members are set aside. A record that is there but cannot be read
/// keeps its members.
pub(in crate::image) fn remove_orphaned_members(
    layout: &Layout,
    snapshots: &ObjectIndex<SnapshotRecord>,
    groups: &RecordIndex<GroupSnapshotRecord>,
) {
    let is_orphan =
        |record: &SnapshotRecord| record.group.as_ref().is_some_and(|group| !groups.holds(group));
    let mut swept = groups.unfinished().clone();
    for id in snapshots.ids_where(is_orphan) {
        let group = snapshots.get(&id).ok().flatten().and_then(|record| record.group);
        snapshots.take_out(&id);
        let home = snapshots.directory_of(&id);
        match group.filter(|group| groups.unfinished().contains(group)) {
            Some(group) => match discard(&id, layout.move_to_trash(home.directory(), &id)) {
                Ok(()) => tracing::info!(%id, "removed a member of an unfinished group snapshot"),
                Err(error) => {
                    swept.remove(&group);
                    tracing::warn!(
                        %error,
                        %id,
                        "cannot remove an orphan; the next start tries again"
                    );
                }
            },
            None => keep_member(layout, &id, &home),
        }
    }
    for group in &swept {
        groups.forget_unfinished(group);
    }
}

fn keep_member(layout: &Layout, id: &SnapshotId, home: &ObjectDir) {
    match quarantine(layout, home.directory()) {
        Ok(()) => tracing::warn!(
            %id,
            directory = %layout.quarantine().display(),
            "quarantined a snapshot: it belongs to a group snapshot whose record is missing"
        ),
        Err(error) => {
            tracing::warn!(
                %error,
                %id,
                "cannot quarantine a snapshot whose group snapshot has no record"
            );
        }
    }
}

/// As for any snapshot: from the trash it is freed. Missing is fine.
fn discard(id: &SnapshotId, moved: orlop_sys::Result<Option<ObjectDir>>) -> Result<()> {
    if let Some(trash) = moved.map_err(cannot(|| format!("remove snapshot {id}")))?
        && let Err(error) = trash.remove()
    {
        tracing::warn!(
            %error,
            snapshot = %id,
            "cannot free the space of a deleted object before the next start"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
