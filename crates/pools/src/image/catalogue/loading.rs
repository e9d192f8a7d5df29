//! Reading what the pool holds with data: all of it at start, later what an interrupted call left.

use std::fs;
use std::path::PathBuf;
use std::sync::RwLock;
use std::thread;

use orlop_model::{Error, PoolId, Result};
use orlop_sys::file;
use rustix::io::Errno;

use super::record_state::{RecordState, check_lacks_nothing};
use super::{Account, IndexEntry, ObjectIndex, SHARED, StoredRecord, UNKNOWN_SHARE};
use crate::image::failure::cannot;
use crate::poison::{read, write};

/// How many records are read at the same time when the pool is opened. Where the disk has to be
/// asked for each, it is asked for several at once.
const READERS: usize = 8;

impl<R: StoredRecord> ObjectIndex<R> {
    pub(in crate::image) fn read(directory: PathBuf, pool: &PoolId) -> Result<Self> {
        let index = Self { directory, entries: RwLock::default() };
        if let Err(error) = index.sync() {
            // A pool on a failing disk must open all the same.
            tracing::warn!(
                %error,
                "cannot sync the pool: the newest objects may not survive a power cut"
            );
        }
        let ids = index.found(pool)?;
        let load = |ids: &[R::Id]| ids.iter().try_for_each(|id| index.load_first(id).map(drop));
        let loaded = thread::scope(|scope| {
            let chunks = ids.chunks(ids.len().div_ceil(READERS).max(1));
            let readers: Vec<_> = chunks.map(|ids| scope.spawn(move || load(ids))).collect();
            let panicked = |_| Err(Error::failed("read the pool", "a reader ended unexpectedly"));
            let joined = readers.into_iter().map(|reader| reader.join().unwrap_or_else(panicked));
            joined.collect::<Result<()>>()
        });
        loaded.map(|()| index)
    }

    /// Calls will report what is found here as existing, so it has to survive a power cut: the daemon
    /// that made it may have been killed before its own fsync.
    fn sync(&self) -> Result<()> {
        file::sync_dir(&self.directory)
            .map_err(cannot(|| format!("sync {}", self.directory.display())))
    }

    fn found(&self, pool: &PoolId) -> Result<Vec<R::Id>> {
        let listing = || format!("read {}", self.directory.display());
        let mut ids = Vec::new();
        for file in fs::read_dir(&self.directory).map_err(cannot(listing))? {
            let name = file.map_err(cannot(listing))?.file_name();
            let id = name.to_str().and_then(|name| name.parse::<R::Id>().ok());
            match id.filter(|id| R::pool_of(id) == pool) {
                Some(id) => ids.push(id),
                None => tracing::warn!(
                    directory = %self.directory.display(),
                    name = %name.display(),
                    "ignoring an entry that this pool did not create"
                ),
            }
        }
        Ok(ids)
    }

    /// At the opening: takes in what is on the pool under this id; returns what it is charged and takes.
    fn load_first(&self, id: &R::Id) -> Result<Account> {
        let record = RecordState::read_first(id, &self.directory_of(id).record())?;
        let allocated = self.allocated(id).or_else(|error| {
            check_lacks_nothing::<R>(id, &error)?;
            tracing::error!(
                kind = R::KIND,
                %id,
                %error,
                "cannot read how much space its data takes; counting none until the next usage scan"
            );
            Ok(0)
        })?;
        Ok(self.insert(id, record, allocated))
    }

    /// The same while the pool is in service: what cannot be read is not taken in.
    fn load(&self, id: &R::Id) -> Result<Account> {
        let record = RecordState::read_again(id, &self.directory_of(id).record())?;
        let looking = || format!("inspect the data of {} {id}", R::KIND);
        let allocated = self.allocated(id).map_err(cannot(looking))?;
        Ok(self.insert(id, record, allocated))
    }

    /// Missing data takes nothing: it is found again, and reported, when the condition is read.
    pub(super) fn allocated(&self, id: &R::Id) -> orlop_sys::Result<u64> {
        match file::allocated_bytes(&self.directory_of(id).data()) {
            Err(error) if matches!(error.errno(), Some(Errno::NOENT | Errno::NOTDIR)) => Ok(0),
            allocated => allocated,
        }
    }

    fn insert(&self, id: &R::Id, record: RecordState<R>, allocated: u64) -> Account {
        let data = self.directory_of(id).data();
        let charge = match &record {
            RecordState::Whole(record) => record.charge(allocated),
            RecordState::Damaged(_) => allocated,
            RecordState::Unread | RecordState::Uncertain => {
                let length = fs::symlink_metadata(&data).map_or(0, |data| data.len());
                R::charge_of_unread(length, allocated)
            }
        };
        let noted = file::number(&data, SHARED).ok().flatten();
        let shared = noted.unwrap_or(match record.whole() {
            Some(record) if !record.is_copy() => 0,
            Some(_) | None => UNKNOWN_SHARE,
        });
        let own = allocated.saturating_sub(shared);
        let in_common = allocated.min(shared);
        let entry = IndexEntry { record, charge, shared, own, in_common };
        write(&self.entries).insert(id.clone(), entry);
        Account { charge, own }
    }

    /// Takes in what stands on the pool without our knowing; returns what it is charged and takes.
    pub(in crate::image) fn adopt(&self, id: &R::Id) -> Result<Option<Account>> {
        let directory = self.directory_of(id);
        let directory = directory.directory();
        let there = directory
            .try_exists()
            .map_err(cannot(|| format!("inspect {}", directory.display())))?;
        if !there || self.holds(id) {
            return Ok(None);
        }
        self.sync()?;
        self.load(id).map(Some)
    }

    /// Also if it is damaged, or may not be there.
    pub(in crate::image) fn holds(&self, id: &R::Id) -> bool {
        read(&self.entries).contains_key(id)
    }

    /// For what may have got its name although its creation failed, and cannot be read now. Without it, a repeated
    /// creation would find nothing, and be sent to another pool.
    pub(in crate::image) fn put_uncertain(&self, id: &R::Id, account: Account, shared: u64) {
        let Account { charge, own } = account;
        let record = RecordState::Uncertain;
        let entry = IndexEntry { record, charge, shared, own, in_common: shared };
        write(&self.entries).insert(id.clone(), entry);
    }

    /// Is there an entry of a creation that came to nothing?
    pub(in crate::image) fn is_void(&self, id: &R::Id) -> Result<bool> {
        let is_uncertain = |entry: &IndexEntry<R>| matches!(entry.record, RecordState::Uncertain);
        let is_uncertain = read(&self.entries).get(id).is_some_and(is_uncertain);
        Ok(is_uncertain && self.read_uncertain(id)?.is_none())
    }

    /// `None`: there is nothing. The entry, and with it what was booked, stays until something is created or deleted under
    /// the id.
    pub(super) fn read_uncertain(&self, id: &R::Id) -> Result<Option<RecordState<R>>> {
        // It is answered for from now on, be it there or not.
        self.sync()?;
        let home = self.directory_of(id);
        let there = home.directory().try_exists();
        match there.map_err(cannot(|| format!("inspect {}", home.directory().display())))? {
            true => RecordState::read_again(id, &home.record()).map(Some),
            false => Ok(None),
        }
    }

    /// Enters what was read, unless another call was faster. `None`: it was deleted in between.
    pub(super) fn take_in(&self, id: &R::Id, read: RecordState<R>) -> Option<RecordState<R>> {
        let mut entries = write(&self.entries);
        let entry = entries.get_mut(id)?;
        if entry.record.is_to_be_read() {
            entry.record = read;
        }
        Some(entry.record.clone())
    }
}

#[cfg(test)]
mod tests;
