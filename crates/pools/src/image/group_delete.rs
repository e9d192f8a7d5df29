//! Deleting a group snapshot, and what is left of one that was never finished.
//!
//! The group's record goes first. Once it is durably gone its members are leftovers, and removing
//! those can wait for the next start if it must.

use orlop_model::{
    Error, GroupSnapshotId, GroupSnapshotRecord, Result, SnapshotId, SnapshotRecord,
};

use super::failure::Doing;
use super::layout::{Home, Layout};
use super::register::Register;
use super::shelf::Shelf;
use super::store::Store;
use crate::poison::lock;

impl Store {
    pub(super) fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        self.check_present()?;
        self.group_snapshots.adopt(id)?;
        let Some(record) = self.group_snapshots.get(id)? else {
            return Ok(());
        };
        for member in &record.members {
            // Of a group that was adopted, so are its members; a damaged one is refused while
            // nothing has happened yet.
            self.adopt(&self.snapshots, member)?;
            self.snapshots.get(member)?;
        }
        self.despite_full(|| self.group_snapshots.remove_file(id))
            .doing(|| format!("delete group snapshot {id}"))?;
        for member in &record.members {
            self.forget_member(member);
        }
        self.group_snapshots.take_out(id);
        self.ballast.ensure();
        Ok(())
    }

    fn forget_member(&self, id: &SnapshotId) {
        let home = self.snapshots.home(id);
        let moved = self.despite_full(|| self.layout.move_to_trash(home.directory(), id));
        if let Err(error) = discard(id, moved) {
            tracing::warn!(%error, %id, "its space is only freed at the next start");
        }
        let mut ledger = lock(&self.ledger);
        ledger.release(self.snapshots.take_out(id));
    }

    /// Removes what stands under a member's id without being in the index.
    pub(super) fn discard_unlisted(&self, id: &SnapshotId) -> Result<()> {
        if self.snapshots.get(id)?.is_some() {
            return Err(Error::conflict(format!("snapshot {id}"), "it is of another group"));
        }
        discard(id, self.layout.move_to_trash(self.snapshots.home(id).directory(), id))
    }
}

/// Members without their group's record are of a group that was not finished, or not deleted to
/// the end. Nobody was told of them, or everybody that they are gone. A record that is there but
/// cannot be read keeps its members.
pub(super) fn sweep_orphans(
    layout: &Layout,
    snapshots: &Shelf<SnapshotRecord>,
    groups: &Register<GroupSnapshotRecord>,
) {
    let is_orphan =
        |record: &SnapshotRecord| record.group.as_ref().is_some_and(|group| !groups.holds(group));
    for id in snapshots.ids_where(is_orphan) {
        snapshots.take_out(&id);
        match discard(&id, layout.move_to_trash(snapshots.home(&id).directory(), &id)) {
            Ok(()) => tracing::info!(%id, "removed a member of an unfinished group snapshot"),
            Err(error) => tracing::warn!(%error, %id, "a leftover stays"),
        }
    }
}

/// As for any snapshot: from the trash it is freed. Missing is fine.
fn discard(id: &SnapshotId, moved: orlop_sys::Result<Option<Home>>) -> Result<()> {
    if let Some(trash) = moved.doing(|| format!("remove snapshot {id}"))?
        && let Err(error) = trash.remove()
    {
        tracing::warn!(%error, "its space is only freed at the next start");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
