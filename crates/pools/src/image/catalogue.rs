//! The records of the pool, in memory and on disk.
//!
//! What has data is in an [`ObjectIndex`], and leaves it through `capacity.rs`, which keeps the
//! books; what is a record alone is in a [`RecordIndex`].

pub(super) mod object_index;
pub(super) mod record_index;

use std::fmt;
use std::sync::Arc;

use orlop_model::{
    Catalogue, GroupSnapshotId, GroupSnapshotRecord, Result, SnapshotId, SnapshotRecord,
    VolumeGroupId, VolumeGroupRecord, VolumeId, VolumeRecord,
};
use orlop_sys::file;

use super::directory::PoolDirectory;
use super::emergency_reserve::EmergencyReserve;
use super::failure::cannot;
use super::layout::ObjectDir;
use crate::recorded::to_text;
use object_index::{ObjectIndex, StoredRecord};
use record_index::RecordIndex;

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
        // A damaged group keeps its name until someone has looked at it.
        let is_new = self.volume_groups.get(&record.id)?.is_none();
        match is_new {
            true => self.volume_groups.write_file(record)?,
            // Only an empty group can be deleted, so a full pool has to let one be emptied.
            false => {
                let text = to_text(record)?;
                self.reserve
                    .with_reserve(|| self.volume_groups.replace_file(&record.id, &text))
                    .map_err(cannot(|| format!("save the record of volume group {}", record.id)))?;
            }
        }
        self.volume_groups.put(record.clone());
        self.reserve.ensure();
        Ok(())
    }

    fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()> {
        self.directory.check_present()?;
        self.volume_groups.get(id)?;
        self.reserve
            .with_reserve(|| self.volume_groups.remove_file(id))
            .map_err(cannot(|| format!("delete volume group {id}")))?;
        self.volume_groups.take_out(id);
        self.reserve.ensure();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
