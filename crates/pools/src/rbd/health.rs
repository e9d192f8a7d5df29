//! Whether the cluster, the pool and its volumes can be used.

use std::sync::Arc;

use orlop_model::{
    Condition, Error, Health, HealthReason, PoolInfo, Problem, Result, SnapshotId, StorageProbe,
    VolumeId,
};

use super::capacity::RbdCapacity;
use super::exports::Exports;
use super::images::Images;
use super::nodes::Nodes;
use super::pool_header;
use super::records::Records;
use super::session::{Probe, Session};
use super::side_by_side::side_by_side;

/// The least that every user may ask.
const VERSION: &str = r#"{"prefix": "version"}"#;

/// What the circuit breaker asks the cluster.
#[derive(Debug)]
pub(super) struct ClusterProbe {
    session: Arc<Session>,
    info: Arc<PoolInfo>,
    records: Arc<Records>,
    images: Arc<Images>,
    exports: Arc<Exports>,
    /// `None`: this daemon does not serve a node.
    nodes: Option<Arc<Nodes>>,
}

impl ClusterProbe {
    pub(super) fn new(
        session: &Arc<Session>,
        info: &Arc<PoolInfo>,
        records: &Arc<Records>,
        images: &Arc<Images>,
        exports: &Arc<Exports>,
        nodes: Option<Arc<Nodes>>,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            info: Arc::clone(info),
            records: Arc::clone(records),
            images: Arc::clone(images),
            exports: Arc::clone(exports),
            nodes,
        }
    }

    /// Asks the object stores, then the monitors: without either, little can be done.
    fn examine(&self) -> Result<()> {
        let checking = || format!("check pool {}", self.info.name);
        pool_header::check_is(pool_header::read(&self.session)?.as_ref(), &self.info)?;
        self.records.check(checking)?;
        self.images.check_directory_unguarded()?;
        self.session.ask_unguarded(checking, |io| io.cluster().monitor_command(VERSION)).map(drop)
    }
}

impl Probe for ClusterProbe {
    fn probe(&self) -> Result<()> {
        // Often enough, also where no call asks for a volume's condition.
        self.exports.keep_logs_short();
        self.examine()?;
        if let Some(nodes) = &self.nodes {
            nodes.keep_registered();
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct RbdHealth {
    session: Arc<Session>,
    images: Arc<Images>,
    capacity: Arc<RbdCapacity>,
}

impl RbdHealth {
    pub(super) fn new(
        session: &Arc<Session>,
        images: &Arc<Images>,
        capacity: &Arc<RbdCapacity>,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            images: Arc::clone(images),
            capacity: Arc::clone(capacity),
        }
    }

    fn condition_within(&self, id: &VolumeId, available: &Result<u64>) -> Result<Condition> {
        let known = match self.images.known(id) {
            Ok(Some(known)) => known,
            Ok(None) => return Err(Error::NoSuchVolume(id.to_string())),
            Err(error) => return Ok(Condition::of_error(&error)),
        };
        let mut condition = Condition::healthy("the image is there, with space to write");
        let looking = || format!("read the size of volume {id}");
        // An image takes many requests to open, and lists ask this of each.
        let size = self.session.ask(looking, |io| io.image_size(&known.image_id));
        match size.and_then(|size| self.images.length_problem(&known, size)) {
            Ok(problem) => condition.extend(problem),
            Err(error) => condition.extend([Problem::of(&error)]),
        }
        condition.extend(shortage(available));
        Ok(condition)
    }
}

impl Health for RbdHealth {
    /// Quick, also when the cluster does not answer.
    fn check(&self) -> Result<()> {
        self.session.health()
    }

    /// The connection to the cluster notices it itself.
    fn storage_probe(&self) -> Option<&dyn StorageProbe> {
        None
    }

    fn shortage(&self) -> Result<Option<String>> {
        // By the last answer: this is asked too often to ask the cluster each time.
        Ok(self.capacity.was_full().then(|| "the Ceph pool is full".to_owned()))
    }

    fn condition(&self, id: &VolumeId) -> Result<Condition> {
        self.condition_within(id, &self.capacity.available())
    }

    /// The free space is asked for once for all of them.
    fn conditions(&self, ids: &[VolumeId]) -> Vec<Result<Condition>> {
        let available = self.capacity.available();
        side_by_side(ids, |id| self.condition_within(id, &available))
    }

    /// Checking them would take a request to the cluster for each.
    fn abnormal_snapshots(&self) -> Result<Vec<(SnapshotId, Problem)>> {
        Ok(Vec::new())
    }

    fn problems(&self) -> Vec<Problem> {
        match self.check() {
            Ok(()) => shortage(&self.capacity.available()).into_iter().collect(),
            Err(error) => vec![Problem::of(&error)],
        }
    }
}

fn shortage(available: &Result<u64>) -> Option<Problem> {
    match available {
        Ok(0) => Some(Problem::new(HealthReason::PoolFull, "the Ceph pool is full")),
        Ok(_) => None,
        Err(error) => Some(Problem::of(error)),
    }
}
