//! The data that a snapshot, a clone or a restored volume is a copy of.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use orlop_model::{DeviceAccess, Devices, Error, Result, VolumeId, VolumeRecord};
use orlop_sys::file::{self, BackingKind, CloneOutcome, FileAccess};

use super::attach::LoopDevices;
use super::catalogue::check_data;
use super::catalogue::object_index::{ObjectIndex, StoredRecord};
use super::failure::cannot;

/// Above this many extents, sharing them all at once holds the source's writers for longer than
/// 50 ms on XFS; shared beforehand in pieces, the rest takes a tenth of it. btrfs gains nothing.
const MANY_EXTENTS: u64 = 2000;

/// Opened once and kept open, so that a source that is deleted during the call can still be copied.
#[derive(Debug)]
pub(super) struct CopySource {
    data: File,
    allocated: u64,
    /// Of the record: data that a crash left longer belongs to nothing.
    length: u64,
    /// Nothing writes to it while it is copied, so that any way to copy it gives one instant.
    still: bool,
    unattached: Option<Unattached>,
}

/// A volume that had no device when its copy was begun, so that nothing is frozen while it is copied.
#[derive(Debug)]
struct Unattached {
    devices: Arc<LoopDevices>,
    id: VolumeId,
    before: FileState,
}

/// Changes with every write.
#[derive(Debug, PartialEq, Eq)]
struct FileState {
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    fn of(file: &File) -> Result<Self> {
        let there =
            file.metadata().map_err(cannot(|| "look at the data of the source".to_owned()))?;
        Ok(Self {
            length: there.len(),
            modified: (there.mtime(), there.mtime_nsec()),
            changed: (there.ctime(), there.ctime_nsec()),
        })
    }
}

impl Unattached {
    /// A copy that is not made at one instant takes a while, in which a device may be attached by hand.
    fn check(&self, data: &File) -> Result<()> {
        self.devices.check_still("copy", &self.id)?;
        if FileState::of(data)? == self.before {
            return Ok(());
        }
        Err(Error::precondition(format!(
            "cannot copy volume {}: its data was written to by something other than Orlop while it was \
             copied; end that and try again",
            self.id
        )))
    }
}

impl CopySource {
    pub(super) fn open<R: StoredRecord>(index: &ObjectIndex<R>, record: &R) -> Result<Self> {
        check_data(index, record)?;
        let source = Self::open_file(&index.directory_of(record.id()).data(), record.length())?;
        Ok(Self { still: R::IS_STILL, ..source })
    }

    /// A volume, unless it is written to by something that cannot be frozen.
    pub(super) fn of_volume(
        devices: &Arc<LoopDevices>,
        index: &ObjectIndex<VolumeRecord>,
        record: &VolumeRecord,
    ) -> Result<Self> {
        let source = Self::open(index, record)?;
        let before = FileState::of(&source.data)?;
        let is_attached = devices.attached(&record.id, DeviceAccess::ReadWrite)?.is_some();
        devices.check_still("copy", &record.id)?;
        let unattached = (!is_attached).then(|| Unattached {
            devices: Arc::clone(devices),
            id: record.id.clone(),
            before,
        });
        Ok(Self { unattached, ..source })
    }

    /// A file that nothing writes to.
    pub(super) fn open_file(path: &Path, length: u64) -> Result<Self> {
        let reading = || format!("read {}", path.display());
        Ok(Self {
            data: file::open_regular(path, FileAccess::Read).map_err(cannot(reading))?,
            allocated: file::allocated_bytes(path).map_err(cannot(reading))?,
            length,
            still: true,
            unattached: None,
        })
    }

    pub(super) fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Does beforehand what shortens [`CopySource::capture_into`]. Nothing depends on it.
    pub(super) fn prepare(&self, target: &File, backing: BackingKind) {
        if backing != BackingKind::Xfs {
            return;
        }
        let shared = file::extent_count(&self.data).and_then(|extents| {
            if extents > MANY_EXTENTS {
                file::preclone_chunks(&self.data, target)?;
            }
            Ok(())
        });
        if let Err(error) = shared {
            tracing::debug!(%error, "cannot share the source's extents before writers are frozen");
        }
    }

    /// Copies the data as it is now. `at_once`: the pool has promised that this takes one instant,
    /// so the caller may leave writers running.
    pub(super) fn capture_into(&self, target: &File, at_once: bool) -> Result<CloneOutcome> {
        let outcome = file::try_clone_file(&self.data, target)
            .map_err(cannot(|| "share the extents of the copy source".to_owned()))?;
        match outcome {
            CloneOutcome::Shared => {}
            CloneOutcome::Unsupported if at_once && !self.still => return Err(refused()),
            CloneOutcome::Unsupported => {
                if at_once {
                    tracing::warn!("the source's extents cannot be shared; its data is copied");
                }
                file::copy_sparse(&self.data, target)
                    .map_err(cannot(|| "copy the data of the copy source".to_owned()))?;
                if let Some(unattached) = &self.unattached {
                    unattached.check(&self.data)?;
                }
            }
        }
        file::set_length(target, self.length)
            .map_err(cannot(|| "set the copy to the size of its source".to_owned()))?;
        Ok(outcome)
    }
}

/// Piece by piece, the copy would be of a state that never was.
fn refused() -> Error {
    Error::failed(
        "take a point-in-time copy of the source",
        "the pool's filesystem shares extents, but refuses to share those of this volume; check \
         whether its data is on another filesystem or in use as swap space",
    )
}

#[cfg(test)]
mod tests;
