//! Volumes as files in a directory, attached by loop devices.
//!
//! A volume is a sparse or preallocated file; snapshots and clones share its extents where the
//! filesystem can (XFS, btrfs) and are sparse copies elsewhere. `layout.rs` shows the directory.
//!
//! The pool is made of components that own their state, each built on those before it: its directory,
//! which is here (is it there, what can its filesystem do), `emergency_reserve.rs`, `catalogue.rs`
//! (what exists), `capacity.rs` (what is promised and left), `attach.rs` (loop devices),
//! `copy_source.rs` (what new objects begin with), and `provisioner.rs`, which makes and removes
//! things with all of them.

pub(crate) mod attach;
mod capacity;
mod catalogue;
mod changes;
mod check;
mod copy_source;
mod emergency_reserve;
mod entering;
mod failure;
mod health;
mod inspect;
mod last_owner;
mod layout;
mod making;
mod managed;
mod open;
pub(crate) mod pool_header;
mod provisioner;
mod quarantine;
mod removed;
mod rights;
mod subvolume_snapshot;
#[cfg(test)]
mod testbed;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use orlop_model::{
    Catalogue, ChangedBlocks, Devices, Error, Health, Pool, PoolId, PoolInfo, Provisioner, Result,
    Shared, Topology,
};
use orlop_sys::btrfs;
use orlop_sys::file::{self, BackingKind, Space};
use orlop_sys::filesystem::keeps_order;

pub use capacity::Floor;
pub use check::Start;
pub use inspect::Inspection;
pub use last_owner::LastOwner;
pub use open::{ImagePoolConfig, ServedBefore};

use attach::LoopDevices;
use attach::foreign::reports_openers;
use capacity::ImageCapacity;
use catalogue::ImageCatalogue;
use changes::ExtentMaps;
use copy_source::Templates;
use emergency_reserve::EmergencyReserve;
use failure::cannot;
use health::ImageHealth;
use layout::Layout;
use managed::Managed;
use pool_header::PoolHeader;
use provisioner::ImageProvisioner;

/// Open, it holds the pool's lock: no other process uses the directory.
#[derive(Debug)]
pub struct ImagePool {
    directory: Arc<PoolDirectory>,
    catalogue: Arc<ImageCatalogue>,
    capacity: Arc<ImageCapacity>,
    devices: Arc<LoopDevices>,
    templates: Arc<Templates>,
    provisioner: ImageProvisioner,
    changed_blocks: ExtentMaps,
    health: ImageHealth,
}

impl ImagePool {
    fn of_parts(
        directory: Arc<PoolDirectory>,
        reserve: Arc<EmergencyReserve>,
        catalogue: Arc<ImageCatalogue>,
        capacity: Arc<ImageCapacity>,
        devices: LoopDevices,
    ) -> Self {
        let devices = Arc::new(devices);
        let templates = Arc::new(Templates::new(Arc::clone(&directory), Arc::clone(&capacity)));
        let provisioner = ImageProvisioner::new(
            Arc::clone(&directory),
            reserve,
            Arc::clone(&catalogue),
            Arc::clone(&capacity),
            Arc::clone(&devices),
            Arc::clone(&templates),
        );
        Self {
            changed_blocks: ExtentMaps::new(Arc::clone(&directory), Arc::clone(&catalogue)),
            health: ImageHealth::new(
                Arc::clone(&directory),
                Arc::clone(&catalogue),
                Arc::clone(&capacity),
                Arc::clone(&devices),
            ),
            directory,
            catalogue,
            capacity,
            devices,
            templates,
            provisioner,
        }
    }

    /// The stamp of the run directory whose daemon served the pool last.
    pub fn run_stamp(&self) -> Option<String> {
        self.directory.last_owner()?.run_stamp
    }

    /// The run directory with this stamp has the records of all that is used from now on; `run_dir` is where
    /// it is.
    pub fn set_run_stamp(&self, stamp: String, run_dir: &Path) -> Result<()> {
        self.directory.set_run_stamp(stamp, run_dir)
    }

    /// For an orderly end, when no thread does anything in the pool any more. A managed pool gives its
    /// image back, unless volumes are in use.
    pub fn close(&self) {
        self.capacity.wait_for_scan();
        self.templates.clear();
        self.directory.close();
    }
}

impl Drop for ImagePool {
    /// The pool's lock ends with the last draft or scan that uses its directory.
    fn drop(&mut self) {
        self.capacity.wait_for_scan();
    }
}

impl Pool for ImagePool {
    fn info(&self) -> &PoolInfo {
        self.directory.info()
    }

    fn catalogue(&self) -> &dyn Catalogue {
        &*self.catalogue
    }

    fn provisioner(&self) -> &dyn Provisioner {
        &self.provisioner
    }

    fn devices(&self) -> &dyn Devices {
        &*self.devices
    }

    fn changed_blocks(&self) -> &dyn ChangedBlocks {
        &self.changed_blocks
    }

    fn health(&self) -> &dyn Health {
        &self.health
    }

    /// Its directory is of one machine.
    fn shared(&self) -> Option<&dyn Shared> {
        None
    }
}

/// Where everything of a pool is, what its filesystem can do, and whether it is still there.
#[derive(Debug)]
struct PoolDirectory {
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
    reports_openers: bool,
}

impl PoolDirectory {
    fn open(
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
        // An operator may name a pool by a symbolic link, which what is opened by path refuses.
        let resolved = fs::canonicalize(root).map_err(cannot(opening))?;
        let keeps_order = keeps_order(&resolved).map_err(cannot(opening))?;
        let shares_extents = shares_extents(&layout.staging(), backing).map_err(cannot(opening))?;
        if !shares_extents {
            tracing::warn!(
                pool = name,
                filesystem = ?backing,
                "this filesystem cannot share extents: snapshots and clones copy all data, and \
                 writers stay frozen for as long; use XFS, btrfs or a managed pool"
            );
        }
        let reports_openers = reports_openers(&layout.staging());
        let is_subvolume =
            shares_extents && btrfs::is_subvolume(&resolved).map_err(cannot(opening))?;
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
            reports_openers,
        })
    }

    fn info(&self) -> &PoolInfo {
        &self.info
    }

    fn id(&self) -> &PoolId {
        &self.info.id
    }

    fn name(&self) -> &str {
        &self.info.name
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where volumes, snapshots and all else are.
    fn root(&self) -> &Path {
        self.layout.root()
    }

    /// `st_dev`, when the pool was opened.
    fn filesystem(&self) -> u64 {
        self.filesystem
    }

    fn backing(&self) -> BackingKind {
        self.backing
    }

    /// As [`orlop_sys::filesystem::keeps_order`] says (decision 0028).
    fn keeps_order(&self) -> bool {
        self.keeps_order
    }

    fn shares_extents(&self) -> bool {
        self.shares_extents
    }

    /// Is the pool a btrfs subvolume, which can be snapshotted as a whole?
    fn is_subvolume(&self) -> bool {
        self.is_subvolume
    }

    /// As [`attach::foreign::reports_openers`] says.
    fn reports_openers(&self) -> bool {
        self.reports_openers
    }

    /// Only of a pool in an image that Orlop made.
    fn managed(&self) -> Option<&Managed> {
        self.managed.as_ref()
    }

    /// In a managed pool: are the blocks of its image allocated?
    fn check_thick(&self) -> Result<()> {
        self.managed.as_ref().map_or(Ok(()), |managed| managed.check_thick(self.name()))
    }

    /// Is the directory still the pool that was opened? If it was unmounted, its files seem to be missing
    /// but are not, so callers check this before they change a file or report one as missing.
    fn check_present(&self) -> Result<()> {
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
    fn check_takes_data(&self) -> Result<()> {
        self.check_present()?;
        self.managed.as_ref().map_or(Ok(()), |managed| managed.check_image(self.name()))
    }

    fn space(&self) -> Result<Space> {
        let reading = || format!("read the free space of pool {}", self.name());
        let mut space = file::space(self.root()).map_err(cannot(reading))?;
        if let Some(managed) = &self.managed
            // A sparse image can use only what is free on the disk that holds it.
            && let Some(around) = managed.space_around().map_err(cannot(reading))?
        {
            space.free = space.free.min(around.free);
        }
        Ok(space)
    }

    fn last_owner(&self) -> Option<LastOwner> {
        LastOwner::read(self.header.root())
    }

    fn set_run_stamp(&self, stamp: String, run_dir: &Path) -> Result<()> {
        let owner = LastOwner {
            name: self.info.name.clone(),
            topology: self.info.topology.clone(),
            run_stamp: Some(stamp),
            run_dir: Some(run_dir.to_owned()),
        };
        match self.last_owner().as_ref() == Some(&owner) {
            true => Ok(()),
            false => owner.write(self.header.root()),
        }
    }

    fn close(&self) {
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
