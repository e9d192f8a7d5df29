//! The records of the pool, in memory and on disk.
//!
//! What has data is in an [`ObjectIndex`], and leaves it through `capacity.rs`, which keeps the
//! books; what is a record alone is in a [`RecordIndex`]. Whether data is as its record says is checked
//! here too.

pub(super) mod object_index;
pub(super) mod record_index;
mod record_state;

use std::fmt;
use std::sync::Arc;

use orlop_model::{
    Catalogue, Error, GroupSnapshotId, GroupSnapshotRecord, Reason, Result, SnapshotId,
    SnapshotRecord, VolumeGroupId, VolumeGroupRecord, VolumeId, VolumeRecord,
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
        // A damaged group keeps its name until an operator has inspected it.
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

/// Is the data there, and as long as the record says? The error tells what is wrong with it.
pub(super) fn check_data<R: StoredRecord>(index: &ObjectIndex<R>, record: &R) -> Result<()> {
    check_length(index, record.id(), record.length())
}

pub(super) fn check_length<R: StoredRecord>(
    index: &ObjectIndex<R>,
    id: &R::Id,
    length: u64,
) -> Result<()> {
    let home = index.directory_of(id);
    let damaged = |reason: &str| Err(index.damaged(id, reason));
    match std::fs::symlink_metadata(home.data()) {
        Ok(data) if !data.is_file() => damaged("its data is not a file"),
        Ok(data) if data.len() < length => {
            damaged(&format!("its data has {} bytes, its record says {length}", data.len()))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if home.directory().exists() {
                damaged("its data is missing")
            } else {
                damaged("its directory is missing")
            }
        }
        Err(error) => {
            Err(Error::failed(format!("inspect the data of {} {id}", R::KIND), Reason::of(error)))
        }
    }
}

/// What the data takes of the pool now.
pub(super) fn used_bytes<R: StoredRecord>(index: &ObjectIndex<R>, id: &R::Id) -> Result<u64> {
    check_data(index, &index.require(id)?)?;
    file::allocated_bytes(&index.directory_of(id).data())
        .map_err(cannot(|| format!("inspect {} {id}", R::KIND)))
}

#[cfg(test)]
mod tests;
