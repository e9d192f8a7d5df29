//! What a daemon knows of others, and tells them: a router fills it, and the service for peers reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orlop_model::{NodeId, PoolId};

use crate::proto::peer;

/// Clocks of nodes differ; a date that is further in the future than this is invalid.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(24 * 60 * 60);

/// Is a node gone for good, with these pools?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub pools: BTreeSet<PoolId>,
    pub forgotten: bool,
    /// In milliseconds since 1970. Of two about one node, the later one holds.
    pub at: i64,
}

impl Verdict {
    pub fn now(pools: BTreeSet<PoolId>, forgotten: bool) -> Self {
        Self { pools, forgotten, at: milliseconds_until(Duration::ZERO) }
    }

    /// Holds against this one, also if its clock is ahead of ours.
    pub fn revoked(&self) -> Self {
        let now = Self::now(BTreeSet::new(), false);
        Self { at: now.at.max(self.at.saturating_add(1)), ..now }
    }

    /// `None`: what it names is no node and no pools, or its date is far ahead.
    pub fn parse(verdict: &peer::Verdict) -> Option<(String, Self)> {
        let pools = verdict.pools.iter().map(|pool| pool.parse()).collect::<Result<_, _>>().ok()?;
        let node: NodeId = verdict.node_id.parse().ok()?;
        let (forgotten, at) = (verdict.forgotten, verdict.at);
        (at <= milliseconds_until(MAX_CLOCK_SKEW))
            .then(|| (node.to_string(), Self { pools, forgotten, at }))
    }

    pub fn to_proto(&self, node: &str) -> peer::Verdict {
        peer::Verdict {
            node_id: node.to_owned(),
            pools: self.pools.iter().map(ToString::to_string).collect(),
            forgotten: self.forgotten,
            at: self.at,
        }
    }
}

/// From 1970 to so long after now.
fn milliseconds_until(ahead: Duration) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from((now + ahead).as_millis()).unwrap_or(i64::MAX)
}

#[derive(Clone, Default)]
pub struct ClusterMemory {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    members: Vec<peer::Member>,
    verdicts: BTreeMap<String, Verdict>,
}

impl ClusterMemory {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_members(&self, members: Vec<peer::Member>) {
        self.lock().members = members;
    }

    pub(crate) fn members(&self) -> Vec<peer::Member> {
        self.lock().members.clone()
    }

    pub fn verdicts(&self) -> BTreeMap<String, Verdict> {
        self.lock().verdicts.clone()
    }

    /// Nodes that are gone for good, by their pools.
    pub fn forgotten(&self) -> BTreeMap<PoolId, String> {
        let state = self.lock();
        let forgotten = state.verdicts.iter().filter(|(_, verdict)| verdict.forgotten);
        let pools = forgotten.flat_map(|(node, verdict)| {
            verdict.pools.iter().map(move |pool| (pool.clone(), node.clone()))
        });
        pools.collect()
    }

    pub fn is_forgotten(&self, node: &str) -> bool {
        self.lock().verdicts.get(node).is_some_and(|verdict| verdict.forgotten)
    }

    /// The node answers, so it is not gone.
    pub fn revoke(&self, node: &str) {
        let known = self.lock().verdicts.get(node).cloned();
        if let Some(known) = known.filter(|known| known.forgotten) {
            self.judge(node, known.revoked());
        }
    }

    /// Takes a verdict, unless a later one is known.
    pub fn judge(&self, node: &str, verdict: Verdict) {
        let mut state = self.lock();
        let known = state.verdicts.get(node);
        if known.is_some_and(|known| known.at >= verdict.at) {
            return;
        }
        match (known.is_some_and(|known| known.forgotten), verdict.forgotten) {
            (false, true) => tracing::warn!(node, "forgot a node that is gone for good"),
            (true, false) => tracing::warn!(node, "a node that was forgotten is back"),
            (true, true) | (false, false) => {}
        }
        state.verdicts.insert(node.to_owned(), verdict);
    }
}
