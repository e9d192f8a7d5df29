//! A volume or snapshot in the making: a directory that is filled under a temporary name and
//! renamed into its place.

use std::fmt::Display;
use std::fs::File;

use orlop_model::{Error, Result};
use orlop_sys::file::{self, BackingKind, RenameOutcome};

use super::capacity::{Capacity, NewObject, Reservation};
use super::catalogue::{ObjectIndex, SHARED, StoredRecord};
use super::directory::PoolDirectory;
use super::failure::cannot;
use super::layout::ObjectDir;
use crate::recorded::{Recorded, to_text};

#[derive(Debug)]
pub(super) struct PendingObject {
    /// Before the directory, and so closed before that is removed: the blocks of a file that is open are
    /// not freed at once.
    data: File,
    home: DraftDir,
    keeps_order: bool,
}

/// Removed when dropped, unless it was moved into its place by then.
#[derive(Debug)]
struct DraftDir(ObjectDir);

impl PendingObject {
    pub(super) fn create(pool: &PoolDirectory, name: &impl Display) -> Result<Self> {
        let home = ObjectDir::new(pool.layout().new_in_staging(name));
        home.create()?;
        let home = DraftDir(home);
        let path = home.0.data();
        let data =
            file::create_file(&path).map_err(cannot(|| format!("create {}", path.display())))?;
        Ok(Self { data, home, keeps_order: pool.keeps_order() })
    }

    pub(super) fn data(&self) -> &File {
        &self.data
    }

    /// Makes the data, which may share extents with what it is a copy of, a copy that has `bytes` for
    /// itself. That takes as long as the data is large, and comes after the capture, when nothing holds the
    /// source's writers any more. A crash leaves it in staging/ with the rest of the draft.
    pub(super) fn set_apart(&mut self, bytes: u64, backing: BackingKind) -> Result<()> {
        let data = self.home.0.data();
        let apart = data.with_extension("apart");
        let copying = || format!("unshare the blocks of {}", data.display());
        let own = file::create_file(&apart).map_err(cannot(copying))?;
        reserve(&own, bytes, backing).map_err(cannot(copying))?;
        file::copy_apart(&self.data, &own).map_err(cannot(copying))?;
        file::ensure_no_file(&data).map_err(cannot(copying))?;
        match file::rename_new(&apart, &data).map_err(cannot(copying))? {
            RenameOutcome::Renamed => {}
            RenameOutcome::TargetExists => {
                return Err(Error::failed(copying(), "another file has its name"));
            }
        }
        self.data = own;
        Ok(())
    }

    pub(super) fn allocated(&self) -> Result<u64> {
        file::allocated_bytes(&self.home.0.data())
            .map_err(cannot(|| "read the size of the new data".to_owned()))
    }

    pub(super) fn note_shared(&self, bytes: u64) {
        if let Err(error) = file::set_number(&self.data, SHARED, bytes) {
            tracing::debug!(
                %error,
                "cannot record how much of this copy is shared; after a restart all of it \
                 counts as shared"
            );
        }
    }

    /// Gives it its place in the pool and in the catalogue, or finds there what an earlier attempt
    /// made and could not report. What is there may also be something else: a volume that came back
    /// with a pool that had been away.
    pub(super) fn commit<R: StoredRecord>(
        &self,
        record: &R,
        index: &ObjectIndex<R>,
        capacity: &Capacity,
        reservation: &mut Reservation,
    ) -> Result<R> {
        let allocated = self.allocated()?;
        // A volume that is no copy may share with a template, and with all others made from it.
        if record.is_copy() || reservation.shared() > 0 {
            self.note_shared(reservation.shared());
        }
        match self.move_to(&index.directory_of(record.id()), record)? {
            RenameOutcome::Renamed => {
                let object = NewObject { record: record.clone(), allocated, reservation };
                capacity.enter_all(index, vec![object], || {});
                Ok(record.clone())
            }
            RenameOutcome::TargetExists => {
                capacity.adopt(index, record.id())?;
                let found = index.require(record.id())?;
                found.check_answers(record)?;
                Ok(found)
            }
        }
    }

    /// Makes it visible on disk, whole and durable, in one step.
    ///
    /// A crash before the rename leaves a directory in staging/ that the next start sweeps away;
    /// a crash after it leaves the finished thing, which a repeated creation finds. For that, all
    /// that is in the directory must be on disk before the directory's new name is.
    pub(super) fn move_to<R: Recorded>(
        &self,
        directory: &ObjectDir,
        record: &R,
    ) -> Result<RenameOutcome> {
        let creating = || format!("create {} {}", R::KIND, record.id());
        let text = to_text(record)?;
        if self.keeps_order {
            // The fsync after the rename takes all of this along (decision 0028).
            file::write_out(&self.data).map_err(cannot(creating))?;
            file::create_file_written_out(&self.home.0.record(), &text)
                .map_err(cannot(creating))?;
        } else {
            // The record first: where one journal serves the whole filesystem, it takes the data's
            // length and extents along, and little is left for the sync that follows.
            file::create_file_durable(&self.home.0.record(), &text).map_err(cannot(creating))?;
            file::sync_file(&self.data).map_err(cannot(creating))?;
            file::sync_dir(self.home.0.directory()).map_err(cannot(creating))?;
        }
        file::rename_new(self.home.0.directory(), directory.directory()).map_err(cannot(creating))
    }
}

/// Gives an empty file its length and all space for it.
pub(super) fn reserve(data: &File, bytes: u64, backing: BackingKind) -> orlop_sys::Result<()> {
    if backing == BackingKind::Btrfs {
        // Else each overwrite would need free space as well (decision 0029).
        file::overwrite_in_place(data)?;
    }
    file::set_length(data, bytes)?;
    file::preallocate(data, 0, bytes)
}

impl Drop for DraftDir {
    /// After the rename there is nothing under the temporary name, and names are not used twice.
    fn drop(&mut self) {
        if let Err(error) = self.0.remove() {
            tracing::warn!(%error, "cannot remove a draft before the next start");
        }
    }
}
