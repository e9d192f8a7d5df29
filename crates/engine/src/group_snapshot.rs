//! Group snapshots: several volumes, one instant, all or nothing.

use std::collections::BTreeSet;

use orlop_model::{
    Consistency, Error, GroupSnapshotId, GroupSnapshotRecord, NameDigest, NewGroupSnapshot,
    NewSnapshot, PoolId, Result, SnapshotId, SnapshotRecord, VolumeId, VolumeRecord,
};

use crate::create::copied_format;
use crate::difference::differs;
use crate::engine::{Engine, PoolRef};
use crate::locks::{Key, LockGuard, Locks};
use crate::request::{CreateGroupSnapshot, GroupSnapshot, GroupStage};
use crate::snapshot::check_of_this_volume;

impl Engine {
    pub fn create_group_snapshot(&self, request: &CreateGroupSnapshot) -> Result<GroupSnapshot> {
        let alone = BTreeSet::new();
        self.create_group_part(request, &alone, |_| Ok(())).map(|(group, _)| group)
    }

    /// The part of a group that is on this daemon, if the group is on several pools. `reached` is called at
    /// each stage, and returns when all parts have reached it. Also returns whether the part was there.
    pub fn create_group_part(
        &self,
        request: &CreateGroupSnapshot,
        pools: &BTreeSet<PoolId>,
        mut reached: impl FnMut(GroupStage) -> Result<()>,
    ) -> Result<(GroupSnapshot, bool)> {
        let digest = NameDigest::of(&request.name);
        let locks = self.locks().with_one_deadline();
        let _lock = locks.exclusive(Key::GroupSnapshot(digest.clone()))?;
        if let Some(existing) = self.find_group_snapshot(&digest, &request.sources)? {
            check_pools(&existing.record, pools)?;
            let existing = same_sources(existing, request)?;
            for member in &existing.members {
                let pool = self.pools().get(member.id.pool());
                pool.map_or(Ok(()), |pool| check_of_this_volume(pool, member))?;
            }
            return Ok((existing, true));
        }
        let digests = || request.sources.iter().map(VolumeId::digest).cloned();
        let _source_locks = locks.all(digests().map(Key::Volume).collect(), Locks::shared)?;
        let (pool, sources) = self.require_together(&request.sources)?;
        let mut members = Vec::new();
        for source in &sources {
            members.push(self.new_member(pool, request, source, pools.len())?);
        }
        // A member is on the pool before its group is: until then it must not be taken for an orphan.
        let _member_locks = lock_snapshots(&locks, members.iter().map(|member| &member.id))?;
        let _capture_locks = locks.all(digests().map(Key::Capture).collect(), Locks::exclusive)?;
        let id = GroupSnapshotId::new(pool.id().clone(), digest);
        let new =
            NewGroupSnapshot { id, name: request.name.clone(), members, pools: pools.clone() };
        let mut draft = pool.provisioner().begin_group_snapshot(&new)?;
        reached(GroupStage::Begun)?;
        self.capture_quiesced(pool, &sources.iter().collect::<Vec<_>>(), || {
            reached(GroupStage::Quiesced)?;
            draft.capture()?;
            reached(GroupStage::Captured)
        })?;
        reached(GroupStage::Thawed)?;
        let record = draft.commit()?;
        // What was committed may be what an earlier attempt made and could not report.
        same_sources(with_members(pool, record)?, request).map(|group| (group, false))
    }

    /// GG-35, GG-36: the ids that the caller knows have to be those of the group.
    pub fn delete_group_snapshot(
        &self,
        id: &GroupSnapshotId,
        members: &BTreeSet<String>,
    ) -> Result<()> {
        self.delete_group_part(id, members, &BTreeSet::new())
    }

    /// `members` are those of this part, and `pools` those of all parts.
    pub fn delete_group_part(
        &self,
        id: &GroupSnapshotId,
        members: &BTreeSet<String>,
        pools: &BTreeSet<PoolId>,
    ) -> Result<()> {
        let locks = self.locks().with_one_deadline();
        let _lock = locks.exclusive(Key::GroupSnapshot(id.digest().clone()))?;
        let pool = self.pool(id.pool())?.ok_or_else(|| {
            Error::precondition(format!(
                "cannot delete group snapshot {id}: it is on pool {}, which this daemon does not \
                 serve; configure that pool, or send the call to the daemon that serves it",
                id.pool()
            ))
        })?;
        let Some(record) = pool.catalogue().group_snapshot(id)? else { return Ok(()) };
        check_members(&record, members, pools)?;
        let _member_locks = lock_snapshots(&locks, &record.members)?;
        pool.provisioner().ensure_no_group_snapshot(id)
    }

    pub fn group_snapshot(
        &self,
        id: &GroupSnapshotId,
        members: &BTreeSet<String>,
    ) -> Result<GroupSnapshot> {
        self.group_part(id, members, &BTreeSet::new())
    }

    /// As [`Self::delete_group_part`].
    pub fn group_part(
        &self,
        id: &GroupSnapshotId,
        members: &BTreeSet<String>,
        pools: &BTreeSet<PoolId>,
    ) -> Result<GroupSnapshot> {
        // A group that is being deleted has lost some of its members already.
        let _lock = self.locks().shared(Key::GroupSnapshot(id.digest().clone()))?;
        let missing = || Error::NoSuchGroupSnapshot(id.to_string());
        let not_served = || Error::not_served(format!("group snapshot {id}"), id.pool());
        let pool = self.pool(id.pool())?.ok_or_else(not_served)?;
        let record = pool.catalogue().group_snapshot(id)?.ok_or_else(missing)?;
        check_members(&record, members, pools)?;
        with_members(pool, record)
    }

    fn find_group_snapshot(
        &self,
        digest: &NameDigest,
        sources: &BTreeSet<VolumeId>,
    ) -> Result<Option<GroupSnapshot>> {
        let belongs = |pool: &PoolRef| sources.iter().any(|source| source.pool() == pool.id());
        for pool in self.homes(belongs) {
            let id = GroupSnapshotId::new(pool.id().clone(), digest.clone());
            if let Some(record) = pool.catalogue().group_snapshot(&id)? {
                return with_members(pool, record).map(Some);
            }
        }
        Ok(None)
    }

    /// GG-27: only volumes of one pool can be in one group snapshot.
    fn require_together(
        &self,
        volumes: &BTreeSet<VolumeId>,
    ) -> Result<(&PoolRef, Vec<VolumeRecord>)> {
        let mut records = Vec::new();
        let mut home: Option<&PoolRef> = None;
        for id in volumes {
            let (pool, record) = self.require_volume(id)?;
            if home.is_some_and(|home| home.id() != pool.id()) {
                return Err(Error::precondition(format!(
                    "cannot take a group snapshot: {} is on another pool than the other volumes; \
                     a group snapshot holds volumes of one pool",
                    record.label()
                )));
            }
            home = Some(pool);
            records.push(record);
        }
        let pool = home.ok_or_else(|| Error::invalid("source_volume_ids", "is empty"))?;
        Ok((pool, records))
    }

    fn new_member(
        &self,
        pool: &PoolRef,
        request: &CreateGroupSnapshot,
        source: &VolumeRecord,
        parts: usize,
    ) -> Result<NewSnapshot> {
        let digest = NameDigest::of_member(&request.name, &source.id);
        Ok(NewSnapshot {
            id: SnapshotId::new(pool.id().clone(), digest),
            name: request.name.clone(),
            format: copied_format(source)?,
            consistency: self.consistency_in_group(pool, request, source, parts)?,
            source: source.clone(),
        })
    }

    fn consistency_in_group(
        &self,
        pool: &PoolRef,
        request: &CreateGroupSnapshot,
        source: &VolumeRecord,
        parts: usize,
    ) -> Result<Consistency> {
        let alone = request.sources.len() == 1;
        let together = parts <= 1 && (pool.provisioner().has_atomic_groups() || alone);
        let consistency = self.consistency_of(pool, source)?;
        if consistency == Consistency::Crash && !together {
            return Ok(Consistency::Alone);
        }
        Ok(consistency)
    }
}

fn lock_snapshots<'a>(
    locks: &Locks,
    snapshots: impl IntoIterator<Item = &'a SnapshotId>,
) -> Result<Vec<LockGuard>> {
    let keys = snapshots.into_iter().map(|id| Key::Snapshot(id.digest().clone())).collect();
    locks.all(keys, Locks::exclusive)
}

fn with_members(pool: &PoolRef, record: GroupSnapshotRecord) -> Result<GroupSnapshot> {
    let mut members = Vec::new();
    let group = Some(record.whole());
    for id in &record.members {
        let missing = || {
            Error::damaged(format!("group snapshot {}", record.id), "a snapshot of it is missing")
        };
        let member = pool.catalogue().snapshot(id)?.ok_or_else(missing)?;
        members.push(SnapshotRecord { group: group.clone(), ..member });
    }
    Ok(GroupSnapshot { record, members })
}

/// GG-06, GG-26.
fn same_sources(existing: GroupSnapshot, request: &CreateGroupSnapshot) -> Result<GroupSnapshot> {
    let sources: BTreeSet<_> = existing.members.iter().map(|member| &member.source).collect();
    if sources == request.sources.iter().collect() {
        return Ok(existing);
    }
    let listed = |ids: BTreeSet<&VolumeId>| {
        let ids: Vec<String> = ids.into_iter().map(ToString::to_string).collect();
        ids.join(", ")
    };
    let asked = listed(request.sources.iter().collect());
    Err(Error::conflict(
        format!("group snapshot {}", existing.record.name),
        differs("the list of its source volumes", listed(sources), asked),
    ))
}

/// A group of the same name that is on other pools is another one.
fn check_pools(existing: &GroupSnapshotRecord, pools: &BTreeSet<PoolId>) -> Result<()> {
    if existing.pools == *pools {
        return Ok(());
    }
    let listed = |pools: &BTreeSet<PoolId>| {
        pools.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    Err(Error::conflict(
        format!("group snapshot {}", existing.name),
        differs("the list of its pools", listed(&existing.pools), listed(pools)),
    ))
}

/// With the id that callers know for its group: that of the whole group, which may be on several pools.
pub(crate) fn in_whole_group(pool: &PoolRef, record: SnapshotRecord) -> Result<SnapshotRecord> {
    let Some(id) = &record.group else { return Ok(record) };
    let group = match pool.catalogue().group_snapshot(id)? {
        Some(group) => Some(group.whole()),
        None => record.group.clone(),
    };
    Ok(SnapshotRecord { group, ..record })
}

/// GG-46: the order means nothing.
fn check_members(
    record: &GroupSnapshotRecord,
    given: &BTreeSet<String>,
    pools: &BTreeSet<PoolId>,
) -> Result<()> {
    let own: BTreeSet<String> = record.members.iter().map(ToString::to_string).collect();
    if own == *given && record.pools == *pools {
        return Ok(());
    }
    Err(Error::invalid("snapshot_ids", "are not those of the group snapshot"))
}
