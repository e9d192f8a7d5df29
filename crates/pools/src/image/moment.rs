//! All volumes of a btrfs pool at one instant.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use orlop_model::{Result, VolumeId};
use orlop_sys::btrfs;

use super::failure::Doing;
use super::layout::{Home, MOMENT};
use super::original::Original;
use super::store::Store;
use super::volume_draft::is_thick;
use crate::poison::lock;

/// A read-only snapshot of the pool's subvolume, made in one transaction of btrfs. Of what loop
/// devices write with direct I/O, all that was flushed is in it, and nothing that was begun after
/// it: a flush waits until btrfs has recorded where the data is. (Through the page cache data
/// would be written back when the kernel likes, in any order; that is one reason why loop devices
/// here never use it.) It is only there to clone from, and gone when dropped.
#[derive(Debug)]
pub(super) struct Moment {
    root: PathBuf,
}

/// How many thick volumes are being made. A moment is only held while there are none, and none is begun
/// while one is held.
#[derive(Debug, Default)]
pub(super) struct ThickDrafts(Mutex<usize>);

/// Ends with the draft.
#[derive(Debug)]
pub(super) struct ThickDraft {
    store: Arc<Store>,
}

impl Drop for ThickDraft {
    fn drop(&mut self) {
        let mut drafts = lock(&self.store.thick_drafts.0);
        *drafts = drafts.saturating_sub(1);
    }
}

impl Store {
    pub(super) fn note_thick_draft(self: &Arc<Self>) -> ThickDraft {
        *lock(&self.thick_drafts.0) += 1;
        ThickDraft { store: Arc::clone(self) }
    }

    /// Also one that is gone again would take from every thick volume of the pool what it has: btrfs
    /// takes whatever is older than the last snapshot of its subvolume for shared, and needs free
    /// space to overwrite it (decision 0029).
    pub(super) fn can_hold_moment(&self) -> bool {
        self.holds_moments && self.volumes.ids_where(is_thick).is_empty()
    }

    /// `None`: not on this pool, or not now.
    pub(super) fn try_hold_moment(&self) -> Result<Option<Moment>> {
        let drafts = lock(&self.thick_drafts.0);
        if *drafts > 0 || !self.can_hold_moment() {
            return Ok(None);
        }
        self.hold_moment().map(Some)
    }

    /// A crash while it is there leaves a subvolume in staging/ that the next start sweeps away.
    fn hold_moment(&self) -> Result<Moment> {
        let root = self.layout.new_in_staging(&MOMENT);
        btrfs::snapshot_subvolume(self.layout.root(), &root)
            .doing(|| format!("hold a moment of pool {}", self.name()))?;
        Ok(Moment { root })
    }

    /// The volume as it was in that moment.
    pub(super) fn original_in(&self, moment: &Moment, volume: &VolumeId) -> Result<Original> {
        let directory = self.layout.volumes_under(&moment.root).join(volume.to_string());
        let length = self.volumes.require(volume)?.capacity_bytes;
        Original::open_file(&Home::new(directory).data(), length)
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        if let Err(error) = btrfs::delete_subvolume(&self.root) {
            tracing::warn!(
                %error,
                "cannot delete a temporary subvolume snapshot before the next start"
            );
        }
    }
}
