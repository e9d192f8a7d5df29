//! Records that are no logical volume's: those of groups, in the tags of the thin pool.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, RwLock};

use orlop_model::{Error, PoolId, Result};

use super::commands::Lvm;
use super::layout::{OwnTag, own_tag};
use super::objects::log_damaged;
use super::record_tags::{TaggedRecord, read_record, tags_of};
use super::report::Lv;
use crate::poison::{read, write};

#[derive(Debug)]
pub(super) struct PoolRecords<R: TaggedRecord> {
    lvm: Arc<Lvm>,
    thin_pool: String,
    entries: RwLock<BTreeMap<R::Id, PoolRecord<R>>>,
}

#[derive(Debug, Clone)]
struct PoolRecord<R> {
    tags: BTreeSet<String>,
    /// Or what is wrong with it.
    record: std::result::Result<R, String>,
}

impl<R: TaggedRecord> PoolRecord<R> {
    fn of(id: &R::Id, tags: BTreeSet<String>) -> Self {
        let pieces: Vec<&str> = tags.iter().filter_map(|tag| piece_of(tag)).collect();
        let record = read_record(id, &pieces);
        Self { tags, record }
    }
}

impl<R: TaggedRecord> PoolRecords<R> {
    pub(super) fn load(lvm: &Arc<Lvm>, pool: &PoolId, thin_pool: &Lv) -> Self {
        let mut by_id: BTreeMap<R::Id, BTreeSet<String>> = BTreeMap::new();
        for tag in &thin_pool.tags {
            if let Some(id) = id_of::<R>(tag)
                && R::pool_of(&id) == pool
            {
                by_id.entry(id).or_default().insert(tag.clone());
            }
        }
        let entry = |(id, tags)| {
            let entry = PoolRecord::of(&id, tags);
            (id, entry)
        };
        Self {
            lvm: Arc::clone(lvm),
            thin_pool: thin_pool.name.clone(),
            entries: RwLock::new(by_id.into_iter().map(entry).collect()),
        }
    }

    /// What a start says of those that it cannot use.
    pub(super) fn log_unusable(&self) {
        self.unreadable().iter().for_each(|(id, reason)| log_damaged(R::KIND, id, reason));
    }

    /// For a doctor: those whose record cannot be read, and why.
    pub(super) fn unreadable(&self) -> Vec<(R::Id, String)> {
        let reason = |(id, entry): (&R::Id, &PoolRecord<R>)| {
            Some((id.clone(), entry.record.as_ref().err()?.clone()))
        };
        read(&self.entries).iter().filter_map(reason).collect()
    }

    pub(super) fn get(&self, id: &R::Id) -> Result<Option<R>> {
        match read(&self.entries).get(id).map(|entry| entry.record.clone()) {
            None => Ok(None),
            Some(Ok(record)) => Ok(Some(record)),
            Some(Err(reason)) => Err(self.damaged(id, &reason)),
        }
    }

    fn damaged(&self, id: &R::Id, reason: &str) -> Error {
        let lv = self.lvm.group().lv(&self.thin_pool);
        let inspect =
            format!("{reason}; it is left as it is: `lvs -o +lv_tags {lv}` shows its tags");
        Error::damaged(format!("{} {id}", R::KIND), inspect)
    }

    pub(super) fn page(&self, after: Option<&R::Id>, limit: usize) -> Vec<R> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let whole = |(_, entry): (&R::Id, &PoolRecord<R>)| entry.record.clone().ok();
        read(&self.entries).range((start, Bound::Unbounded)).filter_map(whole).take(limit).collect()
    }

    /// Is it there, damaged or not?
    pub(super) fn holds(&self, id: &R::Id) -> bool {
        read(&self.entries).contains_key(id)
    }

    /// In one commit; a crash leaves the record that was or the one that is to be.
    pub(super) fn save(&self, record: &R) -> Result<()> {
        let id = record.id();
        self.get(id)?;
        let tags = tags_of(&id.to_string(), record)?.into_iter().collect();
        self.change(id, || format!("save the record of {} {id}", R::KIND), tags)
    }

    pub(super) fn remove(&self, id: &R::Id) -> Result<()> {
        match self.get(id)? {
            None => Ok(()),
            Some(_) => {
                let removing = || format!("remove the record of {} {id}", R::KIND);
                self.change(id, removing, BTreeSet::new())
            }
        }
    }

    fn change(
        &self,
        id: &R::Id,
        changing: impl Fn() -> String,
        tags: BTreeSet<String>,
    ) -> Result<()> {
        let before =
            read(&self.entries).get(id).map(|entry| entry.tags.clone()).unwrap_or_default();
        let lv = self.lvm.group().lv(&self.thin_pool);
        let removed = before.difference(&tags).flat_map(|tag| ["--deltag", tag]);
        let added = tags.difference(&before).flat_map(|tag| ["--addtag", tag]);
        let arguments: Vec<&str> = removed.chain(added).chain([lv.as_str()]).collect();
        if arguments.len() == 1 {
            return Ok(());
        }
        let done = self.lvm.change(changing, "lvchange", &arguments);
        match &done {
            Ok(()) => self.set(id, tags),
            Err(_) => self.read_again(id),
        }
        done
    }

    fn set(&self, id: &R::Id, tags: BTreeSet<String>) {
        let mut entries = write(&self.entries);
        match tags.is_empty() {
            true => drop(entries.remove(id)),
            false => drop(entries.insert(id.clone(), PoolRecord::of(id, tags))),
        }
    }

    /// Of a command that failed it is not known what it did.
    fn read_again(&self, id: &R::Id) {
        match self.lvm.report() {
            Ok(report) => {
                let tags = report.lv(&self.thin_pool).into_iter().flat_map(|lv| &lv.tags);
                let is_its = |tag: &&String| id_of::<R>(tag).is_some_and(|found| found == *id);
                self.set(id, tags.filter(is_its).cloned().collect());
            }
            Err(error) => tracing::warn!(
                kind = R::KIND, %id, %error,
                "cannot find out what a failed command of LVM has done; what is known is what was before it"
            ),
        }
    }
}

fn id_of<R: TaggedRecord>(tag: &str) -> Option<R::Id> {
    match own_tag(tag) {
        Some(Ok(OwnTag::Piece { key, .. })) => key.parse().ok(),
        Some(Ok(OwnTag::Word(_) | OwnTag::Pool(_)) | Err(_)) | None => None,
    }
}

fn piece_of(tag: &str) -> Option<&str> {
    match own_tag(tag) {
        Some(Ok(OwnTag::Piece { piece, .. })) => Some(piece),
        Some(Ok(OwnTag::Word(_) | OwnTag::Pool(_)) | Err(_)) | None => None,
    }
}

#[cfg(test)]
mod tests;
