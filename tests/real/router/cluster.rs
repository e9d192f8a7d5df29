//! Two nodes with a pool each, and a router, each on another address below 127.0.0.0/8.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_tests::*;

use crate::daemon::metrics::with_metrics;

const PORT: u16 = 7420;
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct Cluster {
    pub(crate) router: Daemon,
    pub(crate) nodes: Vec<Node>,
    /// Where the router has its metrics, and its page.
    pub(crate) metrics: PathBuf,
}

pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) daemon: Daemon,
    _pool: TestPool,
}

impl Cluster {
    pub(crate) async fn start(fs: PoolFs) -> Self {
        Self::start_with(fs, |launch| launch).await
    }

    /// With further settings of each daemon.
    pub(crate) async fn start_with(fs: PoolFs, configure: impl Fn(Launch) -> Launch) -> Self {
        let authority = Authority::new();
        let addresses = addresses();
        let mut nodes = Vec::new();
        for (name, address) in ["node-a", "node-b"].into_iter().zip(&addresses) {
            let pool = TestPool::new(fs, 2 * GIB);
            let (launch, _) = with_metrics(configure(launch(Launch::on(&pool), name, &authority)));
            let launch =
                launch.env("ORLOP_PEER_LISTEN", address).env("ORLOP_PEERS", addresses.join(","));
            let daemon = launch.start().await;
            nodes.push(Node { name, daemon, _pool: pool });
        }
        let router = configure(launch(Launch::without_pool(), "router", &authority));
        let (router, metrics) = with_metrics(router);
        let router = router.env("ORLOP_MODE", "router").env("ORLOP_PEERS", addresses.join(","));
        let router = router.env("ORLOP_PAGE_LISTEN", format!("unix://{}", metrics.display()));
        let router = router.start().await;
        let cluster = Self { router, nodes, metrics };
        cluster.until_all_are_known().await;
        cluster
    }

    pub(crate) fn client(&self) -> Client {
        self.router.client()
    }

    /// The group snapshot of this name, repeated until it is answered with OK, as orchestrators do.
    pub(crate) async fn group_in_the_end(
        &self,
        name: &str,
        sources: &[String],
    ) -> v1::VolumeGroupSnapshot {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let status = match self.client().group_snapshot(name, sources).await {
                Ok(group) => return group,
                Err(status) => status,
            };
            let codes = [Code::Aborted, Code::Unavailable];
            assert!(codes.contains(&status.code()) && Instant::now() < deadline, "{status}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A volume on each node, mounted there.
    pub(crate) async fn mounted_volumes(&self, size: u64) -> Vec<OnNode> {
        let mut used = Vec::new();
        for node in &self.nodes {
            let mut create = self.client().create(&format!("volume-{}", node.name)).size(size);
            create.request.accessibility_requirements = Some(at(node.name));
            let volume = create.done().await;
            let on_node = node.daemon.client().on_node(&volume, mount("xfs"));
            on_node.up().await;
            used.push(on_node);
        }
        used
    }

    /// A daemon looks for its peers every few seconds.
    pub(crate) async fn until_all_are_known(&self) {
        let deadline = Instant::now() + TIMEOUT;
        for daemon in self.nodes.iter().map(|node| &node.daemon).chain([&self.router]) {
            while let Err(status) = daemon.client().list_volumes().await {
                assert!(Instant::now() < deadline, "{status}\n{}", daemon.log_end());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

pub(crate) fn launch(launch: Launch, node: &str, authority: &Authority) -> Launch {
    let directory = launch.scratch().ensure_dir("tls");
    let files = authority.issue(node, &directory);
    let launch = launch.env("ORLOP_NODE_ID", node).env("ORLOP_ATTACH", "false");
    files.into_iter().fold(launch, |launch, (variable, path)| launch.env(variable, path))
}

/// Of this test alone.
pub(crate) fn addresses() -> [String; 2] {
    let mut random = Rng::new();
    let (second, third) = (random.u8(1..255), random.u8(1..255));
    [1, 2].map(|last| format!("{}:{PORT}", Ipv4Addr::new(127, second, third, last)))
}

/// A request that is for this node.
pub(crate) fn at(node: &str) -> v1::TopologyRequirement {
    let segments = [("csi.orlop.io/node".to_owned(), node.to_owned())].into();
    let place = v1::Topology { segments };
    v1::TopologyRequirement { requisite: vec![place.clone()], preferred: vec![place] }
}
