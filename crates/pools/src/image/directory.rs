//! The directory that a pool is in: where everything is, what its filesystem can do, and whether it
//! is still there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use orlop_model::{Error, PoolId, PoolInfo, Result, Topology};
use orlop_sys::btrfs;
use orlop_sys::file::{self, BackingKind, Space};
use orlop_sys::filesystem::keeps_order;

use super::attach::foreign::tells_openers;
use super::failure::cannot;
use super::last_owner::LastOwner;
use super::layout::Layout;
use super::managed::Managed;
use super::pool_header::PoolHeader;

#[derive(Debug)]
pub(super) struct PoolDirectory {
    info: PoolInfo,
    layout: Layout,
    header: PoolHeader,
    managed: Option<Managed>,
    /// `st_dev` of the pool's directory: another one there means that it was unmounted.
    filesystem: u64,
    backing: BackingKind,
    keeps_order: bool,
    shares_extents: bool,
    is_subvolume: bool,
    tells_openers: bool,
}

impl PoolDirectory {
    pub(super) fn open(
        name: String,
        topology: Topology,
        header: PoolHeader,
        managed: Option<Managed>,
    ) -> Result<Self> {
        let opening = || format!("open pool {name}");
        let layout = Layout::new(managed.as_ref().map_or(header.root(), Managed::root));
        layout.ensure()?;
        let root = layout.root();
        let filesystem = fs::metadata(root).map_err(cannot(opening))?.dev();
        let backing = file::backing_kind(root).map_err(cannot(opening))?;
        let keeps_order = keeps_order(root).map_err(cannot(opening))?;
        let shares_extents = shares_extents(&layout.staging(), backing).map_err(cannot(opening))?;
        if !shares_extents {
            tracing::warn!(
                pool = name,
                filesystem = ?backing,
                "this filesystem cannot share extents: snapshots and clones copy all data and \
                 hold writers for as long; use XFS, btrfs or a managed pool"
            );
        }
        let tells_openers = tells_openers(&layout.staging());
        let is_subvolume = shares_extents && btrfs::is_subvolume(root).map_err(cannot(opening))?;
        let info = PoolInfo { id: header.id().clone(), name, topology };
        Ok(Self {
            info,
            layout,
            header,
            managed,
            filesystem,
            backing,
            keeps_order,
            shares_extents,
            is_subvolume,
            tells_openers,
        })
    }

    pub(super) fn info(&self) -> &PoolInfo {
        &self.info
    }

    pub(super) fn id(&self) -> &PoolId {
        &self.info.id
    }

    pub(super) fn name(&self) -> &str {
        &self.info.name
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where volumes, snapshots and all else are.
    pub(super) fn root(&self) -> &Path {
        self.layout.root()
    }

    /// `st_dev`, when the pool was opened.
    pub(super) fn filesystem(&self) -> u64 {
        self.filesystem
    }

    pub(super) fn backing(&self) -> BackingKind {
        self.backing
    }

    /// As [`orlop_sys::filesystem::keeps_order`] says (decision 0028).
    pub(super) fn keeps_order(&self) -> bool {
        self.keeps_order
    }

    pub(super) fn shares_extents(&self) -> bool {
        self.shares_extents
    }

    /// Of btrfs: it can be snapshotted as a whole.
    pub(super) fn is_subvolume(&self) -> bool {
        self.is_subvolume
    }

    /// As [`super::attach::foreign::tells_openers`] says.
    pub(super) fn tells_openers(&self) -> bool {
        self.tells_openers
    }

    /// Only of a pool in an image that Orlop made.
    pub(super) fn managed(&self) -> Option<&Managed> {
        self.managed.as_ref()
    }

    /// Of a pool in an image: whether that has its blocks.
    pub(super) fn check_thick(&self) -> Result<()> {
        self.managed.as_ref().map_or(Ok(()), |managed| managed.check_thick(self.name()))
    }

    /// Is the directory still the pool that was opened? If it was unmounted, its files seem to be missing
    /// but are not, so callers check this before they change a file or report one as missing.
    pub(super) fn check_present(&self) -> Result<()> {
        let checking = || format!("check pool {}", self.name());
        self.header.check()?;
        let there = fs::metadata(self.root()).map_err(cannot(checking))?;
        if there.dev() != self.filesystem {
            return Err(Error::unreachable(
                checking(),
                format!(
                    "the pool is gone: another filesystem is at {} than when it was opened; \
                     mount the right one or restart",
                    self.root().display()
                ),
            ));
        }
        Ok(())
    }

    /// As [`Self::check_present`], before anything new is stored: will it last?
    pub(super) fn check_takes_data(&self) -> Result<()> {
        self.check_present()?;
        self.managed.as_ref().map_or(Ok(()), |managed| managed.check_image(self.name()))
    }

    pub(super) fn space(&self) -> Result<Space> {
        let reading = || format!("read the free space of pool {}", self.name());
        let mut space = file::space(self.root()).map_err(cannot(reading))?;
        if let Some(managed) = &self.managed
            // In a sparse image, what is free must still be found around it.
            && let Some(around) = managed.space_around().map_err(cannot(reading))?
        {
            space.free = space.free.min(around.free);
        }
        Ok(space)
    }

    pub(super) fn last_owner(&self) -> Option<LastOwner> {
        LastOwner::read(self.header.root())
    }

    pub(super) fn set_run_stamp(&self, stamp: String) -> Result<()> {
        let owner = LastOwner {
            name: self.info.name.clone(),
            topology: self.info.topology.clone(),
            run_stamp: Some(stamp),
        };
        owner.write(self.header.root())
    }

    pub(super) fn close(&self) {
        if let Some(managed) = &self.managed {
            managed.close();
        }
        // Threads that wait for another pool may keep this value, and a successor need not wait.
        self.header.leave();
    }
}

/// A pool that is full or read-only must open all the same: that is when someone needs to look at
/// it, and on a full one to delete.
fn shares_extents(directory: &Path, backing: BackingKind) -> orlop_sys::Result<bool> {
    match file::can_share_extents(directory) {
        Err(error) if error.is_no_space() || error.is_read_only() => {
            let assumed = match backing {
                BackingKind::Xfs | BackingKind::Btrfs => true,
                BackingKind::Ext4
                | BackingKind::Tmpfs
                | BackingKind::Overlay
                | BackingKind::Other => false,
            };
            tracing::warn!(%error, assumed, "cannot test whether the filesystem shares extents");
            Ok(assumed)
        }
        tried => tried,
    }
}
