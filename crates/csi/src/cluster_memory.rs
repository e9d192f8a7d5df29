//! What a daemon knows of other daemons: a router fills it, and the service for peers passes it on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orlop_model::{NodeId, PoolId};

use crate::proto::peer;

/// Clocks of nodes differ; a date that is further in the future than this is invalid.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(24 * 60 * 60);

/// What can be gone for good. A pool and its node are judged apart: the disk may be in another machine, and
/// the machine may have another disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Node(String),
    Pool(PoolId),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Pool(pool) => write!(f, "pool {pool}"),
        }
    }
}

/// Is it gone for good?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The node, or that which the pool was on.
    pub node: String,
    pub forgotten: bool,
    /// In milliseconds since 1970. Of two about one resource, the later one holds.
    pub at: i64,
}

impl Verdict {
    pub fn now(node: &str, forgotten: bool) -> Self {
        Self { node: node.to_owned(), forgotten, at: milliseconds_until(Duration::ZERO) }
    }

    /// Holds against `known`, also if the clock of that one was ahead of ours.
    fn after(self, known: Option<&Self>) -> Self {
        let next = known.map_or(self.at, |known| known.at.saturating_add(1));
        Self { at: self.at.max(next), ..self }
    }

    /// Holds against this one.
    pub fn revoked(&self) -> Self {
        Self::now(&self.node, false).after(Some(self))
    }

    /// Of two of the same date, the one that says that it is not gone, as that loses nothing.
    fn holds_against(&self, known: &Self) -> bool {
        (self.at, !self.forgotten) > (known.at, !known.forgotten)
    }

    /// `None`: what it names is no node and no pool, or its date is far ahead.
    pub fn parse(verdict: &peer::Verdict) -> Option<(Resource, Self)> {
        let node = verdict.node_id.parse::<NodeId>().ok()?.to_string();
        let resource = match verdict.pool.as_str() {
            "" => Resource::Node(node.clone()),
            pool => Resource::Pool(pool.parse().ok()?),
        };
        let (forgotten, at) = (verdict.forgotten, verdict.at);
        (at <= milliseconds_until(MAX_CLOCK_SKEW))
            .then_some((resource, Self { node, forgotten, at }))
    }

    fn to_proto(&self, resource: &Resource) -> peer::Verdict {
        let pool = match resource {
            Resource::Node(_) => String::new(),
            Resource::Pool(pool) => pool.to_string(),
        };
        let (forgotten, at) = (self.forgotten, self.at);
        peer::Verdict { node_id: self.node.clone(), pool, forgotten, at }
    }
}

/// From 1970 to so long after now.
fn milliseconds_until(ahead: Duration) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from((now + ahead).as_millis()).unwrap_or(i64::MAX)
}

#[derive(Clone, Default)]
pub struct ClusterMemory {
    state: Arc<Mutex<ClusterState>>,
}

#[derive(Default)]
struct ClusterState {
    members: Vec<peer::Member>,
    verdicts: BTreeMap<Resource, Verdict>,
}

impl ClusterState {
    fn take(&mut self, resource: &Resource, verdict: Verdict) {
        let was_forgotten = self.verdicts.get(resource).is_some_and(|known| known.forgotten);
        match (was_forgotten, verdict.forgotten) {
            (false, true) => {
                tracing::warn!(%resource, "forgot a node or pool that is gone for good")
            }
            (true, false) => tracing::warn!(%resource, "a forgotten node or pool is back"),
            (true, true) | (false, false) => {}
        }
        self.verdicts.insert(resource.clone(), verdict);
    }
}

impl ClusterMemory {
    fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_members(&self, members: Vec<peer::Member>) {
        self.lock().members = members;
    }

    pub(crate) fn members(&self) -> Vec<peer::Member> {
        self.lock().members.clone()
    }

    pub fn verdicts(&self) -> BTreeMap<Resource, Verdict> {
        self.lock().verdicts.clone()
    }

    pub(crate) fn described_verdicts(&self) -> Vec<peer::Verdict> {
        self.lock().verdicts.iter().map(|(resource, verdict)| verdict.to_proto(resource)).collect()
    }

    /// Pools that are gone for good, and the node that each was on.
    pub fn forgotten_pools(&self) -> BTreeMap<PoolId, String> {
        let state = self.lock();
        let pool = |(resource, verdict): (&Resource, &Verdict)| match resource {
            Resource::Pool(pool) if verdict.forgotten => Some((pool.clone(), verdict.node.clone())),
            Resource::Pool(_) | Resource::Node(_) => None,
        };
        state.verdicts.iter().filter_map(pool).collect()
    }

    pub fn is_forgotten(&self, resource: &Resource) -> bool {
        self.lock().verdicts.get(resource).is_some_and(|verdict| verdict.forgotten)
    }

    /// It answers or is served, so it is not gone.
    pub fn revoke(&self, resource: &Resource) {
        let mut state = self.lock();
        let known = state.verdicts.get(resource).filter(|known| known.forgotten);
        if let Some(revoked) = known.map(Verdict::revoked) {
            state.take(resource, revoked);
        }
    }

    /// An operator says that it is gone for good, which holds against all that is known: the clock of the daemon
    /// that said otherwise may be ahead.
    pub fn forget(&self, node: &str, resource: &Resource) {
        let mut state = self.lock();
        let verdict = Verdict::now(node, true).after(state.verdicts.get(resource));
        state.take(resource, verdict);
    }

    /// Takes the verdict of another daemon, unless a later one is known.
    pub fn judge(&self, resource: &Resource, verdict: Verdict) {
        let mut state = self.lock();
        let known = state.verdicts.get(resource);
        if known.is_none_or(|known| verdict.holds_against(known)) {
            state.take(resource, verdict);
        }
    }
}
