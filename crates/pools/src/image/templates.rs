//! Filesystems that are ready to be copied into new volumes.
//!
//! mkfs takes longer than all else in a volume's life together; to share the extents of what it
//! made before, for a volume of the same size, takes next to nothing. A template has no name, only
//! an open file. So it goes with the process, however that ends, and the next one makes its own,
//! perhaps with a newer mkfs.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orlop_model::{FsType, NewFilesystem, NewVolume, Provisioning, Result};
use orlop_sys::file;
use orlop_sys::filesystem::{self, FsKind};
use orlop_sys::rand::random_bytes;

use super::capacity::Capacity;
use super::copy_source::CopySource;
use super::directory::PoolDirectory;
use super::failure::cannot;
use super::layout::TEMPLATE;
use crate::poison::lock;

/// Sizes that are used again are few; each template takes up to some MiB of the pool.
const KEPT: usize = 32;

/// mkfs takes up to 64 MiB while it works, for the log of XFS. Where there is less than this, room is
/// for volumes.
const ROOM: u64 = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    fs: FsType,
    bytes: u64,
}

/// Each attempt may take as long as mkfs is given, and all who want the same shape wait for it.
const AFTER_A_FAILURE: Duration = Duration::from_secs(60);

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
    capacity: Arc<Capacity>,
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
        recent.truncate(KEPT);
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
pub(super) fn renew(copy: &File, filesystem: &NewFilesystem) -> Result<()> {
    filesystem::renew_identity(copy, kind_of(filesystem.fs), filesystem.uuid.bytes())
        .map_err(cannot(|| format!("set the UUID of a new {} filesystem", filesystem.fs)))
}

impl Templates {
    pub(super) fn new(directory: Arc<PoolDirectory>, capacity: Arc<Capacity>) -> Self {
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
            Template::Failed(at) if at.elapsed() < AFTER_A_FAILURE => return Ok(None),
            Template::NotMade | Template::Failed(_) => {}
        }
        if self.capacity.available(Provisioning::Thin)?.available_bytes < ROOM {
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

/// A crash leaves it in staging/, which the next start sweeps.
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
mod tests;
