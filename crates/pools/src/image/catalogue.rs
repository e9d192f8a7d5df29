//! The records of the pool, in memory and on disk.
//!
//! Objects with data are in an [`ObjectIndex`], and are entered and removed by `capacity.rs`, which keeps the
//! ledger; objects that are only a record are in a [`RecordIndex`]. Whether data is as its record says is
//! checked here too. `loading.rs` reads all of them at start.

mod loading;
pub(super) mod record_index;
mod record_state;
mod stored_data;
mod stored_record;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use orlop_model::{
    Catalogue, Error, GroupSnapshotId, GroupSnapshotRecord, Result, SnapshotId, SnapshotRecord,
    VolumeGroupId, VolumeGroupRecord, VolumeId, VolumeRecord,
};
use orlop_sys::file;

use super::PoolDirectory;
use super::emergency_reserve::EmergencyReserve;
use super::failure::cannot;
use super::layout::ObjectDir;
use crate::poison::{read, write};
use crate::recorded::to_text;
use record_index::RecordIndex;
use record_state::RecordState;
pub(super) use stored_data::{
    check_current, check_data, problem_of_data, problem_of_snapshot, used_bytes,
};
pub(super) use stored_record::StoredRecord;

/// With the data, how much of it was shared when it was made. It is never more later, for what
/// is written since is its own.
pub(super) const SHARED: &str = "orlop.shared";

/// Any of it: counting too little as the pool's own only makes promises smaller.
const UNKNOWN_SHARE: u64 = u64::MAX;

pub(super) struct ImageCatalogue {
    directory: Arc<PoolDirectory>,
    reserve: Arc<EmergencyReserve>,
    volumes: ObjectIndex<VolumeRecord>,
    snapshots: ObjectIndex<SnapshotRecord>,
    group_snapshots: RecordIndex<GroupSnapshotRecord>,
    volume_groups: RecordIndex<VolumeGroupRecord>,
}

impl fmt::Debug for ImageCatalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageCatalogue")
            .field("pool", &self.directory.name())
            .finish_non_exhaustive()
    }
}

impl ImageCatalogue {
    pub(super) fn read(
        directory: Arc<PoolDirectory>,
        reserve: Arc<EmergencyReserve>,
    ) -> Result<Self> {
        let (layout, pool) = (directory.layout(), directory.id());
        Ok(Self {
            volumes: ObjectIndex::read(layout.volumes(), pool)?,
            snapshots: ObjectIndex::read(layout.snapshots(), pool)?,
            group_snapshots: RecordIndex::read(layout.group_snapshots(), pool)?,
            volume_groups: RecordIndex::read(layout.volume_groups(), pool)?,
            directory,
            reserve,
        })
    }

    pub(super) fn volume_index(&self) -> &ObjectIndex<VolumeRecord> {
        &self.volumes
    }

    pub(super) fn snapshot_index(&self) -> &ObjectIndex<SnapshotRecord> {
        &self.snapshots
    }

    pub(super) fn group_snapshot_index(&self) -> &RecordIndex<GroupSnapshotRecord> {
        &self.group_snapshots
    }

    #[cfg(test)]
    pub(super) fn volume_group_index(&self) -> &RecordIndex<VolumeGroupRecord> {
        &self.volume_groups
    }

    /// After a crash the old record is there or the new one, never half of each.
    pub(super) fn save_volume(&self, record: &VolumeRecord) -> Result<()> {
        let saving = || format!("save the record of volume {}", record.id);
        let text = to_text(record)?;
        let home = self.volumes.directory_of(&record.id);
        let save = || file::replace_file(home.directory(), ObjectDir::RECORD, &text);
        self.reserve.with_reserve(save).map_err(cannot(saving))
    }
}

impl Catalogue for ImageCatalogue {
    fn is_in_memory(&self) -> bool {
        true
    }

    fn volume(&self, id: &VolumeId) -> Result<Option<VolumeRecord>> {
        self.volumes.get(id)
    }

    fn volumes(
        &self,
        after: Option<&VolumeId>,
        limit: usize,
    ) -> Result<Vec<(VolumeId, Result<VolumeRecord>)>> {
        Ok(self.volumes.page(after, limit))
    }

    fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord> {
        self.directory.check_present()?;
        let mut record = self.volumes.require(id)?;
        change(&mut record)?;
        self.save_volume(&record)?;
        self.volumes.replace(record.clone(), record.charge(0), 0);
        Ok(record)
    }

    fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>> {
        self.snapshots.get(id)
    }

    fn snapshots(&self, after: Option<&SnapshotId>, limit: usize) -> Result<Vec<SnapshotRecord>> {
        Ok(self.snapshots.page_of_whole(after, limit))
    }

    fn group_snapshot(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshotRecord>> {
        self.group_snapshots.get(id)
    }

    fn volume_group(&self, id: &VolumeGroupId) -> Result<Option<VolumeGroupRecord>> {
        self.volume_groups.get(id)
    }

    fn volume_groups(
        &self,
        after: Option<&VolumeGroupId>,
        limit: usize,
    ) -> Result<Vec<VolumeGroupRecord>> {
        Ok(self.volume_groups.page_of_whole(after, limit))
    }

    /// No other process writes to this pool, so what it was is known.
    fn save_volume_group(
        &self,
        record: &VolumeGroupRecord,
        _was: Option<&VolumeGroupRecord>,
    ) -> Result<()> {
        self.directory.check_present()?;
        self.volume_groups.save(record, &self.reserve)
    }

    fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()> {
        self.directory.check_present()?;
        self.volume_groups.remove(id, &self.reserve)
    }
}

/// What of one kind the pool holds with data.
pub(super) struct ObjectIndex<R: StoredRecord> {
    directory: PathBuf,
    entries: RwLock<BTreeMap<R::Id, IndexEntry<R>>>,
}

struct IndexEntry<R> {
    record: RecordState<R>,
    charge: u64,
    /// How much of the data may be on the disk once for it and something else together.
    shared: u64,
    /// What the data took beyond that by the last usage scan.
    own: u64,
    /// What it took of that then: at most so much it has in common with other objects.
    in_common: u64,
}

/// What the ledger counts for one object: the space promised to it, and the space that its data takes alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) charge: u64,
    pub(super) own: u64,
}

impl<R: StoredRecord> ObjectIndex<R> {
    pub(super) fn directory_of(&self, id: &R::Id) -> ObjectDir {
        ObjectDir::new(self.directory.join(id.to_string()))
    }

    pub(super) fn get(&self, id: &R::Id) -> Result<Option<R>> {
        let known = read(&self.entries).get(id).map(|entry| entry.record.clone());
        known.map_or(Ok(None), |known| self.checked(id, known))
    }

    /// How long its data is at least.
    pub(super) fn length(&self, id: &R::Id) -> Result<Option<u64>> {
        if let Some(entry) = read(&self.entries).get(id)
            && let Some(record) = entry.record.whole()
        {
            return Ok(Some(record.length()));
        }
        Ok(self.get(id)?.map(|record| record.length()))
    }

    pub(super) fn require(&self, id: &R::Id) -> Result<R> {
        self.get(id)?.ok_or_else(|| R::missing(id))
    }

    /// What could not be read before is read again. It is booked by its data already.
    fn checked(&self, id: &R::Id, known: RecordState<R>) -> Result<Option<R>> {
        let known = match known {
            RecordState::Unread => {
                self.take_in(id, RecordState::read_again(id, &self.directory_of(id).record())?)
            }
            RecordState::Uncertain => {
                self.read_uncertain(id)?.and_then(|read| self.take_in(id, read))
            }
            RecordState::Whole(_) | RecordState::Damaged(_) => Some(known),
        };
        match known {
            Some(RecordState::Whole(record)) => Ok(Some(record)),
            Some(RecordState::Damaged(reason)) => Err(self.damaged(id, &reason)),
            Some(RecordState::Unread | RecordState::Uncertain) | None => Ok(None),
        }
    }

    /// For lists of records: a search by id reads an unread record anyway.
    fn read_unread(&self) {
        let unread = |(id, entry): (&R::Id, &IndexEntry<R>)| {
            entry.record.is_to_be_read().then(|| id.clone())
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

    pub(super) fn damaged(&self, id: &R::Id, reason: &str) -> Error {
        Error::damaged(
            format!("{} {id}", R::KIND),
            format!(
                "{reason}; it is left as it is, inspect {}",
                self.directory_of(id).directory().display()
            ),
        )
    }

    pub(super) fn page(&self, after: Option<&R::Id>, limit: usize) -> Vec<(R::Id, Result<R>)> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let mut last = after.cloned();
        let mut found = Vec::new();
        // A page that is not full is taken for the last one.
        while found.len() < limit {
            let start = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let known: Vec<_> = read(&self.entries)
                .range((start, Bound::Unbounded))
                .take(limit - found.len())
                .map(|(id, entry)| (id.clone(), entry.record.clone()))
                .collect();
            let Some((id, _)) = known.last() else { break };
            last = Some(id.clone());
            found.extend(known.into_iter().filter_map(|(id, known)| {
                let record = self.checked(&id, known).transpose()?;
                Some((id, record))
            }));
        }
        found
    }

    /// Leaves damaged ones out.
    pub(super) fn page_of_whole(&self, after: Option<&R::Id>, limit: usize) -> Vec<R> {
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
    pub(super) fn replace(&self, record: R, charge: u64, grown: u64) {
        let mut entries = write(&self.entries);
        let known = entries.get(record.id()).map(|it| (it.shared, it.own, it.in_common));
        let (shared, own, in_common) = known.unwrap_or((UNKNOWN_SHARE, 0, 0));
        let own = own.saturating_add(grown);
        let id = record.id().clone();
        let record = RecordState::Whole(record);
        entries.insert(id, IndexEntry { record, charge, shared, own, in_common });
    }

    /// New objects, each with how much of its data it shares with others. All at once, for callers
    /// that look; `before_visible` is done before any of them can.
    pub(super) fn put_all(&self, records: Vec<(R, Account, u64)>, before_visible: impl FnOnce()) {
        let mut entries = write(&self.entries);
        for (record, Account { charge, own }, shared) in records {
            let id = record.id().clone();
            let record = RecordState::Whole(record);
            entries.insert(id, IndexEntry { record, charge, shared, own, in_common: shared });
        }
        before_visible();
    }

    /// The ids of those that can be read and are as asked for.
    pub(super) fn ids_where(&self, fits: impl Fn(&R) -> bool) -> Vec<R::Id> {
        read(&self.entries)
            .iter()
            .filter(|(_, entry)| entry.record.whole().is_some_and(&fits))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// The greatest value among the records that can be read.
    pub(super) fn greatest<T: Ord>(&self, of: impl Fn(&R) -> Option<T>) -> Option<T> {
        let entries = read(&self.entries);
        let records = entries.values().filter_map(|entry| entry.record.whole());
        records.filter_map(of).max()
    }

    pub(super) fn take_out(&self, id: &R::Id) -> Account {
        let entry = write(&self.entries).remove(id);
        entry.map_or(Account::default(), |IndexEntry { charge, own, .. }| Account { charge, own })
    }

    pub(super) fn charges(&self) -> u128 {
        read(&self.entries).values().map(|entry| u128::from(entry.charge)).sum()
    }

    /// What all data here took by the last usage scan, less what it may share.
    pub(super) fn own_bytes(&self) -> u128 {
        read(&self.entries).values().map(|entry| u128::from(entry.own)).sum()
    }

    /// What all data here took by the last usage scan that other objects have too, at most: what was
    /// written over since it was copied is not known.
    pub(super) fn bytes_in_common(&self) -> u128 {
        read(&self.entries).values().map(|entry| u128::from(entry.in_common)).sum()
    }

    /// One after the other; the index is not locked in between.
    pub(super) fn ids(&self) -> impl Iterator<Item = R::Id> + '_ {
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
    pub(super) fn measure(&self, id: &R::Id) -> (u64, u64) {
        let allocated = self.allocated(id);
        let mut entries = write(&self.entries);
        let Some(entry) = entries.get_mut(id) else {
            return (0, 0);
        };
        // If it cannot be read now, the value read last counts.
        let (own, in_common) = allocated.map_or((entry.own, entry.in_common), |bytes| {
            (bytes.saturating_sub(entry.shared), bytes.min(entry.shared))
        });
        entry.in_common = in_common;
        (std::mem::replace(&mut entry.own, own), own)
    }
}

#[cfg(test)]
mod tests;
