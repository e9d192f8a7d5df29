//! Volumes as images of a Ceph cluster, which many machines reach at once.
//!
//! `layout.rs` shows what is where. Nothing is remembered here: any number of processes work on one
//! pool, and each change says what it expects to find (`image_state.rs`, `intent.rs`).
//!
//! The pool is made of components that own their state, each built on those before it (`open.rs`):
//! `session.rs` (the connection and its circuit breaker), `records.rs` (the pool's keys), `images.rs`
//! (volumes and their records), `intent.rs` (snapshots that no record names yet), `capacity.rs`,
//! `fencing.rs` (which node may write), `exports.rs` (devices of this node), `flatten.rs`, `delete.rs`
//! and `garbage.rs` (the end of an image), `catalogue.rs`, and `provisioner.rs`, which makes things
//! with all of them.

pub(crate) mod capacity;
pub(crate) mod catalogue;
mod changed_blocks;
mod delete;
mod draft_check;
mod exports;
mod fencing;
mod flatten;
mod garbage;
mod health;
mod image_lock;
mod image_state;
mod images;
mod inspect;
pub(crate) mod intent;
mod layout;
mod nodes;
mod open;
pub(crate) mod pool_header;
mod provisioner;
mod records;
mod session;
mod shared;
mod side_by_side;
mod size_lock;
pub(crate) mod uncommitted_group_snapshot;
pub(crate) mod uncommitted_snapshot;

use std::sync::Arc;

use orlop_model::{
    Catalogue, ChangedBlocks, Devices, Health, Pool, PoolInfo, Provisioner, Result, Shared,
};

pub use open::RbdPoolConfig;

use capacity::RbdCapacity;
use catalogue::RbdCatalogue;
use changed_blocks::ObjectMaps;
use exports::Exports;
use garbage::{Background, Garbage};
use health::{ClusterProbe, RbdHealth};
use images::Images;
use nodes::Nodes;
use provisioner::{RbdProvisioner, can_restore_groups};
use session::Session;
use shared::SharedSide;

#[derive(Debug)]
pub struct RbdPool {
    session: Arc<Session>,
    info: Arc<PoolInfo>,
    images: Arc<Images>,
    catalogue: Arc<RbdCatalogue>,
    capacity: Arc<RbdCapacity>,
    nodes: Arc<Nodes>,
    exports: Arc<Exports>,
    background: Arc<Background>,
    garbage: Arc<Garbage>,
    provisioner: RbdProvisioner,
    changed_blocks: ObjectMaps,
    health: RbdHealth,
    probe: Arc<ClusterProbe>,
    shared: SharedSide,
}

impl RbdPool {
    /// A group snapshot can be restored where librbd has `rbd_clone4` (decision 0019).
    pub fn takes_group_snapshots() -> bool {
        can_restore_groups()
    }

    pub fn open(config: &RbdPoolConfig) -> Result<Self> {
        Self::open_if(config, |_| Ok(()))
    }

    /// Would [`Self::open`] refuse this before it asks the cluster?
    pub fn check(config: &RbdPoolConfig) -> Result<()> {
        Session::check_keyring(&config.cluster(), &config.pool)
    }

    /// When no call is under way any more, and before the process ends. What the background threads
    /// have begun does not end with a call.
    pub fn close(&self) {
        if self.background.stop() {
            self.session.unregister_client();
        }
    }
}

impl Pool for RbdPool {
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
        &*self.exports
    }

    fn changed_blocks(&self) -> &dyn ChangedBlocks {
        &self.changed_blocks
    }

    fn health(&self) -> &dyn Health {
        &self.health
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(&self.shared)
    }
}
