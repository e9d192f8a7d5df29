//! What of one kind the pool holds with data, in memory; read from the pool at start.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::RwLock;
use std::thread;

use orlop_model::{Error, PoolId, Result, SnapshotRecord, VolumeRecord};
use orlop_sys::file;
use rustix::io::Errno;

use super::record_state::{RecordState, check_lacks_nothing};
use crate::image::failure::cannot;
use crate::image::layout::ObjectDir;
use crate::poison::{read, write};
use crate::recorded::Recorded;

/// A record that is kept beside the data it describes.
pub(in crate::image) trait StoredRecord: Recorded {
    /// Is its data never written to once it is there?
    const IS_STILL: bool;

    /// How long the data is at least.
    fn length(&self) -> u64;

    /// Was its data taken from something else in the pool?
    fn is_copy(&self) -> bool;

    /// Whether this is what a caller who asks for `asked` would have got.
    fn check_answers(&self, asked: &Self) -> Result<()>;

    /// What of the pool's space is promised to it, when its data takes `allocated` bytes.
    fn charge(&self, allocated: u64) -> u64;

    /// The same, of one whose record is not known, by its data alone.
    fn charge_of_unread(length: u64, allocated: u64) -> u64;
}

impl StoredRecord for VolumeRecord {
    const IS_STILL: bool = false;

    fn length(&self) -> u64 {
        self.capacity_bytes
    }

    fn is_copy(&self) -> bool {
        self.source.is_some()
    }

    fn check_answers(&self, asked: &Self) -> Result<()> {
        let differs = [
            (self.capacity_bytes != asked.capacity_bytes, "its capacity"),
            (self.capabilities != asked.capabilities, "its capabilities"),
            (self.parameters != asked.parameters, "its parameters"),
            (self.source != asked.source, "its source"),
        ];
        conflict(self, &differs)
    }

    /// A volume may be filled at any time.
    fn charge(&self, _allocated: u64) -> u64 {
        self.capacity_bytes
    }

    fn charge_of_unread(length: u64, allocated: u64) -> u64 {
        length.max(allocated)
    }
}

impl StoredRecord for SnapshotRecord {
    const IS_STILL: bool = true;

    fn length(&self) -> u64 {
        self.size_bytes
    }

    fn is_copy(&self) -> bool {
        true
    }

    fn check_answers(&self, asked: &Self) -> Result<()> {
        conflict(self, &[(self.source != asked.source, "its source")])
    }

    /// A snapshot never grows.
    fn charge(&self, allocated: u64) -> u64 {
        allocated
    }

    fn charge_of_unread(_length: u64, allocated: u64) -> u64 {
        allocated
    }
}

fn conflict<R: StoredRecord>(existing: &R, aspects: &[(bool, &str)]) -> Result<()> {
    let differing: Vec<&str> =
        aspects.iter().filter(|(differs, _)| *differs).map(|(_, name)| *name).collect();
    if differing.is_empty() {
        return Ok(());
    }
    let what = format!("{} {}", R::KIND, existing.id());
    Err(Error::conflict(
        what,
        format!("it differs from what is asked for in {}", differing.join(", ")),
    ))
}

struct IndexEntry<R> {
    record: RecordState<R>,
    charge: u64,
    /// How much of the data may be on the disk once for it and something else together.
    shared: u64,
    /// What the data took beyond that when it was last looked at.
    own: u64,
}

/// What one object has on the books: what is promised to it, and what its data takes for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::image) struct Account {
    pub(in crate::image) charge: u64,
    pub(in crate::image) own: u64,
}

/// With the data, how much of it was shared when it was made. It is never more later, for what
/// is written since is its own.
pub(in crate::image) const SHARED: &str = "orlop.shared";

/// Any of it: counting too little as the pool's own only makes promises smaller.
const UNKNOWN_SHARE: u64 = u64::MAX;

/// How many records are read at the same time when the pool is opened. Where the disk has to be
/// asked for each, it is asked for several at once.
const READERS: usize = 8;

pub(in crate::image) struct ObjectIndex<R: StoredRecord> {
    directory: PathBuf,
    entries: RwLock<BTreeMap<R::Id, IndexEntry<R>>>,
}

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

    pub(in crate::image) fn directory_of(&self, id: &R::Id) -> ObjectDir {
        ObjectDir::new(self.directory.join(id.to_string()))
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
    fn allocated(&self, id: &R::Id) -> orlop_sys::Result<u64> {
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
            RecordState::Unread => {
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
        write(&self.entries).insert(id.clone(), IndexEntry { record, charge, shared, own });
        Account { charge, own }
    }

    /// Takes in what stands on the pool without our knowing; returns what it is charged and takes.
    pub(in crate::image) fn adopt(&self, id: &R::Id) -> Result<Option<Account>> {
        let directory = self.directory_of(id);
        let directory = directory.directory();
        let there = directory
            .try_exists()
            .map_err(cannot(|| format!("inspect {}", directory.display())))?;
        if !there || read(&self.entries).contains_key(id) {
            return Ok(None);
        }
        self.sync()?;
        self.load(id).map(Some)
    }

    pub(in crate::image) fn get(&self, id: &R::Id) -> Result<Option<R>> {
        let known = read(&self.entries).get(id).map(|entry| entry.record.clone());
        known.map_or(Ok(None), |known| self.checked(id, known))
    }

    /// How long its data is at least.
    pub(in crate::image) fn length(&self, id: &R::Id) -> Result<Option<u64>> {
        if let Some(entry) = read(&self.entries).get(id)
            && let Some(record) = entry.record.whole()
        {
            return Ok(Some(record.length()));
        }
        Ok(self.get(id)?.map(|record| record.length()))
    }

    pub(in crate::image) fn require(&self, id: &R::Id) -> Result<R> {
        self.get(id)?.ok_or_else(|| R::missing(id))
    }

    /// What could not be read before is read again. It is booked by its data already.
    fn checked(&self, id: &R::Id, known: RecordState<R>) -> Result<Option<R>> {
        let known = match known {
            RecordState::Unread => {
                let read = RecordState::read_again(id, &self.directory_of(id).record())?;
                match write(&self.entries).get_mut(id) {
                    None => return Ok(None),
                    Some(entry) => {
                        if matches!(entry.record, RecordState::Unread) {
                            entry.record = read;
                        }
                        entry.record.clone()
                    }
                }
            }
            RecordState::Whole(_) | RecordState::Damaged(_) => known,
        };
        match known {
            RecordState::Whole(record) => Ok(Some(record)),
            RecordState::Damaged(reason) => Err(self.damaged(id, &reason)),
            RecordState::Unread => Ok(None),
        }
    }

    /// For lists of records: a search by id reads an unread record anyway.
    fn read_unread(&self) {
        let unread = |(id, entry): (&R::Id, &IndexEntry<R>)| {
            matches!(entry.record, RecordState::Unread).then(|| id.clone())
        };
        let unread: Vec<_> = read(&self.entries).iter().filter_map(unread).collect();
        for id in unread {
            if let Err(error) = self.get(&id) {
                tracing::warn!(
                    kind = R::KIND,
                    %id,
                    %error,
                    "cannot read the record; it is missing from the list"
                );
            }
        }
    }

    pub(in crate::image) fn damaged(&self, id: &R::Id, reason: &str) -> Error {
        Error::damaged(
            format!("{} {id}", R::KIND),
            format!(
                "{reason}; it is left as it is, inspect {}",
                self.directory_of(id).directory().display()
            ),
        )
    }

    pub(in crate::image) fn page(
        &self,
        after: Option<&R::Id>,
        limit: usize,
    ) -> Vec<(R::Id, Result<R>)> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let known: Vec<_> = read(&self.entries)
            .range((start, Bound::Unbounded))
            .take(limit)
            .map(|(id, entry)| (id.clone(), entry.record.clone()))
            .collect();
        let checked = known.into_iter().filter_map(|(id, known)| {
            let record = self.checked(&id, known).transpose()?;
            Some((id, record))
        });
        checked.collect()
    }

    /// Leaves damaged ones out.
    pub(in crate::image) fn page_of_whole(&self, after: Option<&R::Id>, limit: usize) -> Vec<R> {
        self.read_unread();
        let limit = if limit == 0 { usize::MAX } else { limit };
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        read(&self.entries)
            .range((start, Bound::Unbounded))
            .filter_map(|(_, entry)| entry.record.whole().cloned())
            .take(limit)
            .collect()
    }

    /// Another record for what is there; its data has taken `grown` bytes more.
    pub(in crate::image) fn replace(&self, record: R, charge: u64, grown: u64) {
        let mut entries = write(&self.entries);
        let known = entries.get(record.id()).map(|entry| (entry.shared, entry.own));
        let (shared, own) = known.unwrap_or((UNKNOWN_SHARE, 0));
        let own = own.saturating_add(grown);
        let id = record.id().clone();
        let record = RecordState::Whole(record);
        entries.insert(id, IndexEntry { record, charge, shared, own });
    }

    /// New objects, each with how much of its data it shares with others. All at once, for callers
    /// that look; `before_visible` is done before any of them can.
    pub(in crate::image) fn put_all(
        &self,
        records: Vec<(R, Account, u64)>,
        before_visible: impl FnOnce(),
    ) {
        let mut entries = write(&self.entries);
        for (record, Account { charge, own }, shared) in records {
            let id = record.id().clone();
            let record = RecordState::Whole(record);
            entries.insert(id, IndexEntry { record, charge, shared, own });
        }
        before_visible();
    }

    /// The ids of those that can be read and are as asked for.
    pub(in crate::image) fn ids_where(&self, fits: impl Fn(&R) -> bool) -> Vec<R::Id> {
        read(&self.entries)
            .iter()
            .filter(|(_, entry)| entry.record.whole().is_some_and(&fits))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Of those that can be read.
    pub(in crate::image) fn greatest<T: Ord>(&self, of: impl Fn(&R) -> Option<T>) -> Option<T> {
        let entries = read(&self.entries);
        let records = entries.values().filter_map(|entry| entry.record.whole());
        records.filter_map(of).max()
    }

    pub(in crate::image) fn take_out(&self, id: &R::Id) -> Account {
        let entry = write(&self.entries).remove(id);
        entry.map_or(Account::default(), |IndexEntry { charge, own, .. }| Account { charge, own })
    }

    pub(in crate::image) fn charges(&self) -> u128 {
        read(&self.entries).values().map(|entry| u128::from(entry.charge)).sum()
    }

    /// What all data here took when it was last looked at, less what it may share.
    pub(in crate::image) fn own_bytes(&self) -> u128 {
        read(&self.entries).values().map(|entry| u128::from(entry.own)).sum()
    }

    /// One after the other, without holding up anybody in between.
    pub(in crate::image) fn ids(&self) -> impl Iterator<Item = R::Id> + '_ {
        let mut last = None;
        std::iter::from_fn(move || {
            let start = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let next = read(&self.entries).range((start, Bound::Unbounded)).next()?.0.clone();
            last = Some(next.clone());
            Some(next)
        })
    }

    /// What its data was last seen to take, and what it takes now. Data that is gone takes
    /// nothing. The caller keeps it from being inserted or removed during the call.
    pub(in crate::image) fn measure(&self, id: &R::Id) -> (u64, u64) {
        let allocated = self.allocated(id);
        let mut entries = write(&self.entries);
        let Some(entry) = entries.get_mut(id) else {
            return (0, 0);
        };
        // If it cannot be read now, the value read last counts.
        let own = allocated.map_or(entry.own, |bytes| bytes.saturating_sub(entry.shared));
        (std::mem::replace(&mut entry.own, own), own)
    }
}

#[cfg(test)]
mod tests;
