//! The data that a new object begins with: that of the volume or snapshot that it is a copy of, or an empty
//! filesystem, copied from a template.
//!
//! mkfs takes longer than all else in a volume's life together; to share the extents of what it
//! made before, for a volume of the same size, takes next to nothing. A template has no name, only
//! an open file. So it goes with the process, however that ends, and the next one makes its own,
//! perhaps with a newer mkfs.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orlop_model::{
    ContentSource, DeviceAccess, Devices, Error, FsType, NewFilesystem, NewVolume, Provisioning,
    Result, VolumeId, VolumeRecord,
};
use orlop_sys::file::{self, BackingKind, CloneOutcome, FileAccess};
use orlop_sys::filesystem::{self, FsKind};
use orlop_sys::rand::random_bytes;

use super::PoolDirectory;
use super::attach::LoopDevices;
use super::capacity::ImageCapacity;
use super::catalogue::{ImageCatalogue, ObjectIndex, StoredRecord, check_current, check_data};
use super::failure::cannot;
use super::layout::TEMPLATE;
use crate::poison::lock;

/// Sizes that are used again are few; each template takes up to some MiB of the pool.
const MAX_TEMPLATES: usize = 32;

/// mkfs takes up to 64 MiB while it works, for the log of XFS. Where there is less than this, room is
/// for volumes.
const MIN_FREE_BYTES: u64 = 256 << 20;

/// Each attempt may take as long as mkfs is given, and all who want the same shape wait for it.
const TEMPLATE_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Above this many extents, sharing them all at once holds the source's writers for longer than
/// 50 ms on XFS; shared beforehand in pieces, the rest takes a tenth of it. btrfs gains nothing.
const MANY_EXTENTS: u64 = 2000;

/// Opened once and kept open, so that a source that is deleted during the call can still be copied.
#[derive(Debug)]
pub(super) struct CopySource {
    data: File,
    allocated: u64,
    /// The length on record: data past it, which a crash may leave, is not part of the source.
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
            file.metadata().map_err(cannot(|| "inspect the data of the source".to_owned()))?;
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
    /// `None`: the volume is no copy.
    pub(super) fn of_new(
        catalogue: &ImageCatalogue,
        devices: &Arc<LoopDevices>,
        new: &NewVolume,
    ) -> Result<Option<Self>> {
        let (source, length) = match &new.source {
            None => return Ok(None),
            Some(ContentSource::Snapshot(id)) => {
                let record = catalogue.snapshot_index().require(id)?;
                let source = Self::open(catalogue.snapshot_index(), &record)?;
                devices.check_snapshot_still(id)?;
                (source, record.size_bytes)
            }
            Some(ContentSource::Volume(id)) => {
                let record = catalogue.volume_index().require(id)?;
                let source = Self::of_volume(devices, catalogue.volume_index(), &record)?;
                (source, record.capacity_bytes)
            }
        };
        if length > new.capacity_bytes {
            return Err(Error::OutOfRange(format!(
                "cannot copy the source: it has {length} bytes, which do not fit into {}; ask for \
                 at least as many",
                new.capacity_bytes
            )));
        }
        Ok(Some(source))
    }

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
        check_current(index, &record.id, record.capacity_bytes)?;
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    fs: FsType,
    bytes: u64,
}

/// The first call makes the template; other calls for the same shape wait for the mutex.
type Slot = Arc<Mutex<Template>>;

#[derive(Debug, Default)]
enum Template {
    #[default]
    NotMade,
    Made(Arc<CopySource>),
    Failed(Instant),
}

#[derive(Debug)]
pub(super) struct Templates {
    directory: Arc<PoolDirectory>,
    capacity: Arc<ImageCapacity>,
    recent: Recent,
}

/// The one used last in front.
#[derive(Debug, Default)]
struct Recent(Mutex<VecDeque<(Shape, Slot)>>);

impl Recent {
    fn slot(&self, shape: Shape) -> Slot {
        let mut recent = lock(&self.0);
        let known = recent.iter().position(|(known, _)| *known == shape);
        let entry = known.and_then(|index| recent.remove(index));
        let slot = entry.map(|(_, slot)| slot).unwrap_or_default();
        recent.push_front((shape, Arc::clone(&slot)));
        recent.truncate(MAX_TEMPLATES);
        slot
    }

    fn clear(&self) {
        lock(&self.0).clear();
    }
}

fn kind_of(fs: FsType) -> FsKind {
    match fs {
        FsType::Ext4 => FsKind::Ext4,
        FsType::Xfs => FsKind::Xfs,
        FsType::Btrfs => FsKind::Btrfs,
    }
}

/// Gives a copy of a template a new UUID. The copy is a draft, so nothing else has it open.
pub(super) fn renew_identity(copy: &File, filesystem: &NewFilesystem) -> Result<()> {
    filesystem::renew_identity(copy, kind_of(filesystem.fs), filesystem.uuid.bytes())
        .map_err(cannot(|| format!("set the UUID of a new {} filesystem", filesystem.fs)))
}

impl Templates {
    pub(super) fn new(directory: Arc<PoolDirectory>, capacity: Arc<ImageCapacity>) -> Self {
        Self { directory, capacity, recent: Recent::default() }
    }

    /// An open file would keep the filesystem it is on from being unmounted.
    pub(super) fn clear(&self) {
        self.recent.clear();
    }

    /// What the volume is to begin with; `None`: it begins blank, and mkfs runs when it is first
    /// staged. A thick volume does, for it must have each block for itself.
    pub(super) fn for_volume(&self, new: &NewVolume) -> Option<(Arc<CopySource>, NewFilesystem)> {
        let filesystem = new.filesystem?;
        let usual = new.source.is_none()
            && new.parameters.mkfs_options.is_empty()
            && new.parameters.provisioning == Provisioning::Thin;
        if !usual {
            return None;
        }
        let shape = Shape { fs: filesystem.fs, bytes: new.capacity_bytes };
        match self.template(shape) {
            Ok(template) => template.map(|template| (template, filesystem)),
            Err(error) => {
                tracing::warn!(
                    volume = %new.id,
                    %error,
                    "cannot make a template; the volume is formatted when it is staged"
                );
                None
            }
        }
    }

    fn template(&self, shape: Shape) -> Result<Option<Arc<CopySource>>> {
        let slot = self.recent.slot(shape);
        let mut slot = lock(&slot);
        match &*slot {
            Template::Made(template) => return Ok(Some(Arc::clone(template))),
            Template::Failed(at) if at.elapsed() < TEMPLATE_RETRY_INTERVAL => return Ok(None),
            Template::NotMade | Template::Failed(_) => {}
        }
        if self.capacity.available(Provisioning::Thin)?.available_bytes < MIN_FREE_BYTES {
            return Ok(None);
        }
        let made = self.make_template(shape).map(Arc::new);
        *slot = match &made {
            Ok(template) => Template::Made(Arc::clone(template)),
            Err(_) => Template::Failed(Instant::now()),
        };
        made.map(Some)
    }

    fn make_template(&self, shape: Shape) -> Result<CopySource> {
        let making =
            || format!("make a template of a {} filesystem of {} bytes", shape.fs, shape.bytes);
        let formatted = Temporary { path: self.directory.layout().new_in_staging(&TEMPLATE) };
        let image = file::create_file(&formatted.path).map_err(cannot(making))?;
        file::set_length(&image, shape.bytes).map_err(cannot(making))?;
        filesystem::format_template(&formatted.path, kind_of(shape.fs)).map_err(cannot(making))?;
        // A copy has only what mkfs wrote, not what it reserved, as for the log of XFS: btrfs would
        // share that, too. Nor are zeroes needed.
        let template = Temporary { path: self.directory.layout().new_in_staging(&TEMPLATE) };
        let data = file::create_file(&template.path).map_err(cannot(making))?;
        file::copy_sparse(&image, &data).map_err(cannot(making))?;
        file::punch_zeroes(&data).map_err(cannot(making))?;
        // Now rather than in each volume it is found out that this mkfs makes something else.
        let uuid = random_bytes().map_err(cannot(making))?;
        filesystem::renew_identity(&data, kind_of(shape.fs), uuid).map_err(cannot(making))?;
        CopySource::open_file(&template.path, shape.bytes)
    }
}

/// A crash leaves it in staging/, where the next start removes it.
struct Temporary {
    path: PathBuf,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = file::ensure_no_file(&self.path) {
            tracing::warn!(%error, "cannot remove a template before the next start");
        }
    }
}

#[cfg(test)]
mod template_tests;
#[cfg(test)]
mod tests;
