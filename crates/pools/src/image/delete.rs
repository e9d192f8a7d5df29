//! Deleting: renamed into the trash, which makes it gone, then freed.

use orlop_model::{Result, SnapshotId, VolumeId};
use orlop_sys::file::{self, RenameOutcome};

use super::failure::Doing;
use super::layout::Home;
use super::shelf::{Kept, Shelf};
use super::store::Store;
use crate::poison::lock;

impl Store {
    pub(super) fn ensure_no_volume(&self, id: &VolumeId) -> Result<()> {
        self.check_present()?;
        self.adopt(&self.volumes, id)?;
        if self.volumes.get(id)?.is_some() {
            // A file that a loop device still holds would keep its space, unseen.
            self.attachments.ensure_none(id)?;
        }
        self.ensure_gone(&self.volumes, id)
    }

    pub(super) fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()> {
        self.check_present()?;
        self.adopt(&self.snapshots, id)?;
        self.ensure_gone(&self.snapshots, id)
    }

    /// What is damaged is refused: someone may want to look at it, and it may not be what its
    /// name says.
    fn ensure_gone<R: Kept>(&self, shelf: &Shelf<R>, id: &R::Id) -> Result<()> {
        if shelf.get(id)?.is_none() {
            return Ok(());
        }
        let deleting = || format!("delete {} {id}", R::KIND);
        let home = shelf.home(id);
        let allocated = shelf.own_bytes(id);
        let trash = Home::new(self.layout.new_in_trash(id));

        // A crash before the rename is durable leaves it as it was, and the call is repeated; a
        // crash after it leaves a directory in trash/ that the next start sweeps away.
        match self.despite_full(|| file::rename_new(home.directory(), trash.directory())) {
            Ok(RenameOutcome::Renamed | RenameOutcome::TargetExists) => {}
            // Removed by someone else, unless the pool went away just now: all that is left of
            // it is in our memory.
            Err(error) if error.is_not_found() => self.check_present()?,
            Err(error) => return Err(error).doing(deleting),
        }
        let mut ledger = lock(&self.ledger);
        let charge = shelf.take_out(id);
        ledger.release_promise(charge);
        ledger.note_removed(allocated);
        drop(ledger);
        // It is deleted; what goes wrong now costs space until the next start, not the answer.
        if let Err(error) = trash.remove() {
            tracing::warn!(%error, "deleted, but its space is only freed at the next start");
        }
        self.ballast.ensure();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
