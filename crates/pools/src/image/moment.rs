//! All volumes of a btrfs pool at one instant.

use std::path::PathBuf;

use orlop_model::{Result, VolumeId};
use orlop_sys::btrfs;

use super::failure::Doing;
use super::layout::{Home, MOMENT};
use super::original::Original;
use super::store::Store;

/// A read-only snapshot of the pool's subvolume, made in one transaction of btrfs. Of what loop
/// devices write with direct I/O, all that was flushed is in it, and nothing that was begun after
/// it: a flush waits until btrfs has recorded where the data is. (Through the page cache data
/// would be written back when the kernel likes, in any order; that is one reason why loop devices
/// here never use it.) It is only there to clone from, and gone when dropped.
#[derive(Debug)]
pub(super) struct Moment {
    root: PathBuf,
}

impl Store {
    /// A crash while it is there leaves a subvolume in staging/ that the next start sweeps away.
    pub(super) fn hold_moment(&self) -> Result<Moment> {
        let root = self.layout.new_in_staging(&MOMENT);
        btrfs::snapshot_subvolume(self.layout.root(), &root)
            .doing(|| format!("hold a moment of pool {}", self.name))?;
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
            tracing::warn!(%error, "a moment of the pool stays until the next start");
        }
    }
}
