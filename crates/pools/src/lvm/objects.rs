//! Logical volumes of one kind, volumes or snapshots: what their tags say, in memory, and every change of them.
//!
//! No other process changes what has our tags, so memory is right until a command fails; then LVM is asked what is there
//! now. Callers serialise changes of one object.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Bound;
use std::sync::{Arc, RwLock};

use orlop_model::{Error, PoolId, Result};

use super::commands::Lvm;
use super::layout::RECORD;
use super::lv_state::{Action, LvState, LvTags, Step};
use super::record_tags::{TaggedRecord, tags_of};
use super::report::{GroupReport, Lv};
use crate::poison::{read, write};

#[derive(Debug)]
pub(super) struct Objects<R: TaggedRecord> {
    lvm: Arc<Lvm>,
    entries: RwLock<BTreeMap<R::Id, Entry<R>>>,
}

/// What a logical volume with the name of an object is.
#[derive(Debug, Clone)]
enum Entry<R> {
    /// A draft or deleted: for callers it is not there.
    Unfinished(LvTags),
    Whole(LvTags, R),
    /// And why.
    Damaged(String),
    /// It has the name, and no tag of ours.
    Foreign,
}

/// What a doctor has to know of one.
pub(super) enum ObjectState<R> {
    Unfinished,
    Whole(R),
    Damaged(String),
    Foreign,
}

impl<R: TaggedRecord> Entry<R> {
    fn of_lv(id: &R::Id, lv: &Lv) -> Self {
        match LvTags::parse(lv.tags.iter().map(String::as_str)) {
            Err(reason) => Self::Damaged(reason),
            Ok(None) => Self::Foreign,
            Ok(Some(tags)) => Self::of_tags(id, tags),
        }
    }

    fn of_tags(id: &R::Id, tags: LvTags) -> Self {
        match tags.state() {
            LvState::Draft | LvState::Deleted => Self::Unfinished(tags),
            LvState::Whole => match tags.record(id) {
                Ok(record) => Self::Whole(tags, record),
                Err(reason) => Self::Damaged(reason),
            },
        }
    }

    fn log(&self, id: &R::Id) {
        match self {
            Self::Damaged(reason) => log_damaged(R::KIND, id, reason),
            Self::Foreign => tracing::warn!(
                kind = R::KIND, %id,
                "a logical volume has a name of this pool and no tag of Orlop: it is left alone"
            ),
            Self::Unfinished(_) | Self::Whole(..) => {}
        }
    }
}

impl<R: TaggedRecord> Objects<R> {
    pub(super) fn load(lvm: &Arc<Lvm>, pool: &PoolId, report: &GroupReport) -> Self {
        let entry = |lv: &Lv| {
            let id = id_of::<R>(pool, &lv.name)?;
            let entry = Entry::of_lv(&id, lv);
            Some((id, entry))
        };
        let entries = report.volumes.iter().filter_map(entry).collect();
        Self { lvm: Arc::clone(lvm), entries: RwLock::new(entries) }
    }

    /// What a start says of those that it cannot use.
    pub(super) fn log_unusable(&self) {
        read(&self.entries).iter().for_each(|(id, entry)| entry.log(id));
    }

    /// For a doctor: in the order of their ids, with what is wrong with them.
    pub(super) fn states(&self) -> Vec<(R::Id, ObjectState<R>)> {
        let state = |(id, entry): (&R::Id, &Entry<R>)| {
            let state = match entry {
                Entry::Unfinished(_) => ObjectState::Unfinished,
                Entry::Whole(_, record) => ObjectState::Whole(record.clone()),
                Entry::Damaged(reason) => ObjectState::Damaged(reason.clone()),
                Entry::Foreign => ObjectState::Foreign,
            };
            (id.clone(), state)
        };
        read(&self.entries).iter().map(state).collect()
    }

    fn entry(&self, id: &R::Id) -> Option<Entry<R>> {
        read(&self.entries).get(id).cloned()
    }

    pub(super) fn get(&self, id: &R::Id) -> Result<Option<R>> {
        self.entry(id).map_or(Ok(None), |entry| self.record(id, entry))
    }

    pub(super) fn require(&self, id: &R::Id) -> Result<R> {
        self.get(id)?.ok_or_else(|| R::missing(id))
    }

    fn record(&self, id: &R::Id, entry: Entry<R>) -> Result<Option<R>> {
        match entry {
            Entry::Whole(_, record) => Ok(Some(record)),
            Entry::Unfinished(_) | Entry::Foreign => Ok(None),
            Entry::Damaged(reason) => Err(self.damaged(id, &reason)),
        }
    }

    fn damaged(&self, id: &R::Id, reason: &str) -> Error {
        let lv = self.lvm.group().lv(id);
        let inspect =
            format!("{reason}; it is left as it is: `lvs -o +lv_tags {lv}` shows its tags");
        Error::damaged(format!("{} {id}", R::KIND), inspect)
    }

    /// Those that are not damaged, and those that are with the reason.
    pub(super) fn page(&self, after: Option<&R::Id>, limit: usize) -> Vec<(R::Id, Result<R>)> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let visible = |(id, entry): (&R::Id, &Entry<R>)| {
            Some((id.clone(), self.record(id, entry.clone()).transpose()?))
        };
        let entries = read(&self.entries);
        entries.range((start, Bound::Unbounded)).filter_map(visible).take(limit).collect()
    }

    /// Of those that are not damaged.
    pub(super) fn records(&self) -> impl Iterator<Item = R> {
        self.page(None, 0).into_iter().filter_map(|(_, record)| record.ok())
    }

    /// What a daemon that was killed has not made or not removed.
    pub(super) fn unfinished(&self) -> Vec<R::Id> {
        let is_unfinished = |entry: &Entry<R>| matches!(entry, Entry::Unfinished(_));
        let entries = read(&self.entries);
        entries.iter().filter(|(_, entry)| is_unfinished(entry)).map(|(id, _)| id.clone()).collect()
    }

    /// Makes the logical volume, by `lvcreate` with these arguments, as a draft.
    pub(super) fn create_draft(&self, id: &R::Id, arguments: &[&str]) -> Result<()> {
        self.create(id, LvTags::draft(), arguments)
    }

    /// The same of a copy, whose source's writers wait for it.
    pub(super) fn create_copy(&self, id: &R::Id, arguments: &[&str]) -> Result<()> {
        let arguments = self.prepare(id, &LvTags::draft(), arguments)?;
        let creating = || format!("create {} {id}", R::KIND);
        let done = self.lvm.change_while_writers_wait(creating, "lvcreate", &arguments);
        self.note_created(id, LvTags::draft(), done)
    }

    /// The same of one that needs no more than to be created: it is there with its record, or not at all.
    pub(super) fn create_whole(&self, record: &R, arguments: &[&str]) -> Result<()> {
        self.create(record.id(), LvTags::whole(&tags_of(RECORD, record)?), arguments)
    }

    fn create(&self, id: &R::Id, tags: LvTags, arguments: &[&str]) -> Result<()> {
        let arguments = self.prepare(id, &tags, arguments)?;
        let done = self.lvm.change(|| format!("create {} {id}", R::KIND), "lvcreate", &arguments);
        self.note_created(id, tags, done)
    }

    /// The arguments of `lvcreate`.
    fn prepare(&self, id: &R::Id, tags: &LvTags, arguments: &[&str]) -> Result<Vec<String>> {
        self.ensure_name_is_free(id)?;
        let name = ["--name".to_owned(), id.to_string()];
        let tags = tags.iter().flat_map(|tag| ["--addtag", tag]);
        let rest = tags.chain(arguments.iter().copied()).map(str::to_owned);
        Ok(name.into_iter().chain(rest).collect())
    }

    fn note_created(&self, id: &R::Id, tags: LvTags, done: Result<()>) -> Result<()> {
        self.note_failure(id, done)?;
        write(&self.entries).insert(id.clone(), Entry::of_tags(id, tags));
        Ok(())
    }

    /// Of the orphan of an earlier attempt.
    fn ensure_name_is_free(&self, id: &R::Id) -> Result<()> {
        match self.entry(id) {
            None | Some(Entry::Foreign) => Ok(()),
            Some(Entry::Unfinished(tags)) => self.step(id, &tags, Step::Remove),
            Some(Entry::Damaged(reason)) => Err(self.damaged(id, &reason)),
            Some(Entry::Whole(..)) => Err(Error::busy(
                format!("{} {id}", R::KIND),
                "another call has made it at the same time",
            )),
        }
    }

    /// A draft becomes visible, with that record.
    pub(super) fn commit(&self, record: &R) -> Result<()> {
        let tags = tags_of(RECORD, record)?;
        self.step_from(record.id(), Step::Commit { record: &tags })
    }

    pub(super) fn replace(&self, record: &R) -> Result<()> {
        let tags = tags_of(RECORD, record)?;
        self.step_from(record.id(), Step::Replace { record: &tags })
    }

    /// A draft, or what is deleted, goes; a whole one is marked as deleted before.
    pub(super) fn ensure_gone(&self, id: &R::Id) -> Result<()> {
        match self.entry(id) {
            None | Some(Entry::Foreign) => return Ok(()),
            Some(Entry::Damaged(reason)) => return Err(self.damaged(id, &reason)),
            Some(Entry::Whole(tags, _)) => self.step(id, &tags, Step::Delete)?,
            Some(Entry::Unfinished(_)) => {}
        }
        self.step_from(id, Step::Remove)
    }

    /// If it is whole after all, it stays: a repeated call finds it.
    pub(super) fn ensure_no_draft(&self, id: &R::Id) -> Result<()> {
        match self.entry(id) {
            Some(Entry::Unfinished(tags)) => self.step(id, &tags, Step::Remove),
            None | Some(Entry::Whole(..) | Entry::Damaged(_) | Entry::Foreign) => Ok(()),
        }
    }

    fn step_from(&self, id: &R::Id, step: Step<'_>) -> Result<()> {
        match self.entry(id) {
            Some(Entry::Unfinished(tags) | Entry::Whole(tags, _)) => self.step(id, &tags, step),
            Some(Entry::Damaged(reason)) => Err(self.damaged(id, &reason)),
            None | Some(Entry::Foreign) => Err(R::missing(id)),
        }
    }

    fn step(&self, id: &R::Id, from: &LvTags, step: Step<'_>) -> Result<()> {
        let changing = || format!("change {} {id}", R::KIND);
        let Some((action, next)) = from.after(step) else {
            return Err(Error::failed(changing(), format!("it is {}", from.state())));
        };
        let lv = self.lvm.group().lv(id);
        match &action {
            Action::RemoveLv => {
                self.run(id, || format!("remove {} {id}", R::KIND), "lvremove", &[&lv])?;
            }
            Action::ChangeTags { remove, add } => {
                let removed = remove.iter().flat_map(|tag| ["--deltag", tag]);
                let added = add.iter().flat_map(|tag| ["--addtag", tag]);
                let all: Vec<&str> = removed.chain(added).chain([lv.as_str()]).collect();
                self.run(id, changing, "lvchange", &all)?;
            }
        }
        let mut entries = write(&self.entries);
        match next {
            None => drop(entries.remove(id)),
            Some(tags) => drop(entries.insert(id.clone(), Entry::of_tags(id, tags))),
        }
        Ok(())
    }

    fn run(
        &self,
        id: &R::Id,
        doing: impl Fn() -> String,
        command: &str,
        arguments: &[&str],
    ) -> Result<()> {
        self.note_failure(id, self.lvm.change(doing, command, arguments))
    }

    /// Of a command that failed it is not known what it did, unless it had no lock.
    fn note_failure(&self, id: &R::Id, done: Result<()>) -> Result<()> {
        match &done {
            Ok(()) | Err(Error::Busy { .. }) => {}
            Err(_) => match self.lvm.report() {
                Ok(report) => self.take_in(id, &report),
                Err(error) => tracing::warn!(
                    kind = R::KIND, %id, %error,
                    "cannot find out what a failed command of LVM has done; what is known is what was before it"
                ),
            },
        }
        done
    }

    fn take_in(&self, id: &R::Id, report: &GroupReport) {
        let found = report.lv(&id.to_string()).map(|lv| Entry::of_lv(id, lv));
        let mut entries = write(&self.entries);
        match found {
            None => drop(entries.remove(id)),
            Some(entry) => drop(entries.insert(id.clone(), entry)),
        }
    }
}

pub(super) fn log_damaged(kind: &str, id: &dyn Display, reason: &str) {
    tracing::error!(
        kind, %id, reason,
        "the record is damaged: calls for this object answer DATA_LOSS until it is restored"
    );
}

/// `None`: the logical volume is none of these objects of this pool.
fn id_of<R: TaggedRecord>(pool: &PoolId, name: &str) -> Option<R::Id> {
    let id: R::Id = name.parse().ok()?;
    (R::pool_of(&id) == pool).then_some(id)
}

#[cfg(test)]
mod tests;
