//! What a router knows of the daemons, at one moment.

use std::collections::{BTreeMap, BTreeSet};

use orlop_csi::routing::Creation;
use orlop_model::{PoolId, Topology, TopologyRequirement};
use tonic::Status;

use crate::target::Target;

#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) node: String,
    pub(crate) target: Target,
    pub(crate) pools: Vec<MemberPool>,
    /// False while it has pools that it cannot name yet.
    pub(crate) complete: bool,
    /// Why it cannot be reached; `None`: it can be.
    pub(crate) unreachable: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberPool {
    pub(crate) id: PoolId,
    pub(crate) name: String,
    pub(crate) topology: Topology,
    /// The daemon had it before, and is not done with opening its pools. Another daemon that serves it now has it.
    pub(crate) is_remembered: bool,
}

/// The daemons, this one first, then by node id.
#[derive(Clone)]
pub(crate) struct Members {
    pub(crate) all: Vec<Member>,
    /// Pools that are gone for good, and the node that each was on.
    pub(crate) forgotten: BTreeMap<PoolId, String>,
    /// Addresses at which no daemon has answered yet, and why.
    pub(crate) silent: Vec<(String, String)>,
    /// Node ids that several daemons have.
    pub(crate) ambiguous: BTreeSet<String>,
}

impl Member {
    pub(crate) fn serves(&self, pool: &PoolId) -> bool {
        self.pool(pool).is_some()
    }

    fn pool(&self, pool: &PoolId) -> Option<&MemberPool> {
        self.pools.iter().find(|served| served.id == *pool)
    }

    pub(crate) fn refusal(&self, doing: &str) -> Status {
        let why = self.unreachable.as_deref().unwrap_or("it does not answer");
        Status::unavailable(format!(
            "cannot {doing}: node {} is unreachable: {why}; try again when it is back",
            self.node
        ))
    }

    /// Could it have a volume that was asked for in this way before? Its topology and its source are fixed, while
    /// the pool of a name may have been another one.
    pub(crate) fn may_have(&self, wanted: &Creation) -> bool {
        let mut anywhere = wanted.clone();
        anywhere.capacity.parameters.remove("pool");
        self.rank(&anywhere).is_some()
    }

    /// How well it suits a new volume; lower is better, `None` not at all.
    pub(crate) fn rank(&self, wanted: &Creation) -> Option<usize> {
        if let Some(source) = &wanted.source {
            return self.serves(source).then_some(0);
        }
        let named = wanted.capacity.parameters.get("pool");
        let suits = |pool: &&MemberPool| named.is_none_or(|name| *name == pool.name);
        let rank = |pool: &MemberPool| match &wanted.topology {
            Some(topology) if !pool.topology.is_empty() => topology.rank(&pool.topology),
            Some(_) | None => Some(0),
        };
        self.pools.iter().filter(suits).filter_map(rank).min()
    }
}

impl Members {
    pub(crate) fn reachable(&self) -> impl Iterator<Item = &Member> {
        self.all.iter().filter(|member| member.unreachable.is_none())
    }

    /// Was it forgotten, and has not come back?
    pub(crate) fn is_gone(&self, pool: &PoolId) -> bool {
        self.forgotten.contains_key(pool) && !self.serves(pool)
    }

    pub(crate) fn serves(&self, pool: &PoolId) -> bool {
        self.all.iter().any(|member| member.serves(pool))
    }

    /// The nodes that suit a new volume best; free space decides between them.
    pub(crate) fn best_for(&self, wanted: &Creation) -> BTreeSet<String> {
        let ranked = || self.all.iter().filter_map(|it| Some((it.rank(wanted)?, &it.node)));
        let best = ranked().map(|(rank, _)| rank).min();
        ranked().filter(|(rank, _)| Some(*rank) == best).map(|(_, node)| node.clone()).collect()
    }

    /// Is every place that the requirement allows a single node, all of whose pools are known? Then a daemon that
    /// has not answered is at none of them. A zone may have more nodes than have answered, and of a node id that two
    /// daemons have, the pools of one are known.
    pub(crate) fn are_all_nodes_of(&self, topology: &TopologyRequirement) -> bool {
        let is_known = |member: &&Member| member.complete && !self.ambiguous.contains(&member.node);
        let is_known_node = |place: &Topology| {
            self.all.iter().filter(is_known).any(|member| place.names_node(&member.node))
        };
        let places = topology.requisite();
        !places.is_empty() && places.iter().all(is_known_node)
    }

    /// Unreachable daemons whose pools no other daemon serves.
    pub(crate) fn unreachable(&self) -> impl Iterator<Item = &Member> {
        let is_served = |pool: &MemberPool| self.reachable().any(|member| member.serves(&pool.id));
        let is_missing =
            move |member: &&Member| !member.complete || !member.pools.iter().all(is_served);
        self.all.iter().filter(|member| member.unreachable.is_some()).filter(is_missing)
    }

    /// The daemon that serves a pool: this one before others, as several may serve one that they share.
    pub(crate) fn owner(&self, pool: &PoolId) -> Result<Option<&Member>, Status> {
        if let Some(owner) = self.present_owner(pool)? {
            return Ok(Some(owner));
        }
        match self.all.iter().find(|member| member.unreachable.is_some() && member.serves(pool)) {
            Some(member) => Err(member.refusal(&format!("reach pool {pool}"))),
            None => self.check_all_known(&format!("find pool {pool}")).map(|()| None),
        }
    }

    /// Among the daemons that answer.
    fn present_owner(&self, pool: &PoolId) -> Result<Option<&Member>, Status> {
        let (mut owner, mut former) = (None, None);
        for member in self.reachable() {
            match (member.pool(pool), owner) {
                (None, _) => {}
                (Some(served), _) if served.is_remembered => former = former.or(Some(member)),
                (Some(_), None) => owner = Some(member),
                (Some(_), Some(other)) => check_shared(pool, other, member)?,
            }
        }
        Ok(owner.or(former))
    }

    /// A pool of this node may be a copy of one that another daemon serves: nothing is created there, because it
    /// would be lost with the copy.
    pub(crate) fn check_no_copies(&self, node: &str) -> Result<(), Status> {
        let mut pools = self.reachable().filter(|it| it.node == node).flat_map(|it| &it.pools);
        pools.try_for_each(|pool| self.present_owner(&pool.id).map(drop))
    }

    /// Could a daemon that has not said so have something? Then "there is none" would be wrong.
    pub(crate) fn check_all_known(&self, doing: &str) -> Result<(), Status> {
        if let Some((address, why)) = self.silent.first() {
            return Err(Status::unavailable(format!(
                "cannot {doing}: the peer at {address} has not answered yet: {why}; try again when \
                 it is there, or take it out of the list of peers"
            )));
        }
        match self.all.iter().find(|member| !member.complete) {
            None => Ok(()),
            Some(member) if member.unreachable.is_some() => Err(member.refusal(doing)),
            Some(member) => Err(Status::unavailable(format!(
                "cannot {doing}: node {} is still opening its pools, or one of them is absent; try \
                 again later",
                member.node
            ))),
        }
    }

    /// For what is about everything that exists.
    pub(crate) fn require_all(&self, doing: &str) -> Result<(), Status> {
        self.check_all_known(doing)?;
        match self.unreachable().next() {
            None => Ok(()),
            Some(member) => Err(member.refusal(doing)),
        }
    }
}

/// A pool that several nodes reach has no topology; one that is bound to a topology and is on two nodes was copied.
fn check_shared(pool: &PoolId, one: &Member, other: &Member) -> Result<(), Status> {
    let is_bound =
        |member: &Member| member.pool(pool).is_some_and(|served| !served.topology.is_empty());
    if !is_bound(one) && !is_bound(other) {
        return Ok(());
    }
    Err(Status::failed_precondition(format!(
        "cannot use pool {pool}: node {} and node {} both serve it, so one of them has a copy; stop the \
         daemon of the copy",
        one.node, other.node
    )))
}
