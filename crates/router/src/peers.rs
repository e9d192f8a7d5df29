//! Finds the peers, and finds out what they serve.

mod connection;
mod description;
mod known;
mod lookup;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use orlop_csi::proto::peer;
use orlop_csi::proto::peer::peer_client::PeerClient;
use orlop_csi::{ClusterMemory, Resource, Routes};
use orlop_model::PoolId;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tonic::codegen::http::HeaderValue;

use crate::forgotten::{self, Forgotten};
use crate::members::{Member, Members};
use crate::target::Target;
use crate::tls::TlsIdentity;
use connection::{Channels, ask};
use description::{Description, PeerReports};
use known::KnownPeers;
use lookup::Lookups;

const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// After a call has failed, before its peer is asked: many calls may fail at once.
const FAILED_CALL_DELAY: Duration = Duration::from_millis(200);
/// For a connection, and for the answer to a question that needs nothing but memory.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub struct PeersConfig {
    /// The node id of this daemon.
    pub node: String,
    /// `HOST:PORT` each. A name may stand for many, as that of a headless service does.
    pub addresses: Vec<String>,
    /// Where to keep which pools were forgotten, so that a restart does not forget that.
    pub forgotten: Option<PathBuf>,
    /// Is this no daemon, but a command beside one? Then that one counts as any other.
    pub is_observer: bool,
}

/// A daemon, and whether it could be informed.
pub type Informed = (String, Result<(), String>);

pub struct Peers {
    config: PeersConfig,
    caller: HeaderValue,
    routes: Routes,
    identity: Arc<TlsIdentity>,
    memory: ClusterMemory,
    lookups: Lookups,
    known: RwLock<KnownPeers>,
    /// What the file of forgotten nodes contains.
    written: Mutex<Forgotten>,
    /// Notified when a call finds that a peer does not answer.
    poll_now: Notify,
}

impl Peers {
    /// `routes` are the services of this daemon.
    pub fn new(
        config: PeersConfig,
        routes: Routes,
        identity: Arc<TlsIdentity>,
        memory: ClusterMemory,
    ) -> Result<Self, String> {
        let caller = HeaderValue::from_str(&config.node)
            .map_err(|_| format!("the node id {:?} cannot be sent to peers", config.node))?;
        let written = config.forgotten.as_deref().map(forgotten::read).unwrap_or_default();
        for (resource, verdict) in &written.verdicts {
            memory.judge(resource, verdict.clone());
        }
        let known = RwLock::new(KnownPeers::with_abandoned(written.addresses.clone()));
        Ok(Self {
            config,
            caller,
            routes,
            identity,
            memory,
            lookups: Lookups::default(),
            known,
            written: Mutex::new(written),
            poll_now: Notify::new(),
        })
    }

    /// For as long as it is polled.
    pub async fn watch(&self) {
        loop {
            self.poll().await;
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = self.poll_now.notified() => tokio::time::sleep(FAILED_CALL_DELAY).await,
            }
        }
    }

    /// Polls all peers again soon.
    pub(crate) fn poll_soon(&self) {
        self.poll_now.notify_one();
    }

    /// Asks all peers who they are and which pools they serve.
    pub async fn poll(&self) {
        Arc::clone(&self.identity).refresh_in_time().await;
        let (addresses, unresolved) = self.resolve().await;
        let mut asking = JoinSet::new();
        for address in &addresses {
            let (address, known) = (*address, self.channels_to(address));
            let (identity, caller) = (Arc::clone(&self.identity), self.caller.clone());
            asking.spawn(async move {
                let asked =
                    tokio::time::timeout(PEER_TIMEOUT, ask(address, known, identity, caller));
                let late = || Err(format!("no answer within {} seconds", PEER_TIMEOUT.as_secs()));
                (address, asked.await.unwrap_or_else(|_| late()))
            });
        }
        let mut answers = Vec::new();
        while let Some(answer) = asking.join_next().await {
            // A request that panicked counts as unanswered; the next poll follows soon.
            answers.extend(answer.ok());
        }
        let mut reports = PeerReports::default();
        answers.iter().flat_map(|(_, answer)| answer).for_each(|seen| reports.add(&seen.reports));
        let verdicts = std::mem::take(&mut reports.verdicts);
        let this = self.describe_this().await.filter(|_| !self.config.is_observer);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.set_unresolved(unresolved);
        known.add_answers(answers, &addresses, this.as_ref());
        known.add_reports(reports, this.as_ref());
        let present = known.present(this.as_ref());
        for (resource, verdict) in verdicts {
            // A resource that is present is not forgotten, whatever another daemon reports.
            let is_wrong = verdict.forgotten && present.contains(&resource);
            self.memory.judge(&resource, if is_wrong { verdict.revoked() } else { verdict });
        }
        present.iter().for_each(|resource| self.memory.revoke(resource));
        known.forget(|node| self.memory.is_forgotten(&Resource::Node(node.to_owned())));
        self.memory.set_members(known.described());
        let addresses = known.abandoned().clone();
        drop(known);
        self.write(Forgotten { verdicts: self.memory.verdicts(), addresses });
    }

    fn write(&self, forgotten: Forgotten) {
        let Some(path) = &self.config.forgotten else { return };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written != forgotten {
            forgotten::write(path, &forgotten);
            *written = forgotten;
        }
    }

    /// Has every peer been asked once?
    pub fn have_been_asked(&self) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).has_polled()
    }

    pub(crate) fn is_any_reachable(&self) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.answering().next().is_some()
    }

    /// This daemon itself is queried each time, because its pools come and go without a notification.
    pub(crate) async fn members(&self) -> Members {
        let this = self.describe_this().await;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let here = Target::Here(self.routes.clone());
        let this = match &this {
            Some(this) => this.member(here, None),
            None => Member {
                node: self.config.node.clone(),
                target: here,
                pools: Vec::new(),
                complete: false,
                unreachable: None,
            },
        };
        let all: Vec<_> = std::iter::once(this).chain(known.members(&self.caller)).collect();
        let mut forgotten = self.memory.forgotten_pools();
        // A node that is back, and has not yet said which pools it has, may have this one.
        forgotten.retain(|_, node| {
            let is_known = || all.iter().any(|member| member.node == *node && member.complete);
            self.memory.is_forgotten(&Resource::Node(node.clone())) || is_known()
        });
        Members { all, forgotten, silent: known.silent(), ambiguous: known.ambiguous().clone() }
    }

    /// What is known, in the words of the protocol.
    pub fn described(&self) -> Vec<peer::Member> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).described()
    }

    /// Pools that are gone for good, and the node that each was on.
    pub fn forgotten(&self) -> BTreeMap<PoolId, String> {
        self.memory.forgotten_pools()
    }

    /// Addresses at which no daemon has answered yet, and why.
    pub fn silent(&self) -> Vec<(String, String)> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).silent()
    }

    /// Can this daemon, or one that it can reach, reach that node?
    pub fn is_reached(&self, node: &str) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).is_reached(node)
    }

    /// Tells every daemon that can be reached, and returns their names.
    pub async fn forget(&self, node: &str, pools: BTreeSet<PoolId>) -> Vec<Informed> {
        self.inform(node, pools, false).await
    }

    /// As [`Self::forget`], of a node that is there without these pools.
    pub async fn forget_pools(&self, node: &str, pools: BTreeSet<PoolId>) -> Vec<Informed> {
        self.inform(node, pools, true).await
    }

    async fn inform(&self, node: &str, pools: BTreeSet<PoolId>, pools_only: bool) -> Vec<Informed> {
        let pools = pools.iter().map(ToString::to_string).collect();
        let request = peer::ForgetRequest { node_id: node.to_owned(), pools, pools_only };
        let mut informed = Vec::new();
        for member in self.members().await.reachable().skip(1) {
            let mut client = PeerClient::new(member.target.clone());
            let outcome = client.forget(request.clone()).await;
            let outcome = outcome.map(drop).map_err(|status| status.message().to_owned());
            informed.push((member.node.clone(), outcome));
        }
        informed
    }

    pub(crate) fn here(&self) -> Target {
        Target::Here(self.routes.clone())
    }

    async fn describe_this(&self) -> Option<Description> {
        let mut client = PeerClient::new(self.here());
        let described = client.describe(peer::DescribeRequest {}).await.ok()?;
        Description::parse(&described.into_inner()).ok()
    }

    async fn resolve(&self) -> (BTreeSet<SocketAddr>, BTreeMap<String, String>) {
        let mut resolving = JoinSet::new();
        for name in self.config.addresses.clone() {
            let lookups = self.lookups.clone();
            resolving.spawn(async move {
                let found = lookups.resolve(&name).await;
                (name, found)
            });
        }
        let mut found = BTreeSet::new();
        let mut unresolved = BTreeMap::new();
        for (name, resolved) in resolving.join_all().await {
            found.extend(resolved.addresses);
            if let Some(why) = resolved.problem {
                unresolved.insert(name, why);
            }
        }
        (found, unresolved)
    }

    fn channels_to(&self, address: &SocketAddr) -> Option<Channels> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).channels_to(address)
    }
}
