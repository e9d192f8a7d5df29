//! The engine itself, the look-ups that every operation starts with, and the rollback of one that failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orlop_model::id::shown;
use orlop_model::{
    DurationHistogram, Error, Host, NodeId, Pool, PoolId, Result, SnapshotId, SnapshotRecord,
    Topology, VolumeId, VolumeRecord,
};
use tracing::Span;
use tracing::field::display;

use crate::figures::RunningQueries;
use crate::locks::{Locks, WaiterLimit};
use crate::lost_writes::WritebackChecks;
use crate::node_volume_count::{NodeVolumeCount, SharedVolumeCount};
use crate::pool_breaker::PoolBreaker;
use crate::request::NodeInfo;
use crate::sharing::sharing;
use crate::stage_failures::StageFailures;
use crate::staged_watch::StagedWatch;
use crate::volume_group::Membership;

pub(crate) type PoolRef = Arc<dyn Pool>;

#[derive(Debug, Clone)]
pub struct EngineSettings {
    pub node_id: NodeId,
    /// Where this node is.
    pub topology: Topology,
    /// Are volumes published to nodes by the controller before nodes use them?
    pub attach: bool,
    pub max_volumes: u32,
    /// The size of a volume whose creator left it open.
    pub default_capacity: u64,
    /// How long a call waits for another one on the same object before it is refused.
    pub lock_timeout: Duration,
}

/// A pool that is configured and not in service, as what it is on cannot be reached.
#[derive(Debug, Clone)]
pub struct AbsentPool {
    pub name: String,
    pub why: Error,
    /// Calls that touch its disk may wait in the kernel without end.
    pub is_hung: bool,
}

/// Which pools there are does not change during a call: a pool that comes later makes another
/// engine, with the same locks and the same memory ([`Engine::with_pool`]).
#[derive(Clone)]
pub struct Engine {
    pools: BTreeMap<PoolId, PoolRef>,
    breakers: BTreeMap<PoolId, Arc<PoolBreaker>>,
    absent: Vec<AbsentPool>,
    host: Arc<dyn Host>,
    settings: EngineSettings,
    locks: Locks,
    node_volumes: Arc<NodeVolumeCount>,
    shared_node_volumes: Arc<SharedVolumeCount>,
    membership: Arc<Membership>,
    stage_failures: Arc<StageFailures>,
    writeback_checks: Arc<WritebackChecks>,
    staged_watch: Arc<StagedWatch>,
    running_queries: Arc<RunningQueries>,
    freezes: Arc<DurationHistogram>,
}

impl Engine {
    /// Takes the pools over.
    pub fn new(pools: Vec<PoolRef>, host: Arc<dyn Host>, settings: EngineSettings) -> Result<Self> {
        let none = Self {
            pools: BTreeMap::new(),
            breakers: BTreeMap::new(),
            absent: Vec::new(),
            host,
            locks: Locks::new(settings.lock_timeout),
            settings,
            node_volumes: Arc::default(),
            shared_node_volumes: Arc::default(),
            membership: Arc::default(),
            stage_failures: Arc::default(),
            writeback_checks: Arc::default(),
            staged_watch: Arc::default(),
            running_queries: Arc::default(),
            freezes: Arc::default(),
        };
        pools.into_iter().try_fold(none, |engine, pool| engine.with_pool(pool))
    }

    /// With one more pool, which is absent no longer.
    pub fn with_pool(&self, pool: PoolRef) -> Result<Self> {
        if let Some(other) = self.pools.get(pool.id()) {
            // A pool directory that was copied has its original's id, and so have all volumes in it.
            return Err(Error::failed(
                format!("serve pool {}", pool.name()),
                format!(
                    "it has the same id as pool {}: one is a copy of the other; serve only one of \
                     them",
                    other.name()
                ),
            ));
        }
        self.take_over_moved(&pool)?;
        self.report_unrecorded(&pool)?;
        self.restore_limits(&pool)?;
        sharing(&pool).take_over(self)?;
        let mut with = self.clone();
        with.absent.retain(|absent| absent.name != pool.name());
        let breaker = Arc::new(PoolBreaker::of(Arc::clone(&pool)));
        with.breakers.insert(pool.id().clone(), breaker);
        with.pools.insert(pool.id().clone(), pool);
        Ok(with)
    }

    /// For a call that shares its request limit with those that wait under this one.
    #[must_use]
    pub fn with_waiter_limit(&self, waiters: &WaiterLimit) -> Self {
        Self { locks: self.locks.with_waiter_limit(waiters), ..self.clone() }
    }

    /// With a pool that is configured and cannot be used yet: for that reason, until it comes.
    #[must_use]
    pub fn with_absent(&self, absent: AbsentPool) -> Self {
        let mut with = self.clone();
        with.absent.retain(|other| other.name != absent.name);
        with.absent.push(absent);
        with
    }

    pub fn absence_of(&self, pool: &str) -> Option<&Error> {
        self.absent.iter().find(|absent| absent.name == pool).map(|absent| &absent.why)
    }

    /// Of a pool in service.
    pub fn pool_name(&self, id: &PoolId) -> Option<&str> {
        self.pools.get(id).map(|pool| pool.name())
    }

    pub fn node_info(&self) -> NodeInfo {
        NodeInfo {
            id: self.settings.node_id.clone(),
            topology: self.settings.topology.clone(),
            max_volumes: self.settings.max_volumes,
        }
    }

    pub(crate) fn pools(&self) -> &BTreeMap<PoolId, PoolRef> {
        &self.pools
    }

    pub(crate) fn breakers(&self) -> &BTreeMap<PoolId, Arc<PoolBreaker>> {
        &self.breakers
    }

    pub(crate) fn absent(&self) -> &[AbsentPool] {
        &self.absent
    }

    pub(crate) fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    pub(crate) fn settings(&self) -> &EngineSettings {
        &self.settings
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    pub(crate) fn node_volumes(&self) -> &NodeVolumeCount {
        &self.node_volumes
    }

    pub(crate) fn shared_node_volumes(&self) -> &SharedVolumeCount {
        &self.shared_node_volumes
    }

    pub(crate) fn membership(&self) -> &Membership {
        &self.membership
    }

    pub(crate) fn stage_failures(&self) -> &StageFailures {
        &self.stage_failures
    }

    pub(crate) fn writeback_checks(&self) -> &Arc<WritebackChecks> {
        &self.writeback_checks
    }

    pub(crate) fn staged_watch(&self) -> &Arc<StagedWatch> {
        &self.staged_watch
    }

    pub(crate) fn running_queries(&self) -> &Arc<RunningQueries> {
        &self.running_queries
    }

    pub(crate) fn freezes(&self) -> &DurationHistogram {
        &self.freezes
    }

    /// `None`: the pool is not served here. While a pool is absent its id is unknown, so an id
    /// that no other pool has may be of that one.
    pub(crate) fn pool(&self, id: &PoolId) -> Result<Option<&PoolRef>> {
        match self.pools.get(id) {
            Some(pool) => Ok(Some(pool)),
            None => self.check_none_absent(|_| true).map(|()| None),
        }
    }

    pub(crate) fn pool_of(&self, id: &VolumeId) -> Result<Option<&PoolRef>> {
        self.pool(id.pool())
    }

    pub(crate) fn require_pool_of(&self, id: &VolumeId) -> Result<&PoolRef> {
        let not_served = || Error::not_served(format!("volume {id}"), id.pool());
        self.pool_of(id)?.ok_or_else(not_served)
    }

    pub(crate) fn check_none_absent(&self, counts: impl Fn(&str) -> bool) -> Result<()> {
        match self.absent.iter().find(|absent| counts(&absent.name)) {
            None => Ok(()),
            Some(absent) => Err(absent.refusal()),
        }
    }

    pub(crate) fn require_volume(&self, id: &VolumeId) -> Result<(&PoolRef, VolumeRecord)> {
        let pool = self.require_pool_of(id)?;
        let record =
            pool.catalogue().volume(id)?.ok_or_else(|| Error::NoSuchVolume(id.to_string()))?;
        Ok((pool, record))
    }

    /// As [`Self::require_volume`], for the volume that the call is about.
    pub(crate) fn require_subject(&self, id: &VolumeId) -> Result<(&PoolRef, VolumeRecord)> {
        let found = self.require_volume(id)?;
        note_volume_name(&found.1);
        Ok(found)
    }

    /// An id of a pool that is not served here. Saying "deleted" would leave its data behind
    /// for good, so this is an error, unlike an id that was never issued (DV-10).
    pub(crate) fn not_served(id: &VolumeId) -> Error {
        Error::precondition(format!(
            "cannot delete volume {id}: it is on pool {}, which this daemon does not serve; \
             configure that pool, or send the call to the daemon that serves it",
            id.pool()
        ))
    }

    pub(crate) fn not_served_snapshot(id: &SnapshotId) -> Error {
        Error::precondition(format!(
            "cannot delete snapshot {id}: it is on pool {}, which this daemon does not serve; \
             configure that pool, or send the call to the daemon that serves it",
            id.pool()
        ))
    }
}

/// Puts the orchestrator's name of the volume (`pvc-...`) into the span of the call, which has a field for
/// it: operators know the volume by that name, and requests only have its id.
pub(crate) fn note_volume_name(record: &VolumeRecord) {
    Span::current().record("volume_name", display(shown(record.name.as_str())));
}

pub(crate) fn note_snapshot_name(record: &SnapshotRecord) {
    Span::current().record("snapshot_name", display(shown(record.name.as_str())));
}

/// The outcome as it is, after `undo` if it is an error. That `undo` fails, too, is logged and does
/// not hide the error that made it necessary. What stays is on record, and the repeated call, or the
/// one that takes the volume away, ends it.
pub(crate) fn rolled_back<T>(
    outcome: Result<T>,
    step: &str,
    volume: &VolumeId,
    undo: impl FnOnce() -> Result<()>,
) -> Result<T> {
    if outcome.is_err()
        && let Err(error) = undo()
    {
        tracing::warn!(%error, %volume, "cannot roll back a failed {step}");
    }
    outcome
}
