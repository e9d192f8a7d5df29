//! What a daemon says of itself and of others.

use std::collections::{BTreeMap, BTreeSet};

use orlop_csi::proto::peer;
use orlop_csi::{Resource, Verdict};
use orlop_model::{NodeId, Topology};

use crate::members::{Member, MemberPool};
use crate::target::Target;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Description {
    pub(super) node: String,
    pub(super) pools: Vec<MemberPool>,
    pub(super) complete: bool,
    /// Drawn when the daemon started.
    pub(super) instance: String,
}

impl Description {
    pub(super) fn parse(described: &peer::DescribeResponse) -> Result<Self, String> {
        let pools = parse_pools(&described.pools)?;
        let node: NodeId = described
            .node_id
            .parse()
            .map_err(|_| format!("it gives {:?} as its node id", described.node_id))?;
        Ok(Self {
            node: node.to_string(),
            pools,
            complete: described.complete,
            instance: described.instance.clone(),
        })
    }

    /// While a daemon does not know all its pools, it has those that it had before.
    pub(super) fn adopt_pools(&mut self, before: &Self) {
        if self.complete {
            return;
        }
        let known = |pool: &&MemberPool| !self.pools.iter().any(|own| own.id == pool.id);
        let remembered = |pool: &MemberPool| MemberPool { is_remembered: true, ..pool.clone() };
        let missing: Vec<MemberPool> = before.pools.iter().filter(known).map(remembered).collect();
        self.pools.extend(missing);
    }

    pub(super) fn to_proto(&self, unreachable: &str) -> peer::Member {
        let pool = |pool: &MemberPool| peer::Pool {
            id: pool.id.to_string(),
            name: pool.name.clone(),
            segments: pool.topology.clone().into(),
        };
        peer::Member {
            node_id: self.node.clone(),
            pools: self.pools.iter().map(pool).collect(),
            away: unreachable.to_owned(),
            incomplete: !self.complete,
        }
    }

    pub(super) fn member(&self, target: Target, unreachable: Option<String>) -> Member {
        Member {
            node: self.node.clone(),
            target,
            pools: self.pools.clone(),
            complete: self.complete,
            unreachable,
        }
    }
}

fn parse_pools(pools: &[peer::Pool]) -> Result<Vec<MemberPool>, String> {
    let pool = |pool: &peer::Pool| {
        Ok(MemberPool {
            id: pool.id.parse().map_err(|_| format!("it names a pool {:?}", pool.id))?,
            name: pool.name.clone(),
            topology: Topology::parse(pool.segments.clone())?,
            is_remembered: false,
        })
    };
    pools.iter().map(pool).collect()
}

/// What peers report of other daemons.
#[derive(Default)]
pub(super) struct PeerReports {
    pub(super) members: BTreeMap<String, Description>,
    /// Nodes that one of them can reach.
    pub(super) reached: BTreeSet<String>,
    pub(super) verdicts: Vec<(Resource, Verdict)>,
}

impl PeerReports {
    pub(super) fn parse(described: &peer::DescribeResponse) -> Self {
        let mut reports = Self::default();
        for member in &described.members {
            // An entry that this version cannot parse is ignored.
            let (Ok(pools), Ok(node)) =
                (parse_pools(&member.pools), member.node_id.parse::<NodeId>())
            else {
                continue;
            };
            let node = node.to_string();
            if member.away.is_empty() {
                reports.reached.insert(node.clone());
            }
            let (complete, instance) = (!member.incomplete, String::new());
            reports.members.insert(node.clone(), Description { node, pools, complete, instance });
        }
        reports.verdicts = described.verdicts.iter().filter_map(Verdict::parse).collect();
        reports
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (node, description) in &other.members {
            let mut description = description.clone();
            if let Some(before) = self.members.get(node) {
                description.complete |= before.complete;
                description.pools.extend(before.pools.clone());
                description.pools.sort_by(|one, other| one.id.cmp(&other.id));
                description.pools.dedup_by(|one, other| one.id == other.id);
            }
            self.members.insert(node.clone(), description);
        }
        self.reached.extend(other.reached.clone());
        self.verdicts.extend(other.verdicts.clone());
    }
}
