//! ListVolumes, ControllerGetVolume, ListSnapshots: pages in the order of ids.

use orlop_model::{Condition, Error, Result, SnapshotId, SnapshotRecord, VolumeId, VolumeRecord};

use crate::engine::{Engine, PoolRef};
use crate::group_snapshot::in_whole_group;
use crate::request::{Page, SnapshotFilter, Volume, VolumeStatus};

impl Engine {
    /// An id is its own page token: a page starts after it, whether or not it still exists, so
    /// volumes that come and go between pages disturb nothing (LV-16, LV-17). All or an error
    /// (LV-02): what is missing from a list is taken for gone.
    pub fn list_volumes(
        &self,
        after: Option<&VolumeId>,
        max: usize,
    ) -> Result<Page<VolumeStatus, VolumeId>> {
        self.check_none_absent(|_| true)?;
        let mut entries = Vec::new();
        for pool in self.pools().values() {
            if after.is_some_and(|after| after.pool() > pool.id()) {
                continue;
            }
            let wanted = one_more_than(max, entries.len());
            let (ids, records): (Vec<_>, Vec<_>) =
                pool.catalogue().volumes(after, wanted)?.into_iter().unzip();
            let conditions = self.conditions_of(pool, &ids);
            for ((id, record), condition) in ids.into_iter().zip(records).zip(conditions) {
                let condition = condition.unwrap_or_else(|error| Condition::of_error(&error));
                entries.push(self.status_of(pool, id, record, condition));
            }
            if is_more_than(max, entries.len()) {
                break;
            }
        }
        Ok(page(entries, max, |entry| entry.id.clone()))
    }

    /// The records of a pool that does not answer are in memory, but nothing can be said of its data.
    pub(crate) fn conditions_of(&self, pool: &PoolRef, ids: &[VolumeId]) -> Vec<Result<Condition>> {
        self.try_conditions_of(pool, ids)
            .unwrap_or_else(|error| ids.iter().map(|_| Ok(Condition::of_error(&error))).collect())
    }

    pub(crate) fn try_conditions_of(
        &self,
        pool: &PoolRef,
        ids: &[VolumeId],
    ) -> Result<Vec<Result<Condition>>> {
        let asked = ids.to_vec();
        self.query(pool, move |pool| pool.health().conditions(&asked))
    }

    pub fn volume_status(&self, id: &VolumeId) -> Result<VolumeStatus> {
        let pool = self.require_pool_of(id)?;
        let record = match pool.catalogue().volume(id) {
            Ok(None) => return Err(Error::NoSuchVolume(id.to_string())),
            Ok(Some(record)) => Ok(record),
            Err(away @ Error::Unreachable { .. }) => return Err(away),
            Err(error) => Err(error),
        };
        let condition = pool.health().condition(id);
        let condition = condition.unwrap_or_else(|error| Condition::of_error(&error));
        Ok(self.status_of(pool, id.clone(), record, condition))
    }

    fn status_of(
        &self,
        pool: &PoolRef,
        id: VolumeId,
        record: Result<VolumeRecord>,
        condition: Condition,
    ) -> VolumeStatus {
        match record {
            Ok(record) => {
                let condition = self.with_lost_writes(&id, condition);
                VolumeStatus { id, volume: Some(Volume::of(pool, record)), condition }
            }
            Err(error) => VolumeStatus { id, volume: None, condition: Condition::of_error(&error) },
        }
    }

    pub fn list_snapshots(
        &self,
        filter: &SnapshotFilter,
        after: Option<&SnapshotId>,
        max: usize,
    ) -> Result<Page<SnapshotRecord, SnapshotId>> {
        let fits = |record: &SnapshotRecord| {
            filter.source.as_ref().is_none_or(|source| record.source == *source)
        };
        if let Some(id) = &filter.snapshot {
            let after_it = after.is_some_and(|after| after >= id);
            let found =
                self.pool(id.pool())?.map(|pool| pool.catalogue().snapshot(id)).transpose()?;
            let found = found.flatten().filter(|record| !after_it && fits(record));
            let entries = match (found, self.pools().get(id.pool())) {
                (Some(record), Some(pool)) => vec![in_whole_group(pool, record)?],
                (_, _) => Vec::new(),
            };
            return Ok(Page { entries, next: None });
        }
        let of_one = filter.source.as_ref().map(VolumeId::pool);
        match of_one {
            Some(id) => self.pool(id).map(drop)?,
            None => self.check_none_absent(|_| true)?,
        }
        let mut entries = Vec::new();
        // A snapshot is on the pool of its source.
        for pool in self.pools().values().filter(|pool| of_one.is_none_or(|id| id == pool.id())) {
            if after.is_some_and(|after| after.pool() > pool.id()) {
                continue;
            }
            // With a filter, how many to read is not known beforehand.
            let wanted =
                if filter.source.is_some() { 0 } else { one_more_than(max, entries.len()) };
            for record in pool.catalogue().snapshots(after, wanted)?.into_iter().filter(fits) {
                entries.push(in_whole_group(pool, record)?);
            }
            if is_more_than(max, entries.len()) {
                break;
            }
        }
        Ok(page(entries, max, |entry| entry.id.clone()))
    }
}

/// One entry more than the page holds tells whether there is a next page. 0 asks for all.
pub(crate) fn one_more_than(max: usize, have: usize) -> usize {
    if max == 0 { 0 } else { max.saturating_add(1).saturating_sub(have) }
}

pub(crate) fn is_more_than(max: usize, have: usize) -> bool {
    max != 0 && have > max
}

pub(crate) fn page<Entry, Id>(
    mut entries: Vec<Entry>,
    max: usize,
    id: impl Fn(&Entry) -> Id,
) -> Page<Entry, Id> {
    let more = is_more_than(max, entries.len());
    if more {
        entries.truncate(max);
    }
    let next = if more { entries.last().map(id) } else { None };
    Page { entries, next }
}
