//! What all parts of the pool share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orlop_model::{Error, NodeId, PoolId, PoolInfo, Result, Topology};
use orlop_sys::ceph::{ClusterConfig, IoCtx};

use super::attach::Attachments;
use super::background::Background;
use super::connection::Connection;
use super::group_snapshots::can_restore_groups;
use super::marker;
use crate::shortage::Shortage;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// What the operator says about a pool.
#[derive(Debug, Clone)]
pub struct RbdPoolConfig {
    pub name: String,
    /// As Ceph's `mon_host` has them.
    pub monitors: String,
    pub pool: String,
    /// Empty: none.
    pub namespace: String,
    /// Without `client.`
    pub user: String,
    /// The file with the user's key.
    pub keyring: PathBuf,
    /// How long a single operation waits for the cluster before it is given up. Longer than a store
    /// that fails needs to be found out and replaced, or calls fail that need not.
    pub timeout: Duration,
    /// Make the Ceph pool one of Orlop's where it is none yet.
    pub create: bool,
    /// Free what is deleted and flatten what is too deep. One of all who use the pool is enough,
    /// and more do no harm.
    pub housekeeping: bool,
    /// Cut groups also where librbd could not restore them. For tests: making and deleting is the
    /// same everywhere.
    pub cuts_unrestorable_groups: bool,
    /// This process.
    pub node_id: NodeId,
    /// Are volumes used on this machine, by this process?
    pub serves_node: bool,
    /// Where exports are kept, out of reach of all but root; gone after a reboot.
    pub run_dir: PathBuf,
}

impl RbdPoolConfig {
    /// Then the pool is left as it is.
    fn only_looks(&self) -> bool {
        !self.create && !self.housekeeping && !self.serves_node
    }

    pub(super) fn cluster(&self) -> ClusterConfig {
        ClusterConfig {
            monitors: self.monitors.clone(),
            user: self.user.clone(),
            keyring: self.keyring.clone(),
            connect_timeout: CONNECT_TIMEOUT.min(self.timeout),
            operation_timeout: self.timeout,
        }
    }
}

#[derive(Debug)]
pub(super) struct Store {
    pub(super) info: PoolInfo,
    pub(super) connection: Connection,
    pub(super) background: Background,
    pub(super) attachments: Attachments,
    pub(super) cuts_groups: bool,
    pub(super) shortage: Shortage,
}

impl Store {
    pub(super) fn open(
        config: &RbdPoolConfig,
        check: impl FnOnce(&PoolId) -> Result<()>,
    ) -> Result<Arc<Self>> {
        let connection =
            Connection::open(config.cluster(), config.pool.clone(), config.namespace.clone())?;
        let id = marker::take_or_make(&connection, config.create)?;
        check(&id)?;
        if config.serves_node || config.housekeeping {
            connection.introduce(&config.run_dir, &id)?;
        }
        if !config.only_looks() {
            ensure_trash(&connection)?;
        }
        let attachments = Attachments::recover(config)?;
        // An empty topology: the pool is reached from wherever the cluster is.
        let info = PoolInfo { id, name: config.name.clone(), topology: Topology::default() };
        let store = Arc::new(Self {
            info,
            connection,
            background: Background::default(),
            attachments,
            cuts_groups: config.cuts_unrestorable_groups || can_restore_groups(),
            shortage: Shortage::default(),
        });
        store.connection.pulse.start(&store)?;
        store.look_at_room();
        if config.serves_node {
            store.ensure_node_known(&config.node_id)?;
            store.tell_exported_elsewhere()?;
            store.release_orphaned_exports()?;
            store.release_left_locks()?;
        }
        if config.housekeeping {
            store.background.start(&store)?;
        }
        Ok(store)
    }

    /// What is left is what the background has begun, and does not end with a call.
    pub(super) fn close(&self) {
        if self.background.stop() {
            self.connection.leave();
        }
    }

    pub(super) fn ask<T>(
        &self,
        doing: impl Fn() -> String,
        ask: impl Fn(&Arc<IoCtx>) -> orlop_sys::Result<T>,
    ) -> Result<T> {
        self.connection.ask(doing, ask)
    }
}

/// While there is room: later it may be needed to make some.
fn ensure_trash(connection: &Connection) -> Result<()> {
    let making = || format!("make the trash of the Ceph pool {}", connection.pool());
    match connection.ask(making, |io| io.ensure_trash()) {
        Err(full @ Error::Exhausted(_)) => {
            tracing::warn!(
                %full,
                "the Ceph pool is too full to create its trash; nothing can be deleted until \
                 there is space"
            );
            Ok(())
        }
        done => done,
    }
}
