//! Deleting: renamed into the trash, which makes it gone, then freed.

use orlop_model::Result;

use super::ImageProvisioner;
use crate::image::catalogue::{ObjectIndex, StoredRecord};
use crate::image::failure::cannot;

impl ImageProvisioner {
    /// A damaged object is not deleted: an operator may want to inspect it, and it may not be what
    /// its name says.
    pub(super) fn ensure_gone<R: StoredRecord>(
        &self,
        index: &ObjectIndex<R>,
        id: &R::Id,
    ) -> Result<()> {
        if index.get(id)?.is_none() {
            return Ok(());
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
                "deleted, but its space cannot be freed before the next start"
            );
        }
        self.reserve.ensure();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
