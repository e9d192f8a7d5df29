//! Deleting: renamed into the trash, which makes it gone, then freed.

use orlop_model::{Error, Result, SnapshotId, VolumeId};

use super::failure::Doing;
use super::shelf::{Kept, Shelf};
use super::store::Store;
use crate::poison::lock;

impl Store {
    pub(super) fn ensure_no_volume(&self, id: &VolumeId) -> Result<()> {
        self.check_present()?;
        self.adopt(&self.volumes, id)?;
        if self.volumes.get(id)?.is_some() {
            // A file that a loop device still holds would keep its space, unseen.
            self.ensure_no_device(id)?;
            self.check_deletable(id)?;
        }
        self.ensure_gone(&self.volumes, id)
    }

    pub(super) fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()> {
        self.check_present()?;
        self.adopt(&self.snapshots, id)?;
        match self.snapshots.get(id)?.and_then(|record| record.group) {
            Some(group) if self.group_snapshots.holds(&group) => Err(Error::invalid(
                "snapshot_id",
                format!("is a member of group snapshot {group} and is deleted with it"),
            )),
            // A member without its group is a leftover.
            Some(_) | None => self.ensure_gone(&self.snapshots, id),
        }
    }

    /// What is damaged is refused: someone may want to look at it, and it may not be what its
    /// name says.
    fn ensure_gone<R: Kept>(&self, shelf: &Shelf<R>, id: &R::Id) -> Result<()> {
        if shelf.get(id)?.is_none() {
            return Ok(());
        }
        let deleting = || format!("delete {} {id}", R::KIND);
        let home = shelf.home(id);

        // A crash before the rename is durable leaves it as it was, and the call is repeated; a
        // crash after it leaves a directory in trash/ that the next start sweeps away.
        let moved = self.despite_full(|| self.layout.move_to_trash(home.directory(), id));
        let trash = moved.doing(deleting)?;
        if trash.is_none() {
            // Removed by someone else, unless the pool went away just now: all that is left of it
            // is in our memory.
            self.check_present()?;
        }
        let mut ledger = lock(&self.ledger);
        ledger.release(shelf.take_out(id));
        drop(ledger);
        // It is deleted; what goes wrong now costs space until the next start, not the answer.
        if let Some(trash) = trash
            && let Err(error) = trash.remove()
        {
            tracing::warn!(%error, "deleted, but its space cannot be freed before the next start");
        }
        self.ballast.ensure();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
