//! This daemon among its peers: it answers their calls, and forwards calls that are for them.

use std::future::Future;
use std::sync::Arc;

use orlop_csi::proto::peer;
use orlop_csi::{ClusterMemory, Executor, Routes, ServeError};
use orlop_router::{
    OwnCertificate, PeerGate, PeerListener, Peers, PeersConfig, Router, TlsIdentity,
};
use tokio::task::JoinHandle;

use crate::config::{Config, ConfigError, PeerConfig};
use crate::serve::Failure;

/// What this daemon knows about its peers, without a call to them.
#[derive(Clone)]
pub(crate) struct PeerStatus {
    /// `None`: peers call this daemon, and it calls none.
    peers: Option<Arc<Peers>>,
    identity: Arc<TlsIdentity>,
}

impl PeerStatus {
    /// Each node that is known, and whether its daemon answers.
    pub(crate) fn answering(&self) -> Vec<(String, bool)> {
        self.members().into_iter().map(|member| (member.node_id, member.away.is_empty())).collect()
    }

    /// Each node that is known, with its pools, and why it does not answer if it does not.
    pub(crate) fn members(&self) -> Vec<peer::Member> {
        self.peers.as_ref().map(|peers| peers.described()).unwrap_or_default()
    }

    /// Addresses that have not answered yet, and why.
    pub(crate) fn silent_addresses(&self) -> Vec<(String, String)> {
        self.peers.as_ref().map(|peers| peers.silent()).unwrap_or_default()
    }

    /// How many addresses have not answered yet.
    pub(crate) fn silent(&self) -> usize {
        self.peers.as_ref().map_or(0, |peers| peers.silent().len())
    }

    pub(crate) fn certificate_expiry(&self) -> Option<u64> {
        self.identity.expiry()
    }
}

pub(crate) struct Cluster {
    peers: Option<Arc<Peers>>,
    identity: Arc<TlsIdentity>,
    has_pools: bool,
    watching: Option<JoinHandle<()>>,
    answering: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Cluster {
    /// `routes` are all services of this daemon, with those for peers.
    pub(crate) async fn join(
        config: &PeerConfig,
        of_daemon: &Config,
        (routes, executor, memory): (Routes, Arc<Executor>, ClusterMemory),
        until: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, Failure> {
        let node = of_daemon.node_id.to_string();
        let loaded = load(config, of_daemon).map_err(|error| mistake(of_daemon, error))?;
        let identity = Arc::new(loaded);
        let mut cluster = Self {
            peers: None,
            identity: Arc::clone(&identity),
            has_pools: !of_daemon.is_router,
            watching: None,
            answering: None,
        };
        if let Some(address) = config.listen {
            let bound = PeerListener::bind(address, Arc::clone(&identity)).await;
            let listener = bound.map_err(|error| misplaced(of_daemon, address, &error))?;
            tracing::info!(address = %listener.address(), "listening for peers");
            let service = PeerGate::before(routes.for_peers());
            let serving = orlop_csi::serve_peers(listener, executor, service, until);
            cluster.answering = Some(tokio::spawn(serving));
        }
        if !config.addresses.is_empty() {
            let addresses = config.addresses.clone();
            let run_dir = of_daemon.run_dir.join(&of_daemon.driver_name);
            let forgotten = Some(run_dir.join("forgotten-nodes"));
            let settings = PeersConfig { node, addresses, forgotten, is_observer: false };
            let peers = Peers::new(settings, routes, identity, memory);
            let wrong = |why| ConfigError::new("ORLOP_NODE_ID", why);
            let peers = Arc::new(peers.map_err(|why| mistake(of_daemon, wrong(why)))?);
            let watched = Arc::clone(&peers);
            cluster.watching = Some(tokio::spawn(async move { watched.watch().await }));
            cluster.peers = Some(peers);
        } else {
            cluster.watching = Some(tokio::spawn(identity.watch()));
        }
        Ok(cluster)
    }

    pub(crate) fn status(&self) -> PeerStatus {
        PeerStatus { peers: self.peers.clone(), identity: Arc::clone(&self.identity) }
    }

    /// Before the services of a socket; `None`: all calls are answered here.
    pub(crate) fn router(&self, routes: Routes) -> Option<Router> {
        self.peers.as_ref().map(|peers| Router::new(routes, Arc::clone(peers), self.has_pools))
    }

    /// To be called when the daemon stops; returns when the calls of peers are answered.
    pub(crate) async fn leave(self) -> Result<(), Failure> {
        if let Some(watching) = self.watching {
            watching.abort();
        }
        if let Some(answering) = self.answering {
            answering.await.map_err(Failure::of)?.map_err(Failure::of)?;
        }
        Ok(())
    }
}

/// The certificates, also for a check that starts nothing.
pub(crate) fn load(config: &PeerConfig, of_daemon: &Config) -> Result<TlsIdentity, ConfigError> {
    let node = of_daemon.node_id.to_string();
    let setting = match config.files.own {
        OwnCertificate::Files { .. } => "ORLOP_PEER_CERTIFICATE",
        OwnCertificate::SignedHere { .. } => "ORLOP_PEER_CA_KEY",
    };
    TlsIdentity::load(config.files.clone(), &node)
        .map_err(|error| ConfigError::new(setting, error.to_string()))
}

fn mistake(config: &Config, error: ConfigError) -> Failure {
    Failure::misconfigured(config.origin.locate(error).into())
}

fn misplaced(config: &Config, address: std::net::SocketAddr, error: &std::io::Error) -> Failure {
    let problem = format!("cannot listen at {address}: {error}");
    mistake(config, ConfigError::new("ORLOP_PEER_LISTEN", problem))
}
