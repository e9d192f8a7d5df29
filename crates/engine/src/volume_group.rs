//! Volume groups: volumes that are handled together.
//!
//! A volume is in one group at most, cannot be deleted while it is in one, and a group with
//! volumes in it cannot be deleted: nothing here ever deletes a volume (point 10 of docs/specification.md).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use orlop_model::record::RECORD_VERSION;
use orlop_model::{Error, NameDigest, Result, VolumeGroupId, VolumeGroupRecord, VolumeId};

use crate::difference::differs;
use crate::engine::{Engine, PoolRef};
use crate::list::{is_more_than, one_more_than, page};
use crate::locks::{Key, LockGuard, Locks};
use crate::request::{CreateVolumeGroup, Page, Volume, VolumeGroup};
use crate::sharing::sharing;

/// Which group each volume is in. Rebuilt from the pools at start. Shared pools are asked instead.
#[derive(Debug, Default)]
pub(crate) struct Membership(Mutex<HashMap<VolumeId, VolumeGroupId>>);

impl Membership {
    pub(crate) fn add_all_of(&self, pool: &PoolRef) -> Result<()> {
        for group in pool.catalogue().volume_groups(None, 0)? {
            self.set(&group.id, &BTreeSet::new(), &group.members);
        }
        Ok(())
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<VolumeId, VolumeGroupId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn group_of(&self, volume: &VolumeId) -> Option<VolumeGroupId> {
        self.entries().get(volume).cloned()
    }

    fn set(&self, group: &VolumeGroupId, before: &BTreeSet<VolumeId>, now: &BTreeSet<VolumeId>) {
        let mut entries = self.entries();
        for volume in before {
            entries.remove(volume);
        }
        for volume in now {
            entries.insert(volume.clone(), group.clone());
        }
    }
}

impl Engine {
    pub fn create_volume_group(&self, request: &CreateVolumeGroup) -> Result<VolumeGroup> {
        let digest = NameDigest::of(&request.name);
        let locks = self.locks().with_one_deadline();
        let _lock = locks.exclusive(Key::VolumeGroup(digest.clone()))?;
        if let Some(existing) = self.find_volume_group(&digest, request.members.first())? {
            check_same_group(&existing, request)?;
            return self.with_volumes(existing);
        }
        let _member_locks = lock_volumes(&locks, &request.members)?;
        self.check_can_join(&request.members, None)?;
        check_one_pool(&request.members).map_err(Error::precondition)?;
        check_room(&request.members, request.max_members)?;
        let pool = self.home_of(&request.members)?;
        let record = VolumeGroupRecord {
            version: RECORD_VERSION,
            id: VolumeGroupId::new(pool.id().clone(), digest),
            name: request.name.clone(),
            members: request.members.clone(),
            max_members: request.max_members,
            created: SystemTime::now().into(),
        };
        pool.catalogue().save_volume_group(&record, None)?;
        self.membership().set(&record.id, &BTreeSet::new(), &record.members);
        self.with_volumes(record)
    }

    /// Sets the members to exactly these (VG-24 to VG-26).
    pub fn modify_volume_group(
        &self,
        id: &VolumeGroupId,
        members: &BTreeSet<VolumeId>,
    ) -> Result<VolumeGroup> {
        let locks = self.locks().with_one_deadline();
        let _lock = locks.exclusive(Key::VolumeGroup(id.digest().clone()))?;
        let (pool, was) = self.require_volume_group(id)?;
        let changed = was.members.symmetric_difference(members).cloned().collect();
        let _member_locks = lock_volumes(&locks, &changed)?;
        self.check_can_join(members, Some(id))?;
        check_one_pool(members).map_err(|reason| Error::invalid("volume_ids", reason))?;
        check_room(members, was.max_members)?;
        let now = VolumeGroupRecord { members: members.clone(), ..was.clone() };
        if now != was {
            pool.catalogue().save_volume_group(&now, Some(&was))?;
            self.membership().set(id, &was.members, members);
        }
        self.with_volumes(now)
    }

    /// A group that still has volumes is refused, so deleting a group never deletes data.
    pub fn delete_volume_group(&self, id: &VolumeGroupId) -> Result<()> {
        let _lock = self.locks().exclusive(Key::VolumeGroup(id.digest().clone()))?;
        let Some(pool) = self.pool(id.pool())? else {
            return Err(Error::precondition(format!(
                "cannot delete volume group {id}: it is on pool {}, which this daemon does not \
                 serve; configure that pool, or send the call to the daemon that serves it",
                id.pool()
            )));
        };
        match pool.catalogue().volume_group(id)? {
            Some(record) if !record.members.is_empty() => Err(Error::precondition(format!(
                "cannot delete volume group {id}: it has {} volumes; take them out of the group \
                 first",
                record.members.len()
            ))),
            Some(_) | None => pool.catalogue().ensure_no_volume_group(id),
        }
    }

    pub fn volume_group(&self, id: &VolumeGroupId) -> Result<VolumeGroup> {
        let (_, record) = self.require_volume_group(id)?;
        self.with_volumes(record)
    }

    pub fn list_volume_groups(
        &self,
        after: Option<&VolumeGroupId>,
        max: usize,
    ) -> Result<Page<VolumeGroup, VolumeGroupId>> {
        self.check_none_absent(|_| true)?;
        let mut entries = Vec::new();
        for pool in self.pools().values() {
            if after.is_some_and(|after| after.pool() > pool.id()) {
                continue;
            }
            for record in
                pool.catalogue().volume_groups(after, one_more_than(max, entries.len()))?
            {
                entries.push(self.with_volumes(record)?);
            }
            if is_more_than(max, entries.len()) {
                break;
            }
        }
        Ok(page(entries, max, |group| group.record.id.clone()))
    }

    fn find_volume_group(
        &self,
        digest: &NameDigest,
        member: Option<&VolumeId>,
    ) -> Result<Option<VolumeGroupRecord>> {
        let belongs = |pool: &PoolRef| member.is_none_or(|member| member.pool() == pool.id());
        for pool in self.homes(belongs) {
            let id = VolumeGroupId::new(pool.id().clone(), digest.clone());
            if let Some(record) = pool.catalogue().volume_group(&id)? {
                return Ok(Some(record));
            }
        }
        // A member that is given tells its pool, which is looked for next.
        self.check_none_absent(|_| member.is_none()).map(|()| None)
    }

    fn require_volume_group(&self, id: &VolumeGroupId) -> Result<(&PoolRef, VolumeGroupRecord)> {
        let not_served = || Error::not_served(format!("volume group {id}"), id.pool());
        let pool = self.pool(id.pool())?.ok_or_else(not_served)?;
        let missing = || Error::NoSuchVolumeGroup(id.to_string());
        let record = pool.catalogue().volume_group(id)?.ok_or_else(missing)?;
        Ok((pool, record))
    }

    fn with_volumes(&self, record: VolumeGroupRecord) -> Result<VolumeGroup> {
        let mut volumes = Vec::new();
        for id in &record.members {
            match self.require_volume(id) {
                Ok((pool, volume)) => volumes.push(Volume::of(pool, volume)),
                // Left out, so that one bad volume does not hide the group it has to leave.
                Err(
                    error @ (Error::Damaged { .. }
                    | Error::NoSuchVolume(_)
                    | Error::NotServed { .. }),
                ) => {
                    tracing::warn!(
                        %error,
                        group = %record.id,
                        "cannot read a member of a volume group; it is missing from the answer"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(VolumeGroup { record, volumes })
    }

    /// Each exists and is in no other group (VG-29, VG-46).
    fn check_can_join(
        &self,
        members: &BTreeSet<VolumeId>,
        group: Option<&VolumeGroupId>,
    ) -> Result<()> {
        for id in members {
            self.require_volume(id)?;
            match self.group_of(id)? {
                Some(other) if Some(&other) != group => {
                    return Err(Error::precondition(format!(
                        "cannot add volume {id} to the group: it is in volume group {other} \
                         already; take it out of that group first"
                    )));
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    pub(crate) fn group_of(&self, volume: &VolumeId) -> Result<Option<VolumeGroupId>> {
        match self.pool_of(volume)? {
            Some(pool) => sharing(pool).group_of(self, volume),
            None => Ok(self.membership().group_of(volume)),
        }
    }

    /// The record of a group is kept with its first volume; an empty one anywhere.
    fn home_of(&self, members: &BTreeSet<VolumeId>) -> Result<&PoolRef> {
        let home = match members.first() {
            Some(volume) => self.pool_of(volume)?,
            None => self.pools().values().next(),
        };
        home.ok_or_else(|| {
            Error::precondition("cannot create the volume group: this daemon serves no pool")
        })
    }
}

fn lock_volumes(locks: &Locks, volumes: &BTreeSet<VolumeId>) -> Result<Vec<LockGuard>> {
    let keys = volumes.iter().map(|id| Key::Volume(id.digest().clone())).collect();
    locks.all(keys, Locks::exclusive)
}

/// VG-12 names parameters only: members may have come and gone since.
fn check_same_group(existing: &VolumeGroupRecord, request: &CreateVolumeGroup) -> Result<()> {
    let (there, asked) = (existing.max_members, request.max_members);
    if there == asked {
        return Ok(());
    }
    let what = format!("volume group {}", existing.name);
    Err(Error::conflict(what, differs("its maxVolumes", there, asked)))
}

/// Members of a group are snapshotted together, which one pool can do.
fn check_one_pool(members: &BTreeSet<VolumeId>) -> std::result::Result<(), String> {
    let pools: BTreeSet<_> = members.iter().map(VolumeId::pool).collect();
    if pools.len() <= 1 {
        return Ok(());
    }
    Err("the volumes are on several pools; a group keeps to one".to_owned())
}

/// VG-30
fn check_room(members: &BTreeSet<VolumeId>, max_volumes: u32) -> Result<()> {
    if u32::try_from(members.len()).is_ok_and(|count| count <= max_volumes) {
        return Ok(());
    }
    Err(Error::exhausted(format!(
        "cannot add the volumes to the group: it takes {max_volumes} volumes at most"
    )))
}
