//! Records that have no data, one file each, and an index of them in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::RwLock;

use orlop_model::{Error, PoolId, Result};
use orlop_sys::file;

use super::record_state::RecordState;
use crate::image::emergency_reserve::EmergencyReserve;
use crate::image::failure::cannot;
use crate::poison::{read, write};
use crate::recorded::{Recorded, to_text};

pub(in crate::image) const SUFFIX: &str = ".json";
/// The suffix of an empty file beside a record that is being created or deleted. If a record is missing and this file
/// is there, what belongs to the record is a leftover; without this file, the record was lost.
pub(in crate::image) const UNFINISHED: &str = ".unfinished";

pub(in crate::image) struct RecordIndex<R: Recorded> {
    directory: PathBuf,
    entries: RwLock<BTreeMap<R::Id, RecordState<R>>>,
    /// What an earlier process left unfinished.
    unfinished: BTreeSet<R::Id>,
}

impl<R: Recorded> RecordIndex<R> {
    pub(in crate::image) fn read(directory: PathBuf, pool: &PoolId) -> Result<Self> {
        let mut index = Self { directory, entries: RwLock::default(), unfinished: BTreeSet::new() };
        let directory = index.directory.clone();
        let listing = || format!("read {}", directory.display());
        for file in fs::read_dir(&directory).map_err(cannot(listing))? {
            let name = file.map_err(cannot(listing))?.file_name();
            let named = |name: &str, suffix: &str| {
                let id = name.strip_suffix(suffix)?.parse::<R::Id>().ok()?;
                (R::pool_of(&id) == pool).then_some(id)
            };
            let id_in = |name: &str| named(name, SUFFIX);
            let unfinished_in = |name: &str| named(name, UNFINISHED);
            if let Some(id) = name.to_str().and_then(unfinished_in) {
                index.unfinished.insert(id);
                continue;
            }
            let replaced = name.to_str().and_then(file::replaced_name);
            match name.to_str().and_then(id_in) {
                Some(id) => {
                    let record = RecordState::read_first(&id, &index.path_of(&id))?;
                    write(&index.entries).insert(id, record);
                }
                // What a crash left of a replacement that may never be tried again.
                None if replaced
                    .is_some_and(|it| id_in(it).or_else(|| unfinished_in(it)).is_some()) =>
                {
                    if let Err(error) = file::ensure_no_file(&index.directory.join(&name)) {
                        tracing::warn!(
                            %error,
                            "cannot remove an orphan; the next start tries again"
                        );
                    }
                }
                None => tracing::warn!(
                    directory = %index.directory.display(),
                    name = %name.display(),
                    "ignoring an entry that this pool did not create"
                ),
            }
        }
        Ok(index)
    }

    fn name_of(id: &R::Id) -> String {
        format!("{id}{SUFFIX}")
    }

    pub(in crate::image) fn path_of(&self, id: &R::Id) -> PathBuf {
        self.directory.join(Self::name_of(id))
    }

    /// Takes in a record that stands on the pool without our knowing: a replacement whose last
    /// sync failed was reported as a failure, but may well have happened.
    pub(in crate::image) fn adopt(&self, id: &R::Id) -> Result<()> {
        let path = self.path_of(id);
        let there = path.try_exists().map_err(cannot(|| format!("inspect {}", path.display())))?;
        if there && !self.holds(id) {
            // It is answered for from now on, so it has to survive a power cut.
            file::sync_dir(&self.directory)
                .map_err(cannot(|| format!("sync {}", path.display())))?;
            let record = RecordState::read_again(id, &path)?;
            write(&self.entries).insert(id.clone(), record);
        }
        Ok(())
    }

    /// Also if it is damaged.
    pub(in crate::image) fn holds(&self, id: &R::Id) -> bool {
        read(&self.entries).contains_key(id)
    }

    pub(in crate::image) fn get(&self, id: &R::Id) -> Result<Option<R>> {
        let known = read(&self.entries).get(id).cloned();
        match known {
            None => Ok(None),
            Some(RecordState::Whole(record)) => Ok(Some(record)),
            Some(RecordState::Damaged(reason)) => Err(self.damaged(id, &reason)),
            Some(RecordState::Unread | RecordState::Uncertain) => self.read_again(id),
        }
    }

    fn read_again(&self, id: &R::Id) -> Result<Option<R>> {
        let record = RecordState::read_again(id, &self.path_of(id))?;
        let mut entries = write(&self.entries);
        let Some(entry) = entries.get_mut(id) else { return Ok(None) };
        if entry.is_to_be_read() {
            *entry = record;
        }
        match entry {
            RecordState::Whole(record) => Ok(Some(record.clone())),
            RecordState::Damaged(reason) => Err(self.damaged(id, reason)),
            RecordState::Unread | RecordState::Uncertain => Ok(None),
        }
    }

    fn damaged(&self, id: &R::Id, reason: &str) -> Error {
        Error::damaged(
            format!("{} {id}", R::KIND),
            format!("{reason}; it is left as it is, inspect {}", self.path_of(id).display()),
        )
    }

    /// For lists of records: a search by id reads an unread record anyway.
    fn read_unread(&self) {
        let unread =
            |(id, record): (&R::Id, &RecordState<R>)| record.is_to_be_read().then(|| id.clone());
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

    /// Leaves damaged ones out.
    pub(in crate::image) fn page_of_whole(&self, after: Option<&R::Id>, limit: usize) -> Vec<R> {
        self.read_unread();
        let limit = if limit == 0 { usize::MAX } else { limit };
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        read(&self.entries)
            .range((start, Bound::Unbounded))
            .filter_map(|(_, entry)| entry.whole().cloned())
            .take(limit)
            .collect()
    }

    /// Makes the record or replaces it.
    pub(super) fn save(&self, record: &R, reserve: &EmergencyReserve) -> Result<()> {
        // A damaged record keeps its name until an operator has inspected it.
        let is_new = self.get(record.id())?.is_none();
        match is_new {
            true => self.write_file(record)?,
            // Only an empty group can be deleted, so a full pool has to let one be emptied.
            false => {
                let saving = || format!("save the record of {} {}", R::KIND, record.id());
                let text = to_text(record)?;
                reserve
                    .with_reserve(|| self.replace_file(record.id(), &text))
                    .map_err(cannot(saving))?;
            }
        }
        self.put(record.clone());
        reserve.ensure();
        Ok(())
    }

    pub(super) fn remove(&self, id: &R::Id, reserve: &EmergencyReserve) -> Result<()> {
        self.get(id)?;
        reserve
            .with_reserve(|| self.remove_file(id))
            .map_err(cannot(|| format!("delete {} {id}", R::KIND)))?;
        self.take_out(id);
        reserve.ensure();
        Ok(())
    }

    pub(in crate::image) fn write_file(&self, record: &R) -> Result<()> {
        let text = to_text(record)?;
        self.replace_file(record.id(), &text)
            .map_err(cannot(|| format!("save the record of {} {}", R::KIND, record.id())))
    }

    /// Durable once it returns; after a crash the old record is there or the new one.
    pub(in crate::image) fn replace_file(&self, id: &R::Id, text: &[u8]) -> orlop_sys::Result<()> {
        file::replace_file(&self.directory, &Self::name_of(id), text)
    }

    /// Durable once it returns; missing is fine.
    pub(in crate::image) fn remove_file(&self, id: &R::Id) -> orlop_sys::Result<()> {
        file::ensure_no_file(&self.path_of(id))?;
        // Also if it was missing: an earlier removal may have failed just here.
        file::sync_dir(&self.directory)
    }

    /// Durable once it returns.
    pub(in crate::image) fn note_unfinished(&self, id: &R::Id) -> orlop_sys::Result<()> {
        file::replace_file(&self.directory, &format!("{id}{UNFINISHED}"), b"")
    }

    /// Missing is fine. If a crash keeps the note, the next start finds it beside the record, or
    /// without anything to sweep.
    pub(in crate::image) fn forget_unfinished(&self, id: &R::Id) {
        if let Err(error) = file::ensure_no_file(&self.directory.join(format!("{id}{UNFINISHED}")))
        {
            tracing::warn!(%error, %id, "cannot remove a temporary file before the next start");
        }
    }

    /// Noted by an earlier process.
    pub(in crate::image) fn unfinished(&self) -> &BTreeSet<R::Id> {
        &self.unfinished
    }

    pub(in crate::image) fn put(&self, record: R) {
        write(&self.entries).insert(record.id().clone(), RecordState::Whole(record));
    }

    pub(in crate::image) fn take_out(&self, id: &R::Id) {
        write(&self.entries).remove(id);
    }
}

#[cfg(test)]
mod tests;
