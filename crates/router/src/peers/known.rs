//! What this daemon knows about its peers, from polling them at intervals.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use orlop_csi::Resource;
use orlop_csi::proto::peer;
use tonic::codegen::http::HeaderValue;

use super::connection::{Answer, Channels, PeerAnswer};
use super::description::{Description, PeerReports};
use crate::members::Member;
use crate::target::{PeerTarget, Target};

const ONLY_REPORTED: &str = "only other nodes have reached it";

#[derive(Default)]
pub(super) struct KnownPeers {
    members: BTreeMap<String, KnownPeer>,
    /// Daemons that peers report and that have not answered here.
    reported: BTreeMap<String, Description>,
    /// Nodes that a peer can reach.
    reached: BTreeSet<String>,
    /// Addresses without a usable answer, and why: none came, or another daemon has the same node id.
    silent: BTreeMap<SocketAddr, String>,
    /// Node ids that several daemons have.
    ambiguous: BTreeSet<String>,
    /// Where forgotten daemons were, until one answers there: that none does is expected.
    abandoned: BTreeMap<SocketAddr, String>,
    /// Names that could not be resolved, and why.
    unresolved: BTreeMap<String, String>,
    has_polled: bool,
}

struct KnownPeer {
    address: SocketAddr,
    channels: Channels,
    description: Description,
    unreachable: Option<String>,
}

impl KnownPeers {
    pub(super) fn with_abandoned(abandoned: BTreeMap<SocketAddr, String>) -> Self {
        Self { abandoned, ..Self::default() }
    }

    pub(super) fn abandoned(&self) -> &BTreeMap<SocketAddr, String> {
        &self.abandoned
    }

    /// The daemons that answer, and what they serve.
    pub(super) fn present(&self, this: Option<&Description>) -> BTreeSet<Resource> {
        let peers = self.members.values().filter(|peer| peer.unreachable.is_none());
        let described = peers.map(|peer| &peer.description).chain(this);
        let resources = described.flat_map(|description| {
            let pools = description.pools.iter().map(|pool| Resource::Pool(pool.id.clone()));
            pools.chain([Resource::Node(description.node.clone())])
        });
        resources.collect()
    }

    pub(super) fn has_polled(&self) -> bool {
        self.has_polled
    }

    pub(super) fn set_unresolved(&mut self, unresolved: BTreeMap<String, String>) {
        for (name, why) in &unresolved {
            if !self.unresolved.contains_key(name) {
                tracing::warn!(name, why, "cannot resolve the name of peers");
            }
        }
        self.unresolved = unresolved;
        self.has_polled = true;
    }

    pub(super) fn answering(&self) -> impl Iterator<Item = &str> {
        let answers = self.members.iter().filter(|(_, peer)| peer.unreachable.is_none());
        answers.map(|(node, _)| node.as_str())
    }

    pub(super) fn is_reached(&self, node: &str) -> bool {
        self.reached.contains(node) || self.answering().any(|other| other == node)
    }

    pub(super) fn channels_to(&self, address: &SocketAddr) -> Option<Channels> {
        let peer = self.members.values().find(|peer| peer.address == *address);
        peer.filter(|peer| peer.unreachable.is_none()).map(|peer| peer.channels.clone())
    }

    pub(super) fn members(&self, caller: &HeaderValue) -> impl Iterator<Item = Member> {
        let peers = self.members.values().map(|peer| {
            let target = PeerTarget {
                node: peer.description.node.clone(),
                channel: peer.channels.calls.clone(),
                caller: caller.clone(),
            };
            peer.description.member(Target::Peer(target), peer.unreachable.clone())
        });
        let reported = self.reported.values().map(|description| {
            let target = Target::Nowhere { node: description.node.clone() };
            description.member(target, Some(ONLY_REPORTED.to_owned()))
        });
        peers.chain(reported)
    }

    /// `this` is this daemon itself.
    pub(super) fn add_answers(
        &mut self,
        answers: Vec<(SocketAddr, Answer)>,
        addresses: &BTreeSet<SocketAddr>,
        this: Option<&Description>,
    ) {
        let before = std::mem::take(&mut self.silent);
        self.ambiguous.clear();
        let mut instances: BTreeMap<String, String> =
            this.map(|this| (this.node.clone(), this.instance.clone())).into_iter().collect();
        let mut taken = BTreeMap::new();
        for (address, answer) in answers {
            match answer {
                Ok(seen) => {
                    self.abandoned.remove(&address);
                    let node = seen.description.node.clone();
                    let instance = seen.description.instance.clone();
                    match instances.get(&node) {
                        None => {
                            instances.insert(node.clone(), instance);
                            taken.insert(address, node);
                            self.answered(address, seen);
                        }
                        // Under another address, or this daemon itself.
                        Some(known) if *known == instance => {}
                        Some(_) => self.conflict(address, &node),
                    }
                }
                Err(why) => self.failed(address, why),
            }
        }
        for (node, peer) in &mut self.members {
            let other = taken.get(&peer.address).filter(|other| *other != node);
            match other {
                Some(other) => {
                    note_unreachable(
                        node,
                        peer,
                        format!("at its address there is node {other} now"),
                    );
                }
                None if !addresses.contains(&peer.address) => {
                    note_unreachable(
                        node,
                        peer,
                        "its address is no longer among the peers".to_owned(),
                    );
                }
                None => {}
            }
        }
        for (address, why) in &self.silent {
            if before.get(address).is_none_or(|before| !is_same_reason(before, why)) {
                tracing::warn!(%address, why, "a peer has not answered yet");
            }
        }
    }

    /// Two daemons with one node id: calls cannot be routed by it, so the second address counts as silent.
    fn conflict(&mut self, address: SocketAddr, node: &str) {
        let why = format!("another daemon has the node id {node} too; give each daemon its own");
        self.silent.insert(address, why);
        self.ambiguous.insert(node.to_owned());
    }

    pub(super) fn ambiguous(&self) -> &BTreeSet<String> {
        &self.ambiguous
    }

    fn answered(&mut self, address: SocketAddr, seen: PeerAnswer) {
        let PeerAnswer { mut description, channels, .. } = seen;
        let node = description.node.clone();
        match self.members.get(&node) {
            Some(before) => {
                if before.unreachable.is_some() || before.address != address {
                    tracing::info!(node, %address, "a peer is reachable again");
                }
                description.adopt_pools(&before.description);
            }
            None => {
                tracing::info!(node, %address, "found a peer");
                if let Some(before) = self.reported.get(&node) {
                    description.adopt_pools(before);
                }
            }
        }
        self.members.insert(node, KnownPeer { address, channels, description, unreachable: None });
    }

    fn failed(&mut self, address: SocketAddr, why: String) {
        let mut is_known = false;
        for (node, peer) in self.members.iter_mut().filter(|(_, peer)| peer.address == address) {
            note_unreachable(node, peer, why.clone());
            is_known = true;
        }
        if !is_known && !self.abandoned.contains_key(&address) {
            self.silent.insert(address, why);
        }
    }

    pub(super) fn silent(&self) -> Vec<(String, String)> {
        let silent = self.silent.iter().map(|(address, why)| (address.to_string(), why.clone()));
        silent.chain(self.unresolved.clone()).collect()
    }

    /// Takes over what peers report of daemons that have not answered here.
    pub(super) fn add_reports(&mut self, reports: PeerReports, this: Option<&Description>) {
        for (node, mut description) in reports.members {
            if let Some(before) = self.reported.get(&node) {
                description.adopt_pools(before);
            }
            self.reported.insert(node, description);
        }
        let is_this = |node: &String| this.is_some_and(|this| this.node == *node);
        self.reported.retain(|node, _| !is_this(node) && !self.members.contains_key(node));
        self.reached = reports.reached;
    }

    /// Removes unreachable daemons that were forgotten.
    pub(super) fn forget(&mut self, is_forgotten: impl Fn(&str) -> bool) {
        let gone = |node: &str, peer: &KnownPeer| peer.unreachable.is_some() && is_forgotten(node);
        let left = self.members.iter().filter(|(node, peer)| gone(node, peer));
        self.abandoned.extend(left.map(|(node, peer)| (peer.address, node.clone())));
        self.abandoned.retain(|_, node| is_forgotten(node));
        self.members.retain(|node, peer| !gone(node, peer));
        self.reported.retain(|node, _| !is_forgotten(node));
        let abandoned = &self.abandoned;
        self.silent.retain(|address, _| !abandoned.contains_key(address));
    }

    pub(super) fn described(&self) -> Vec<peer::Member> {
        let answered = self
            .members
            .values()
            .map(|peer| peer.description.to_proto(peer.unreachable.as_deref().unwrap_or_default()));
        let others = self.reported.values().map(|other| other.to_proto(ONLY_REPORTED));
        answered.chain(others).collect()
    }
}

/// That of an expired certificate has the seconds since then.
fn is_same_reason(one: &str, other: &str) -> bool {
    let words = |text: &str| text.replace(|letter: char| letter.is_ascii_digit(), "");
    words(one) == words(other)
}

fn note_unreachable(node: &str, peer: &mut KnownPeer, why: String) {
    if peer.unreachable.is_none() {
        tracing::warn!(node, address = %peer.address, why, "a peer is unreachable");
    }
    peer.unreachable = Some(why);
}
