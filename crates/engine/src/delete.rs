//! DeleteVolume.

use orlop_model::{DeviceAccess, Error, NodeRecord, Result, VolumeId, VolumeRecord};

use crate::engine::{Engine, PoolRef, note_volume_name};

impl Engine {
    /// Snapshots of the volume stay (DV-05, DV-06).
    pub fn delete_volume(&self, id: &VolumeId) -> Result<()> {
        let _lock = self.locks().volume(id.digest())?;
        let pool = self.pool_of(id)?.ok_or_else(|| Self::not_served(id))?;
        let Some(record) = pool.catalogue().volume(id)? else {
            return pool.provisioner().ensure_no_volume(id);
        };
        note_volume_name(&record);
        if let Some(node) = record.published.keys().next() {
            return Err(Error::precondition(format!(
                "cannot delete {}: it is published to node {node}; unpublish it first",
                record.label()
            )));
        }
        if let Some(group) = self.group_of(id)? {
            // VG-19
            return Err(Error::precondition(format!(
                "cannot delete {}: it is a member of volume group {group}; take it out of the \
                 group first",
                record.label()
            )));
        }
        self.check_unused_here(pool, &record)?;
        self.remove_volume(pool, id)
    }

    /// The caller holds the lock and knows of nothing that uses the volume. A device that is left
    /// all the same has no record, and may be in use.
    pub(crate) fn remove_volume(&self, pool: &PoolRef, id: &VolumeId) -> Result<()> {
        self.try_detach_unused(pool, id, DeviceAccess::ReadOnly)?;
        self.try_detach_unused(pool, id, DeviceAccess::ReadWrite)?;
        self.host().save_node_record(id, &NodeRecord::default())?;
        self.stage_failures().clear(id);
        pool.provisioner().ensure_no_volume(id)
    }

    /// DV-08. Records that the kernel no longer agrees with do not count.
    fn check_unused_here(&self, pool: &PoolRef, record: &VolumeRecord) -> Result<()> {
        let id = &record.id;
        let publications = self.present_publications(pool, id)?;
        if let Some(publication) = publications.first() {
            return Err(Error::precondition(format!(
                "cannot delete {}: it is published at {}; unpublish it first",
                record.label(),
                publication.target
            )));
        }
        if let Some(stage) = self.live_stage(pool, id)? {
            return Err(Error::precondition(format!(
                "cannot delete {}: it is staged at {}; unstage it first",
                record.label(),
                stage.path
            )));
        }
        // Records can be lost while the volume is in use.
        if let Some(path) = self.mounted_at(pool, id)?.first() {
            return Err(Error::precondition(format!(
                "cannot delete {}: it is in use at {path}; unpublish or unstage it there first",
                record.label()
            )));
        }
        Ok(())
    }
}
