//! A good plugin that only pretends: the real engine and edge on memory pools and a memory host.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use csi_conformance::options::{Hooks, Options};
use orlop_csi::{Executor, Features, Mode, Routes};
use orlop_engine::request::NodeInfo;
use orlop_engine::{Engine, EngineSettings};
use orlop_host::MemoryHost;
use orlop_model::{NodeId, Pool, Topology};
use orlop_pools::{MemoryPool, MemoryPoolConfig};
use tokio::task::JoinHandle;

const NODE: &str = "node-1";
const OTHER_NODE: &str = "node-2";
const PLACE_KEY: &str = "orlop.example/node";
/// The spec that fills a node makes this many volumes.
const MAX_VOLUMES: u32 = 64;
/// Small enough to be filled by a few volumes.
const POOL_BYTES: u64 = 64 << 30;

/// From where the pools can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// From one node.
    Local,
    /// From every node.
    Shared,
    /// Each from one node.
    Spread,
}

pub(crate) struct MemoryPlugin {
    reach: Reach,
    pools: Vec<Arc<MemoryPool>>,
    socket: PathBuf,
    serving: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl MemoryPlugin {
    pub(crate) fn start(reach: Reach) -> Result<Self, String> {
        log();
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let socket = directory.path().join("csi.sock");
        let topology = place_of(NODE)?;
        let node: NodeId = NODE.parse().map_err(|_| "the node's id".to_owned())?;
        let pools = pools(reach, &topology)?;
        let served = pools.iter().map(|pool| Arc::clone(pool) as Arc<dyn Pool>).collect();
        let settings = EngineSettings {
            node_id: node.clone(),
            topology: topology.clone(),
            attach: true,
            max_volumes: MAX_VOLUMES,
            default_capacity: 1 << 30,
            lock_timeout: Duration::ZERO,
        };
        let engine = Engine::new(served, Arc::new(MemoryHost::default()), settings);
        let executor = Arc::new(Executor::starting());
        executor.ready(Arc::new(engine.map_err(|error| error.to_string())?));
        let features = Features {
            driver_name: "orlop.example".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: NodeInfo { id: node, topology, max_volumes: MAX_VOLUMES },
            attach: true,
            limits: true,
            group_snapshots: true,
            mode: Mode::All,
        };
        let routes = Routes::csi(&executor, &Arc::new(features));
        let bound = orlop_csi::bind(&socket).map_err(|error| error.to_string())?;
        let serving = tokio::spawn(async move {
            // Until it is dropped; an error shows as calls without an answer.
            let _ = orlop_csi::serve(bound, executor, routes, std::future::pending()).await;
        });
        Ok(Self { reach, pools, socket, serving, _directory: directory })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// How the suite has to run against it, at this socket.
    pub(crate) fn options(&self, socket: &Path) -> Options {
        let mut options = Options::new(socket.to_owned());
        options.local_files = false;
        options.parameters = pair("pool", "memory");
        options.other_parameters = pair("pool", "elsewhere");
        options.filling_parameters = pair("provisioning", "thick");
        options.mutable_parameters = pair("readIops", "1000");
        options.changed_parameters = pair("readIops", "2000");
        options.group_parameters = pair("maxVolumes", "3");
        options.other_group_parameters = pair("maxVolumes", "4");
        options.largest_group = Some(3);
        options.hooks = self.hooks();
        match self.reach {
            Reach::Local => {}
            Reach::Shared => options.other_node = Some(OTHER_NODE.to_owned()),
            Reach::Spread => {
                options.parameters.clear();
                options.other_place = pair(PLACE_KEY, OTHER_NODE);
            }
        }
        options
    }

    fn hooks(&self) -> Hooks {
        let (breaks, mends) = (self.pools.clone(), self.pools.clone());
        Hooks {
            breaks: Some(Arc::new(move || {
                breaks.iter().for_each(|pool| pool.break_down("the disk is away"));
                Ok(())
            })),
            mends: Some(Arc::new(move || {
                mends.iter().for_each(|pool| pool.mend());
                Ok(())
            })),
            restarts: None,
            logs: Some(Arc::new(|| Ok(log().text()))),
        }
    }
}

impl Drop for MemoryPlugin {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn place_of(node: &str) -> Result<Topology, String> {
    Topology::parse([(PLACE_KEY.to_owned(), node.to_owned())])
}

fn pools(reach: Reach, here: &Topology) -> Result<Vec<Arc<MemoryPool>>, String> {
    let places = match reach {
        Reach::Local => [here.clone(), here.clone()],
        Reach::Shared => [Topology::default(), Topology::default()],
        Reach::Spread => [here.clone(), place_of(OTHER_NODE)?],
    };
    let named = ["memory", "elsewhere"].into_iter().zip(&places);
    Ok(named.map(|(name, topology)| pool(name, topology)).collect())
}

fn pool(name: &str, topology: &Topology) -> Arc<MemoryPool> {
    let config = MemoryPoolConfig {
        name: name.to_owned(),
        topology: topology.clone(),
        capacity_bytes: POOL_BYTES,
    };
    Arc::new(MemoryPool::new(config))
}

pub(crate) fn pair(key: &str, value: &str) -> csi_conformance::options::Pairs {
    [(key.to_owned(), value.to_owned())].into()
}

/// Everything that was logged in this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        // Only the first one of a process counts, and this is it.
        let _ = tracing::subscriber::set_global_default(subscriber);
        log
    })
}
