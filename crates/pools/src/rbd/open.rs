//! What the operator says about a pool, and how it is opened with that.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orlop_model::{Error, NodeId, PoolId, PoolInfo, Result, Topology};
use orlop_sys::ceph::ClusterConfig;

use super::capacity::RbdCapacity;
use super::catalogue::RbdCatalogue;
use super::changed_blocks::ObjectMaps;
use super::delete::Deletion;
use super::exports::Exports;
use super::fencing::Fencing;
use super::flatten::Flattening;
use super::garbage::{Background, Garbage};
use super::health::{ClusterProbe, RbdHealth};
use super::images::Images;
use super::intent::Intents;
use super::nodes::Nodes;
use super::provisioner::{RbdProvisioner, can_restore_groups};
use super::records::Records;
use super::session::Session;
use super::shared::SharedSide;
use super::{RbdPool, pool_header};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

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
    /// Free what is deleted and flatten what is too deep. One daemon of all that use the pool is
    /// enough, and more do no harm.
    pub collects_garbage: bool,
    /// Take group snapshots also where librbd could not restore them. For tests: taking and deleting
    /// them is the same everywhere.
    pub takes_unrestorable_groups: bool,
    /// This process.
    pub node_id: NodeId,
    /// Are volumes used on this machine, by this process?
    pub serves_node: bool,
    /// Where exports are kept, out of reach of all but root; gone after a reboot.
    pub run_dir: PathBuf,
}

impl RbdPoolConfig {
    /// The pool is opened to be inspected, and nothing in it is changed.
    fn is_read_only(&self) -> bool {
        !self.create && !self.collects_garbage && !self.serves_node
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

impl RbdPool {
    /// As [`Self::open`], if the id is not refused: before anything in the pool is changed or attached.
    pub fn open_if(
        config: &RbdPoolConfig,
        check: impl FnOnce(&PoolId) -> Result<()>,
    ) -> Result<Self> {
        let session =
            Session::open(config.cluster(), config.pool.clone(), config.namespace.clone())?;
        let id = pool_header::read_or_create(&session, config.create)?;
        check(&id)?;
        if config.serves_node || config.collects_garbage {
            session.register_client(&config.run_dir, &id)?;
        }
        if !config.is_read_only() {
            ensure_trash(&session)?;
        }
        // An empty topology: the pool is reached from wherever the cluster is.
        let info = PoolInfo { id, name: config.name.clone(), topology: Topology::default() };
        let pool = Self::of_parts(Arc::new(session), Arc::new(info), config)?;
        pool.start(config)?;
        Ok(pool)
    }

    /// Each component is built on those before it.
    fn of_parts(
        session: Arc<Session>,
        info: Arc<PoolInfo>,
        config: &RbdPoolConfig,
    ) -> Result<Self> {
        let (session, info) = (&session, &info);
        let records = &Arc::new(Records::new(session, info));
        let images = &Arc::new(Images::new(session, info));
        let intents = &Arc::new(Intents::new(session, info, records));
        let capacity = &Arc::new(RbdCapacity::new(session, info));
        let nodes = &Arc::new(Nodes::new(session, info, config.node_id.clone()));
        let fencing = &Arc::new(Fencing::new(session, images, config.node_id.clone()));
        let exports = &Arc::new(Exports::recover(info, session, images, fencing, config)?);
        let catalogue = &Arc::new(RbdCatalogue::new(session, info, records, images));
        let background = &Arc::new(Background::default());
        let flattening = &Arc::new(Flattening::new(session, info, records, background));
        let deletion =
            Deletion::new(session, images, records, catalogue, intents, flattening, background);
        let deletion = &Arc::new(deletion);
        let garbage =
            Garbage::new(session, info, images, intents, deletion, flattening, background);
        let provisioner = RbdProvisioner::new(
            session, info, images, intents, catalogue, capacity, flattening, deletion,
        );
        let serving = config.serves_node.then(|| Arc::clone(nodes));
        let takes_groups = config.takes_unrestorable_groups || can_restore_groups();
        Ok(Self {
            provisioner: provisioner.with_group_snapshots(takes_groups),
            changed_blocks: ObjectMaps::new(session, images, catalogue),
            health: RbdHealth::new(session, images, capacity),
            probe: Arc::new(ClusterProbe::new(session, info, records, images, exports, serving)),
            shared: SharedSide::new(info, images, capacity, nodes, fencing, exports),
            garbage: Arc::new(garbage),
            session: Arc::clone(session),
            info: Arc::clone(info),
            images: Arc::clone(images),
            catalogue: Arc::clone(catalogue),
            capacity: Arc::clone(capacity),
            nodes: Arc::clone(nodes),
            exports: Arc::clone(exports),
            background: Arc::clone(background),
        })
    }

    fn start(&self, config: &RbdPoolConfig) -> Result<()> {
        self.session.start_probing(&self.probe)?;
        self.capacity.report_shortage();
        if config.serves_node {
            self.nodes.ensure_registered()?;
            self.exports.take_over()?;
        }
        if config.collects_garbage {
            self.garbage.start()?;
        }
        Ok(())
    }
}

/// While there is space: later it may be needed to free some.
fn ensure_trash(session: &Session) -> Result<()> {
    let making = || format!("make the trash of the Ceph pool {}", session.ceph_pool());
    match session.ask(making, |io| io.ensure_trash()) {
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
