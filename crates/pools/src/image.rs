//! Volumes as files in a directory, attached by loop devices.
//!
//! A volume is a sparse or preallocated file; snapshots and clones share its extents where the
//! filesystem can (XFS, btrfs) and are sparse copies elsewhere. `layout.rs` shows the directory.
//!
//! The pool is made of components that own their state, each built on those before it:
//! `directory.rs` (is it there, what can its filesystem do), `emergency_reserve.rs`, `catalogue.rs`
//! (what exists), `capacity.rs` (what is promised and left), `attach.rs` (loop devices),
//! `copy_source.rs` (what new objects begin with), and `provisioner.rs`, which makes and removes
//! things with all of them.

pub(crate) mod attach;
mod capacity;
mod catalogue;
mod changes;
mod check;
mod copy_source;
mod directory;
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
mod rights;
mod subvolume_snapshot;
#[cfg(test)]
mod testbed;

use std::sync::Arc;

use orlop_model::{
    Catalogue, ChangedBlocks, Devices, Health, Pool, PoolInfo, Provisioner, Result, Shared,
};

pub use capacity::Floor;
pub use check::Start;
pub use inspect::Inspection;
pub use last_owner::LastOwner;
pub use open::{ImagePoolConfig, ServedBefore};

use attach::LoopDevices;
use capacity::Capacity;
use catalogue::ImageCatalogue;
use changes::ExtentMaps;
use copy_source::Templates;
use directory::PoolDirectory;
use emergency_reserve::EmergencyReserve;
use health::ImageHealth;
use provisioner::ImageProvisioner;

/// Open, it holds the pool's lock: no other process uses the directory.
#[derive(Debug)]
pub struct ImagePool {
    directory: Arc<PoolDirectory>,
    catalogue: Arc<ImageCatalogue>,
    capacity: Arc<Capacity>,
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
        capacity: Arc<Capacity>,
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

    /// The run directory with this stamp has the records of all that is used from now on.
    pub fn set_run_stamp(&self, stamp: String) -> Result<()> {
        self.directory.set_run_stamp(stamp)
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
