//! CreateSnapshot, DeleteSnapshot and reading snapshots back.

use orlop_model::{
    Error, NameDigest, NewSnapshot, PoolId, Result, SnapshotId, SnapshotRecord, Topology,
    TopologyRequirement, VolumeId,
};

use crate::create::copied_format;
use crate::difference::differs;
use crate::engine::{Engine, PoolRef, note_snapshot_name};
use crate::group_snapshot::in_whole_group;
use crate::locks::Key;
use crate::request::CreateSnapshot;

impl Engine {
    pub fn create_snapshot(&self, request: &CreateSnapshot) -> Result<SnapshotRecord> {
        let digest = NameDigest::of(&request.name);
        // A snapshot that exists already does not need its source, which may be busy or gone.
        let lock = self.locks().snapshot(&digest)?;
        if let Some(existing) = self.find_snapshot(&digest, &request.source)? {
            return self.as_requested(existing, request);
        }
        // Volumes come before snapshots, so the lock is taken again.
        drop(lock);
        let _source_lock = self.locks().source_volume(request.source.digest())?;
        let _lock = self.locks().snapshot(&digest)?;
        if let Some(existing) = self.find_snapshot(&digest, &request.source)? {
            return self.as_requested(existing, request);
        }
        let _capture_lock =
            self.locks().exclusive(Key::Capture(request.source.digest().clone()))?;
        let (pool, source) = self.require_subject(&request.source)?;
        check_usable_from(pool, request.topology.as_ref())?;
        let new = NewSnapshot {
            id: SnapshotId::new(pool.id().clone(), digest),
            name: request.name.clone(),
            format: copied_format(&source)?,
            consistency: self.consistency_of(pool, &source)?,
            source: source.clone(),
        };
        let mut draft = pool.provisioner().begin_snapshot(&new)?;
        self.capture_quiesced(pool, &[&source], || draft.capture())?;
        // On a shared pool another controller may have been faster.
        of_source(draft.commit()?, &request.source)
    }

    fn as_requested(
        &self,
        existing: SnapshotRecord,
        request: &CreateSnapshot,
    ) -> Result<SnapshotRecord> {
        let existing = of_source(existing, &request.source)?;
        if let Some(pool) = self.pools().get(existing.id.pool()) {
            check_usable_from(pool, request.topology.as_ref())?;
            check_of_this_volume(pool, &existing)?;
        }
        Ok(existing)
    }

    /// Where what is on the pool can be used; empty means everywhere.
    pub fn topology_of(&self, pool: &PoolId) -> Topology {
        self.pools().get(pool).map(|pool| pool.topology().clone()).unwrap_or_default()
    }

    /// A member of a group snapshot is deleted with its group.
    ///
    /// Snapshots are whole copies in their own right: nothing that was made from one needs it.
    pub fn delete_snapshot(&self, id: &SnapshotId) -> Result<()> {
        let _lock = self.locks().snapshot(id.digest())?;
        let pool = self.pool(id.pool())?.ok_or_else(|| Self::not_served_snapshot(id))?;
        let record = pool.catalogue().snapshot(id)?;
        record.iter().for_each(note_snapshot_name);
        if let Some(group) = record.and_then(|record| record.group) {
            // DS-04 to DS-06
            return Err(Error::invalid(
                "snapshot_id",
                format!("is a member of group snapshot {group} and is deleted with it"),
            ));
        }
        pool.provisioner().ensure_no_snapshot(id)
    }

    pub fn snapshot(&self, id: &SnapshotId) -> Result<SnapshotRecord> {
        let (pool, record) = self.require_snapshot(id)?;
        in_whole_group(pool, record)
    }

    pub(crate) fn require_snapshot(&self, id: &SnapshotId) -> Result<(&PoolRef, SnapshotRecord)> {
        let not_served = || Error::not_served(format!("snapshot {id}"), id.pool());
        let pool = self.pool(id.pool())?.ok_or_else(not_served)?;
        let record =
            pool.catalogue().snapshot(id)?.ok_or_else(|| Error::NoSuchSnapshot(id.to_string()))?;
        Ok((pool, record))
    }

    fn find_snapshot(
        &self,
        digest: &NameDigest,
        source: &VolumeId,
    ) -> Result<Option<SnapshotRecord>> {
        for pool in self.homes(|pool| pool.id() == source.pool()) {
            let id = SnapshotId::new(pool.id().clone(), digest.clone());
            if let Some(record) = pool.catalogue().snapshot(&id)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

/// A snapshot is where its source is, as it shares extents with it.
fn check_usable_from(pool: &PoolRef, wanted: Option<&TopologyRequirement>) -> Result<()> {
    let place = pool.topology();
    let Some(wanted) = wanted.filter(|_| !place.is_empty()) else { return Ok(()) };
    match wanted.rank(place) {
        Some(_) => Ok(()),
        None => Err(Error::exhausted(format!(
            "cannot make the snapshot usable from the topology that is asked for: it would be on pool {}, \
             as its source is; ask for a topology of that volume, or for none",
            pool.name()
        ))),
    }
}

/// Ids come from names, so a volume that is deleted and created again has the id of the first, and the snapshot
/// may be of that. A source that cannot be read, or is gone, is not needed.
pub(crate) fn check_of_this_volume(pool: &PoolRef, existing: &SnapshotRecord) -> Result<()> {
    let Ok(Some(source)) = pool.catalogue().volume(&existing.source) else { return Ok(()) };
    if existing.created >= source.created {
        return Ok(());
    }
    Err(Error::conflict(
        existing.label(),
        format!(
            "it is of a former {}, which was deleted and created again since; give the new snapshot another \
             name",
            source.label()
        ),
    ))
}

/// CS-14
fn of_source(existing: SnapshotRecord, source: &VolumeId) -> Result<SnapshotRecord> {
    if existing.source == *source {
        return Ok(existing);
    }
    Err(Error::conflict(
        format!("snapshot {}", existing.name),
        differs("its source", format!("volume {}", existing.source), format!("volume {source}")),
    ))
}
