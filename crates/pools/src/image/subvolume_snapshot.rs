//! All volumes of a btrfs pool at one instant.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use orlop_model::{Result, VolumeId};
use orlop_sys::btrfs;

use super::PoolDirectory;
use super::catalogue::{ImageCatalogue, check_current};
use super::copy_source::CopySource;
use super::failure::cannot;
use super::layout::{ObjectDir, SUBVOLUME_SNAPSHOT};
use super::provisioner::is_thick;
use crate::poison::lock;

/// A read-only snapshot of the pool's subvolume, made in one transaction of btrfs. Of what loop
/// devices write with direct I/O, all that was flushed is in it, and nothing that was begun after
/// it: a flush waits until btrfs has recorded where the data is. (Through the page cache data
/// would be written back when the kernel likes, in any order; that is one reason why loop devices
/// here never use it.) It is only there to clone from, and gone when dropped.
#[derive(Debug)]
pub(super) struct SubvolumeSnapshot {
    root: PathBuf,
}

/// Takes them, where and while that is possible.
#[derive(Debug)]
pub(super) struct SubvolumeSnapshots {
    directory: Arc<PoolDirectory>,
    catalogue: Arc<ImageCatalogue>,
    /// How many thick volumes are being made. A snapshot is only taken while there are none, and none
    /// is begun while one is taken.
    thick_drafts: Mutex<usize>,
}

/// Ends with the draft.
#[derive(Debug)]
pub(super) struct ThickDraft {
    snapshots: Arc<SubvolumeSnapshots>,
}

impl Drop for ThickDraft {
    fn drop(&mut self) {
        let mut drafts = lock(&self.snapshots.thick_drafts);
        *drafts = drafts.saturating_sub(1);
    }
}

impl SubvolumeSnapshots {
    pub(super) fn new(directory: Arc<PoolDirectory>, catalogue: Arc<ImageCatalogue>) -> Self {
        Self { directory, catalogue, thick_drafts: Mutex::default() }
    }

    pub(super) fn note_thick_draft(self: &Arc<Self>) -> ThickDraft {
        *lock(&self.thick_drafts) += 1;
        ThickDraft { snapshots: Arc::clone(self) }
    }

    /// Also one that is gone again would take from every thick volume of the pool what it has: btrfs
    /// takes whatever is older than the last snapshot of its subvolume for shared, and needs free
    /// space to overwrite it (decision 0029).
    pub(super) fn are_possible(&self) -> bool {
        self.directory.is_subvolume()
            && self.catalogue.volume_index().ids_where(is_thick).is_empty()
    }

    /// `None`: not on this pool, or not now.
    pub(super) fn try_take(&self) -> Result<Option<SubvolumeSnapshot>> {
        let drafts = lock(&self.thick_drafts);
        if *drafts > 0 || !self.are_possible() {
            return Ok(None);
        }
        self.take().map(Some)
    }

    /// A crash while it is there leaves a subvolume in staging/ that the next start sweeps away.
    fn take(&self) -> Result<SubvolumeSnapshot> {
        let root = self.directory.layout().new_in_staging(&SUBVOLUME_SNAPSHOT);
        let taking =
            || format!("take a snapshot of the subvolume of pool {}", self.directory.name());
        // The pool may be named by a symbolic link.
        let source = fs::canonicalize(self.directory.root()).map_err(cannot(taking))?;
        btrfs::snapshot_subvolume(&source, &root).map_err(cannot(taking))?;
        Ok(SubvolumeSnapshot { root })
    }

    /// The volume as it was when the snapshot was taken.
    pub(super) fn source_in(
        &self,
        snapshot: &SubvolumeSnapshot,
        volume: &VolumeId,
    ) -> Result<CopySource> {
        let volumes = self.directory.layout().volumes_under(&snapshot.root);
        let length = self.catalogue.volume_index().require(volume)?.capacity_bytes;
        check_current(self.catalogue.volume_index(), volume, length)?;
        CopySource::open_file(&ObjectDir::new(volumes.join(volume.to_string())).data(), length)
    }
}

impl Drop for SubvolumeSnapshot {
    fn drop(&mut self) {
        if let Err(error) = btrfs::delete_subvolume(&self.root) {
            tracing::warn!(
                %error,
                "cannot delete a temporary subvolume snapshot; the next start removes it"
            );
        }
    }
}
