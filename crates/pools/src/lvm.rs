//! Volumes as logical volumes of LVM: thin ones in a thin pool, thick ones beside it.
//!
//! `layout.rs` shows what is where. A volume and its record are born together: the record is in the tags of the logical
//! volume, which LVM changes in one commit of the volume group's metadata. `lv_state.rs` has the life of one.
//!
//! All is done by the command `lvm` (`commands.rs`), whose reports are parsed in `report.rs` and whose complaints become
//! errors in `failure.rs`. Records are JSON in the characters that a tag may have (`tag_text.rs`), in numbered pieces
//! with a checksum (`record_tags.rs`); docs/decisions/0063 has the reasons.
//!
//! The pool is made of components that own their state, each built on those before it (`open.rs`): `pool_lock.rs` (this
//! daemon is the only one), `objects.rs` (logical volumes and their records), `pool_records.rs` (groups), `catalogue.rs`,
//! `capacity.rs` with `extension.rs`, which enlarges the thin pool, `devices.rs`, `provisioner.rs`, which makes and removes
//! things with all of them, `changes.rs` (changed blocks), `health.rs`, and `watch.rs` (a thread that looks at the thin
//! pool). `making.rs` comes before all of them, where there is no thin pool.

mod capacity;
mod catalogue;
pub(crate) mod changes;
mod commands;
mod device_mapper;
mod devices;
mod extension;
mod failure;
mod health;
mod inspect;
mod layout;
mod lv_health;
mod lv_state;
mod making;
mod objects;
mod open;
mod owner;
mod pool_lock;
mod pool_records;
mod provisioner;
mod record_tags;
mod report;
mod tag_text;
#[cfg(test)]
mod testbed;
#[cfg(test)]
mod tests;
mod thick_layout;
mod thin_status;
mod watch;

use std::path::Path;
use std::sync::Arc;

use orlop_model::{
    Catalogue, ChangedBlocks, Devices, Health, Pool, PoolInfo, Provisioner, Result, Shared,
};

pub use extension::Extension;
pub use inspect::Inspection;
pub use making::{NewThinPool, ThinPoolSize};
pub use open::LvmPoolConfig;

#[cfg(test)]
use capacity::LvmCapacity;
use catalogue::LvmCatalogue;
use changes::ThinMaps;
#[cfg(test)]
use commands::Lvm;
use devices::LinearDevices;
use health::LvmHealth;
use owner::OwnerTags;
use pool_lock::PoolLock;
use provisioner::LvmProvisioner;
use watch::PoolWatch;

/// Open, it holds the pool's lock: no other daemon on this machine uses the thin pool.
#[derive(Debug)]
pub struct LvmPool {
    info: PoolInfo,
    #[cfg(test)]
    lvm: Arc<Lvm>,
    catalogue: Arc<LvmCatalogue>,
    #[cfg(test)]
    capacity: Arc<LvmCapacity>,
    devices: Arc<LinearDevices>,
    provisioner: LvmProvisioner,
    changed_blocks: ThinMaps,
    health: LvmHealth,
    owner: OwnerTags,
    watch: PoolWatch,
    lock: PoolLock,
}

impl LvmPool {
    /// The stamp of the run directory whose daemon served the pool last.
    pub fn run_stamp(&self) -> Option<String> {
        self.owner.get()?.run_stamp
    }

    /// The run directory with this stamp has the records of all that is used from now on; `run_dir` is where
    /// it is.
    pub fn set_run_stamp(&self, stamp: String, run_dir: &Path) -> Result<()> {
        self.owner.set_run_stamp(&self.info, stamp, run_dir)
    }

    /// For an orderly end, when no thread does anything in the pool any more.
    pub fn close(&self) {
        self.watch.stop();
        self.lock.release();
    }
}

impl Pool for LvmPool {
    fn info(&self) -> &PoolInfo {
        &self.info
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

    /// Its disks are of one machine.
    fn shared(&self) -> Option<&dyn Shared> {
        None
    }
}
