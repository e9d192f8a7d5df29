//! Deleting: renamed into the trash, which makes it gone, then freed.

use orlop_model::{Error, Result, SnapshotId, VolumeId};

use super::ImageProvisioner;
use crate::image::catalogue::{ObjectIndex, StoredRecord};
use crate::image::failure::cannot;

impl ImageProvisioner {
    pub(super) fn delete_volume(&self, id: &VolumeId) -> Result<()> {
        let volumes = self.catalogue.volume_index();
        self.directory.check_present()?;
        self.capacity.adopt(volumes, id)?;
        if volumes.get(id)?.is_some() {
            // A file that a loop device still holds would keep its space, unseen.
            self.devices.ensure_no_device(id)?;
            self.devices.check_deletable(id)?;
        }
        self.ensure_gone(volumes, id)
    }

    pub(super) fn delete_snapshot(&self, id: &SnapshotId) -> Result<()> {
        let snapshots = self.catalogue.snapshot_index();
        self.directory.check_present()?;
        self.capacity.adopt(snapshots, id)?;
        match snapshots.get(id)?.and_then(|record| record.group) {
            Some(group) if self.catalogue.group_snapshot_index().holds(&group) => {
                Err(Error::invalid(
                    "snapshot_id",
                    format!("is a member of group snapshot {group} and is deleted with it"),
                ))
            }
            // A member without its group is a leftover.
            Some(_) | None => self.ensure_gone(snapshots, id),
        }
    }

    /// A damaged object is not deleted: an operator may want to inspect it, and it may not be what
    /// its name says.
    pub(super) fn ensure_gone<R: StoredRecord>(
        &self,
        index: &ObjectIndex<R>,
        id: &R::Id,
    ) -> Result<()> {
        if index.get(id)?.is_none() {
            return self.capacity.forget_void(index, id);
        }
        let deleting = || format!("delete {} {id}", R::KIND);
        let home = index.directory_of(id);

        // A crash before the rename is durable leaves it as it was, and the call is repeated; a
        // crash after it leaves a directory in trash/ that the next start sweeps away.
        let moved = self
            .reserve
            .with_reserve(|| self.directory.layout().move_to_trash(home.directory(), id));
        let trash = moved.map_err(cannot(deleting))?;
        if trash.is_none() {
            // Removed by another process, unless the pool was unmounted just now: all that is left of it
            // is the entry in the catalogue.
            self.directory.check_present()?;
        }
        self.capacity.remove(index, id);
        // It is deleted; what goes wrong now costs space until the next start, not the answer.
        if let Some(trash) = trash
            && let Err(error) = trash.remove()
        {
            tracing::warn!(
                %error,
                kind = R::KIND,
                %id,
                "cannot free the space of a deleted object before the next start"
            );
        }
        self.reserve.ensure();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
