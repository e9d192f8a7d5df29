//! Several daemons in this process, each with a pool in memory and a port for its peers, and a router
//! before one of them, or before none.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::{ClusterMemory, Executor, Features, Mode, Routes};
use orlop_engine::request::NodeInfo;
use orlop_engine::{Engine, EngineSettings};
use orlop_host::MemoryHost;
use orlop_model::{Pool, Topology};
use orlop_pools::{MemoryPool, MemoryPoolConfig};
use orlop_router::{
    OwnCertificate, PeerGate, PeerListener, Peers, PeersConfig, Router, TlsFiles, TlsIdentity,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::watched::{CallLog, Watched};

pub(crate) const NODE_KEY: &str = "orlop.example/node";

/// Of the pool of one node, unless a test says otherwise.
pub(crate) const SIZE: u64 = 1 << 30;

/// Issues certificates for nodes.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    ca: String,
    key: String,
    directory: tempfile::TempDir,
    issued: Mutex<u32>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap().pem();
        let text = key.serialize_pem();
        let issuer = Issuer::new(params, key);
        let directory = tempfile::tempdir().unwrap();
        Self { issuer, ca, key: text, directory, issued: Mutex::default() }
    }

    /// For daemons that sign their certificates themselves.
    pub(crate) fn signing_files(&self) -> TlsFiles {
        let path = |name| self.directory.path().join(name);
        std::fs::write(path("ca.crt"), &self.ca).unwrap();
        std::fs::write(path("ca.key"), &self.key).unwrap();
        let own = OwnCertificate::SignedHere { ca_key: path("ca.key") };
        TlsFiles { own, ca: path("ca.crt") }
    }

    pub(crate) fn files(&self, node: &str) -> TlsFiles {
        let mut issued = self.issued.lock().unwrap();
        *issued += 1;
        let directory = self.directory.path().join(format!("{node}.{issued}"));
        std::fs::create_dir(&directory).unwrap();
        self.write(node, &directory)
    }

    pub(crate) fn write(&self, node: &str, directory: &Path) -> TlsFiles {
        self.write_valid(node, directory, 1975..4096)
    }

    /// Valid in these years.
    pub(crate) fn write_valid(&self, node: &str, directory: &Path, years: Range<i32>) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![node.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let own = OwnCertificate::Files {
            certificate: write("tls.crt", &certificate.pem()),
            key: write("tls.key", &key.serialize_pem()),
        };
        TlsFiles { own, ca: write("ca.crt", &self.ca) }
    }
}

/// One daemon.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) pool: Arc<MemoryPool>,
    pub(crate) routes: Routes,
    pub(crate) address: SocketAddr,
    pub(crate) memory: ClusterMemory,
    /// What its peers call.
    pub(crate) calls: CallLog,
    /// One for each node, so that all that it does ends with it.
    runtime: Option<Runtime>,
}

pub(crate) fn topology_of(node: &str) -> Topology {
    Topology::parse([(NODE_KEY.to_owned(), node.to_owned())]).unwrap()
}

/// Without pools, it is still opening them.
fn routes(
    name: &str,
    pools: Option<Vec<Arc<MemoryPool>>>,
    memory: &ClusterMemory,
) -> (Routes, Arc<Executor>) {
    let topology = topology_of(name);
    let settings = EngineSettings {
        node_id: name.parse().unwrap(),
        topology: topology.clone(),
        attach: false,
        max_volumes: 8,
        default_capacity: 1 << 30,
        lock_timeout: Duration::from_secs(5),
    };
    let executor = Arc::new(Executor::starting());
    if let Some(pools) = pools {
        let pools = pools.into_iter().map(|pool| pool as Arc<dyn Pool>).collect();
        let engine = Engine::new(pools, Arc::new(MemoryHost::default()), settings).unwrap();
        executor.ready(Arc::new(engine));
    }
    let features = Arc::new(Features {
        driver_name: "orlop.example".to_owned(),
        version: "1.2.3".to_owned(),
        node: NodeInfo { id: name.parse().unwrap(), topology, max_volumes: 8 },
        attach: false,
        limits: true,
        group_snapshots: true,
        mode: Mode::All,
    });
    let routes = Routes::csi(&executor, &features).with_peer(&executor, &features, memory);
    (routes, executor)
}

impl Node {
    pub(crate) async fn start(name: &str, authority: &Authority, capacity_bytes: u64) -> Self {
        let config =
            MemoryPoolConfig { topology: topology_of(name), capacity_bytes, ..Default::default() };
        let pool = Arc::new(MemoryPool::new(config));
        Self::serve(name, authority.files(name), pool, "127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn serve(
        name: &str,
        files: TlsFiles,
        pool: Arc<MemoryPool>,
        address: SocketAddr,
    ) -> Self {
        Self::serve_at(name, name, files, pool, address, true).await
    }

    /// With a certificate of another node than it says that it is.
    pub(crate) async fn serve_as(
        name: &str,
        certified: &str,
        files: TlsFiles,
        pool: Arc<MemoryPool>,
    ) -> Self {
        Self::serve_at(name, certified, files, pool, "127.0.0.1:0".parse().unwrap(), true).await
    }

    /// It does not know its pools yet.
    pub(crate) async fn opening(name: &str, files: TlsFiles, address: SocketAddr) -> Self {
        let pool = Arc::new(MemoryPool::new(MemoryPoolConfig::default()));
        Self::serve_at(name, name, files, pool, address, false).await
    }

    async fn serve_at(
        name: &str,
        certified: &str,
        files: TlsFiles,
        pool: Arc<MemoryPool>,
        address: SocketAddr,
        is_open: bool,
    ) -> Self {
        let memory = ClusterMemory::default();
        let pools = is_open.then(|| vec![Arc::clone(&pool)]);
        let (routes, executor) = routes(name, pools, &memory);
        let identity = Arc::new(TlsIdentity::load(files, certified).unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let calls = CallLog::default();
        let service = Watched::before(PeerGate::before(routes.for_peers()), calls.clone());
        let (listening, bound) = oneshot::channel();
        runtime.spawn(async move {
            let listener = PeerListener::bind(address, identity).await.unwrap();
            listening.send(listener.address()).unwrap();
            orlop_csi::serve_peers(listener, executor, service, std::future::pending())
                .await
                .unwrap();
        });
        let address = bound.await.unwrap();
        let (name, runtime) = (name.to_owned(), Some(runtime));
        Self { name, pool, routes, address, memory, calls, runtime }
    }

    /// Answers nothing until the guard is dropped, and keeps its connections.
    pub(crate) fn hang(&self) -> std::sync::mpsc::Sender<()> {
        let (guard, released) = std::sync::mpsc::channel::<()>();
        let (hanging, begun) = std::sync::mpsc::channel();
        self.runtime.as_ref().unwrap().spawn(async move {
            hanging.send(()).unwrap();
            let _ = released.recv();
        });
        begun.recv().unwrap();
        guard
    }

    /// At once, with all its connections.
    pub(crate) fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A runtime must not be waited for within another one.
            let stopping = move || runtime.shutdown_timeout(Duration::from_secs(10));
            std::thread::spawn(stopping).join().unwrap();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Daemons of the nodes a and b.
pub(crate) async fn two_nodes() -> (Authority, Node, Node) {
    let authority = Authority::new();
    let a = Node::start("a", &authority, SIZE).await;
    let b = Node::start("b", &authority, SIZE).await;
    (authority, a, b)
}

/// Stops the node, and says that it is gone for good, as `orlop node forget` does.
pub(crate) async fn stop_and_forget(node: &mut Node, peers: &Peers) {
    node.stop();
    peers.poll().await;
    peers.forget(&node.name, [node.pool.id().clone()].into()).await;
    peers.poll().await;
}

/// A router that serves no pool itself.
pub(crate) async fn router_before(nodes: &[&Node], authority: &Authority) -> (Router, Arc<Peers>) {
    let addresses = nodes.iter().map(|node| node.address.to_string()).collect();
    router_at(addresses, "router", authority.files("router")).await
}

pub(crate) async fn router_at(
    addresses: Vec<String>,
    name: &str,
    files: TlsFiles,
) -> (Router, Arc<Peers>) {
    router_called(name, name, addresses, files).await
}

/// With a certificate of another node than it says that it is.
pub(crate) async fn router_called(
    name: &str,
    certified: &str,
    addresses: Vec<String>,
    files: TlsFiles,
) -> (Router, Arc<Peers>) {
    let config =
        PeersConfig { node: name.to_owned(), addresses, forgotten: None, is_observer: false };
    router_with(config, certified, files).await
}

/// With a run directory, as it has after a restart.
pub(crate) async fn router_that_remembers(
    nodes: &[&Node],
    authority: &Authority,
    run: &Path,
) -> (Router, Arc<Peers>) {
    let config = PeersConfig {
        node: "router".to_owned(),
        addresses: nodes.iter().map(|node| node.address.to_string()).collect(),
        forgotten: Some(run.join("forgotten")),
        is_observer: false,
    };
    router_with(config, "router", authority.files("router")).await
}

async fn router_with(
    config: PeersConfig,
    certified: &str,
    files: TlsFiles,
) -> (Router, Arc<Peers>) {
    let identity = Arc::new(TlsIdentity::load(files, certified).unwrap());
    let memory = ClusterMemory::default();
    let (routes, _) = routes(&config.node, Some(Vec::new()), &memory);
    let peers = Arc::new(Peers::new(config, routes.clone(), identity, memory).unwrap());
    peers.poll().await;
    (Router::new(routes, Arc::clone(&peers), false), peers)
}

pub(crate) fn controller(router: &Router) -> ControllerClient<Router> {
    ControllerClient::new(router.clone())
}
