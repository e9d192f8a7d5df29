//! What of one kind the pool holds with data, in memory; read from the pool at start.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::RwLock;
use std::thread;

use orlop_model::{Error, PoolId, Result, SnapshotRecord, VolumeRecord};
use orlop_sys::file;

use crate::image::failure::cannot;
use crate::image::layout::ObjectDir;
use crate::poison::{read, write};
use crate::recorded::{Recorded, read_record};

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

/// A record, or why it cannot be read.
struct IndexEntry<R> {
    record: std::result::Result<R, String>,
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
        thread::scope(|scope| {
            for ids in ids.chunks(ids.len().div_ceil(READERS).max(1)) {
                scope.spawn(|| ids.iter().for_each(|id| _ = index.load(id)));
            }
        });
        Ok(index)
    }

    /// What is found is answered for from then on, so it has to survive a power cut: whoever made it
    /// may have been stopped just before.
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

    /// Takes in what is on the pool under this id; returns what it is charged and takes.
    fn load(&self, id: &R::Id) -> Account {
        let home = self.directory_of(id);
        // Missing data is found again, and reported, by whoever looks at the condition.
        let allocated = file::allocated_bytes(&home.data()).unwrap_or(0);
        let record = read_record::<R>(id, &home.record());
        let charge = match &record {
            Ok(record) => record.charge(allocated),
            Err(reason) => {
                tracing::error!(
                    kind = R::KIND,
                    %id,
                    reason,
                    "damaged: calls for it answer DATA_LOSS until its record is restored"
                );
                allocated
            }
        };
        let noted = file::number(&home.data(), SHARED).ok().flatten();
        let shared = noted.unwrap_or(match &record {
            Ok(record) if !record.is_copy() => 0,
            Ok(_) | Err(_) => UNKNOWN_SHARE,
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
        Ok(Some(self.load(id)))
    }

    pub(in crate::image) fn get(&self, id: &R::Id) -> Result<Option<R>> {
        read(&self.entries).get(id).map(|entry| self.checked(id, entry)).transpose()
    }

    /// How long its data is at least.
    pub(in crate::image) fn length(&self, id: &R::Id) -> Result<Option<u64>> {
        let entries = read(&self.entries);
        let length = |entry: &IndexEntry<R>| match &entry.record {
            Ok(record) => Ok(record.length()),
            Err(reason) => Err(self.damaged(id, reason)),
        };
        entries.get(id).map(length).transpose()
    }

    pub(in crate::image) fn require(&self, id: &R::Id) -> Result<R> {
        self.get(id)?.ok_or_else(|| R::missing(id))
    }

    fn checked(&self, id: &R::Id, entry: &IndexEntry<R>) -> Result<R> {
        entry.record.clone().map_err(|reason| self.damaged(id, &reason))
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
        read(&self.entries)
            .range((start, Bound::Unbounded))
            .take(limit)
            .map(|(id, entry)| (id.clone(), self.checked(id, entry)))
            .collect()
    }

    /// Leaves damaged ones out.
    pub(in crate::image) fn page_of_whole(&self, after: Option<&R::Id>, limit: usize) -> Vec<R> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        read(&self.entries)
            .range((start, Bound::Unbounded))
            .filter_map(|(_, entry)| entry.record.as_ref().ok().cloned())
            .take(limit)
            .collect()
    }

    /// Another record for what is there; its data has taken `grown` bytes more.
    pub(in crate::image) fn replace(&self, record: R, charge: u64, grown: u64) {
        let mut entries = write(&self.entries);
        let known = entries.get(record.id()).map(|entry| (entry.shared, entry.own));
        let (shared, own) = known.unwrap_or((UNKNOWN_SHARE, 0));
        let own = own.saturating_add(grown);
        entries.insert(record.id().clone(), IndexEntry { record: Ok(record), charge, shared, own });
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
            entries.insert(
                record.id().clone(),
                IndexEntry { record: Ok(record), charge, shared, own },
            );
        }
        before_visible();
    }

    /// The ids of those that can be read and are as asked for.
    pub(in crate::image) fn ids_where(&self, fits: impl Fn(&R) -> bool) -> Vec<R::Id> {
        read(&self.entries)
            .iter()
            .filter(|(_, entry)| entry.record.as_ref().is_ok_and(&fits))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Of those that can be read.
    pub(in crate::image) fn greatest<T: Ord>(&self, of: impl Fn(&R) -> Option<T>) -> Option<T> {
        let entries = read(&self.entries);
        let records = entries.values().filter_map(|entry| entry.record.as_ref().ok());
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
    /// nothing. The caller keeps it from being put in and taken out meanwhile.
    pub(in crate::image) fn measure(&self, id: &R::Id) -> (u64, u64) {
        let allocated = file::allocated_bytes(&self.directory_of(id).data()).unwrap_or(0);
        let mut entries = write(&self.entries);
        let Some(entry) = entries.get_mut(id) else {
            return (0, 0);
        };
        let own = allocated.saturating_sub(entry.shared);
        (std::mem::replace(&mut entry.own, own), own)
    }
}

#[cfg(test)]
mod tests;
