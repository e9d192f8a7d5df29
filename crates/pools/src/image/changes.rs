//! Which parts of a snapshot hold data, and which differ from an earlier one.
//!
//! Found by comparing disk addresses, not data: two snapshots that map a range to the same address
//! share it, so its contents are equal. The earlier snapshot still holds the extent, so its address
//! cannot have been freed and used again. What reads as zeroes (a hole, reserved space) counts as a hole.
//! Data is read and compared only where an address proves nothing: on filesystems other than XFS and
//! btrfs, on those that do not share extents, and where btrfs has compressed it.

mod compare;
mod exclusive;
mod map;
mod overlay;

use std::fs::File;
use std::sync::Arc;

use orlop_model::{
    ChangedBlocks, ContentSource, Error, Footprint, Ranges, Result, SnapshotId, VolumeId,
};
use orlop_sys::file::{self, BackingKind, FileAccess};

use super::PoolDirectory;
use super::catalogue::{ImageCatalogue, ObjectIndex, StoredRecord, check_data, used_bytes};
use super::failure::cannot;
use crate::merged_ranges::Merged;
use compare::Changes;
use map::DataMap;
use overlay::Overlay;

/// The data of a snapshot, which stays readable to its end even if the snapshot is deleted: a file that
/// is open is not cut short.
#[derive(Debug)]
struct Reading {
    data: File,
    size: u64,
}

#[derive(Debug)]
pub(super) struct ExtentMaps {
    directory: Arc<PoolDirectory>,
    catalogue: Arc<ImageCatalogue>,
}

impl ChangedBlocks for ExtentMaps {
    fn allocated_ranges(&self, id: &SnapshotId, start: u64) -> Result<Ranges> {
        let snapshot = self.open_to_read(id)?;
        let pieces = self.map_of(&snapshot, start, snapshot.size)?;
        Ok(Box::new(Merged::new(pieces.map(|piece| piece.map(|piece| Some(piece.range))))))
    }

    /// Where the base has ended it counts as a hole: what is data in the target differs, and what
    /// is none was never written.
    fn changed_ranges(&self, base: &SnapshotId, target: &SnapshotId, start: u64) -> Result<Ranges> {
        let (base, target) = (self.open_to_read(base)?, self.open_to_read(target)?);
        let overlay = Overlay::new(
            self.map_of(&base, start, base.size.min(target.size))?,
            self.map_of(&target, start, target.size)?,
        );
        Ok(Box::new(Merged::new(Changes::new(overlay, base, target))))
    }

    /// Found from the filesystem's extent map of the file, not by reading it. A filesystem without such a
    /// map reports everything as data, so its answer is ignored.
    fn holds_data(&self, id: &VolumeId) -> Result<bool> {
        let looking = || format!("read the data of volume {id}");
        let volumes = self.catalogue.volume_index();
        if matches!(self.directory.backing(), BackingKind::Other) || used_bytes(volumes, id)? == 0 {
            return Ok(false);
        }
        let data = volumes.directory_of(id).data();
        let data = file::open_regular(&data, FileAccess::Read).map_err(cannot(looking))?;
        file::has_data(&data).map_err(cannot(looking))
    }

    fn footprint(&self, of: &ContentSource) -> Result<Option<Footprint>> {
        let (taken, data) = match of {
            ContentSource::Snapshot(id) => self.to_measure(self.catalogue.snapshot_index(), id)?,
            ContentSource::Volume(id) => self.to_measure(self.catalogue.volume_index(), id)?,
        };
        if !self.directory.shares_extents() {
            return Ok(Some(Footprint { taken, exclusive: taken }));
        }
        if !self.compares_addresses() {
            return Ok(None);
        }
        // A workload may write between the two measurements.
        let exclusive = exclusive::exclusive_bytes(data)?;
        Ok(exclusive.map(|bytes| Footprint { taken, exclusive: bytes.min(taken) }))
    }
}

impl ExtentMaps {
    pub(super) fn new(directory: Arc<PoolDirectory>, catalogue: Arc<ImageCatalogue>) -> Self {
        Self { directory, catalogue }
    }

    fn to_measure<R: StoredRecord>(
        &self,
        index: &ObjectIndex<R>,
        id: &R::Id,
    ) -> Result<(u64, File)> {
        let measuring = || format!("measure {} {id}", R::KIND);
        let taken = used_bytes(index, id)?;
        let data = index.directory_of(id).data();
        Ok((taken, file::open_regular(&data, FileAccess::Read).map_err(cannot(measuring))?))
    }

    fn open_to_read(&self, id: &SnapshotId) -> Result<Reading> {
        let record = self.catalogue.snapshot_index().require(id)?;
        check_data(self.catalogue.snapshot_index(), &record)?;
        let reading = || format!("read snapshot {id}");
        let data = self.catalogue.snapshot_index().directory_of(id).data();
        let data = file::open_regular(&data, FileAccess::Read).map_err(cannot(reading))?;
        // It may have been deleted after its record was read.
        if data.metadata().map_err(cannot(reading))?.len() < record.size_bytes {
            return Err(Error::failed(reading(), "it is being deleted"));
        }
        Ok(Reading { data, size: record.size_bytes })
    }

    /// Do equal physical addresses mean shared data? Only XFS and btrfs are known to report them. Others that share
    /// extents may report anything: the kernel's SMB client reports the offset in the file, so that every change would
    /// be missed.
    fn compares_addresses(&self) -> bool {
        self.directory.shares_extents()
            && match self.directory.backing() {
                BackingKind::Xfs | BackingKind::Btrfs => true,
                BackingKind::Ext4
                | BackingKind::Tmpfs
                | BackingKind::Overlay
                | BackingKind::Other => false,
            }
    }

    fn map_of(&self, snapshot: &Reading, start: u64, end: u64) -> Result<DataMap> {
        let data = snapshot
            .data
            .try_clone()
            .map_err(cannot(|| "open a snapshot's data again".to_owned()))?;
        Ok(if self.compares_addresses() {
            DataMap::of_extents(data, start, end)
        } else {
            DataMap::of_runs(data, start, end)
        })
    }
}

#[cfg(test)]
mod tests;
