//! A plugin in this process, and clients for it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::csi::v1::identity_client::IdentityClient;
use orlop_csi::proto::csi::v1::node_client::NodeClient;
use orlop_csi::{Executor, Features, Mode, Routes, ServeError};
use orlop_engine::request::NodeInfo;
use orlop_engine::{Engine, EngineSettings};
use orlop_host::MemoryHost;
use orlop_model::{NodeId, Topology};
use orlop_pools::{MemoryPool, MemoryPoolConfig};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::gate::{Gate, GatedPool};

pub(crate) const MIB: i64 = 1 << 20;
pub(crate) const NODE: &str = "node-1";

/// Well-formed, but never issued by a pool of these tests.
pub(crate) const NO_VOLUME: &str = "v-ffffffff-00112233445566778899aabbccddeeff";
pub(crate) const NO_SNAPSHOT: &str = "s-ffffffff-00112233445566778899aabbccddeeff";
pub(crate) const NO_GROUP_SNAPSHOT: &str = "gs-ffffffff-00112233445566778899aabbccddeeff";
pub(crate) const NO_GROUP: &str = "g-ffffffff-00112233445566778899aabbccddeeff";

pub(crate) struct Setup {
    pub(crate) attach: bool,
    pub(crate) limits: bool,
    pub(crate) group_snapshots: bool,
    pub(crate) mode: Mode,
    pub(crate) introspection: bool,
    /// Without it, the plugin stays in the state before its pools are read.
    pub(crate) ready: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            attach: true,
            limits: true,
            group_snapshots: true,
            mode: Mode::All,
            introspection: false,
            ready: true,
        }
    }
}

pub(crate) struct Plugin {
    pub(crate) pool: Arc<MemoryPool>,
    pub(crate) host: Arc<MemoryHost>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) executor: Arc<Executor>,
    pub(crate) socket: PathBuf,
    pub(crate) serving: JoinHandle<Result<(), ServeError>>,
    channel: Channel,
    stop: Option<oneshot::Sender<()>>,
    _directory: tempfile::TempDir,
}

impl Plugin {
    pub(crate) async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    pub(crate) async fn with(setup: Setup) -> Self {
        log();
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("csi.sock");
        let pool = Arc::new(MemoryPool::new(MemoryPoolConfig {
            topology: topology(),
            ..Default::default()
        }));
        let host = Arc::new(MemoryHost::default());
        let gate = Arc::new(Gate::default());
        let executor = Arc::new(Executor::starting());
        if setup.ready {
            let gated = GatedPool::new(Arc::clone(&pool), Arc::clone(&gate));
            executor.ready(Arc::new(engine(gated, &host, setup.attach)));
        }
        let (stop, stopped) = oneshot::channel();
        let bound = orlop_csi::bind(&socket).unwrap();
        let shutdown = async {
            stopped.await.ok();
        };
        let routes = Routes::csi(&executor, &Arc::new(features(&setup)));
        let routes = match setup.introspection {
            true => routes.with_introspection(&socket),
            false => routes,
        };
        let serving =
            tokio::spawn(orlop_csi::serve(bound, Arc::clone(&executor), routes, shutdown));
        let endpoint = endpoint(&socket);
        Self {
            pool,
            host,
            gate,
            executor,
            channel: endpoint.connect().await.unwrap(),
            socket,
            serving,
            stop: Some(stop),
            _directory: directory,
        }
    }

    pub(crate) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A connection beside the one that all clients share.
    pub(crate) async fn connect(&self) -> Channel {
        endpoint(&self.socket).connect().await.unwrap()
    }

    pub(crate) fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel())
    }

    pub(crate) fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel())
    }

    pub(crate) fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel())
    }

    pub(crate) async fn volume(&self, name: &str) -> v1::Volume {
        let made = self.controller().create_volume(new_volume(name)).await;
        made.unwrap().into_inner().volume.unwrap()
    }

    pub(crate) async fn snapshot(&self, volume: &v1::Volume, name: &str) -> v1::Snapshot {
        let request = v1::CreateSnapshotRequest {
            source_volume_id: volume.volume_id.clone(),
            name: name.to_owned(),
            ..Default::default()
        };
        let made = self.controller().create_snapshot(request).await;
        made.unwrap().into_inner().snapshot.unwrap()
    }
}

/// A test that fails behind a closed gate, or beside an endless stream, ends instead of waiting for it.
impl Drop for Plugin {
    fn drop(&mut self) {
        self.gate.end();
    }
}

pub(crate) fn topology() -> Topology {
    Topology::parse([("orlop.example/node".to_owned(), NODE.to_owned())]).unwrap()
}

/// Asks again for as long as the answer is an old one: a good answer to Probe may be a second old.
pub(crate) async fn noticed<T>(is_old: impl Fn(&T) -> bool, ask: impl AsyncFn() -> T) -> T {
    let asking = async {
        loop {
            let answer = ask().await;
            if !is_old(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("nothing was noticed")
}

fn endpoint(socket: &Path) -> Endpoint {
    Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap()
}

fn node_id() -> NodeId {
    NODE.parse().unwrap()
}

fn engine(pool: GatedPool, host: &Arc<MemoryHost>, attach: bool) -> Engine {
    let settings = EngineSettings {
        node_id: node_id(),
        topology: topology(),
        attach,
        max_volumes: 8,
        default_capacity: 1 << 30,
        lock_timeout: Duration::ZERO,
    };
    Engine::new(vec![Arc::new(pool)], Arc::<MemoryHost>::clone(host), settings).unwrap()
}

pub(crate) fn features(setup: &Setup) -> Features {
    Features {
        driver_name: "orlop.example".to_owned(),
        version: "1.2.3".to_owned(),
        node: NodeInfo { id: node_id(), topology: topology(), max_volumes: 8 },
        attach: setup.attach,
        limits: setup.limits,
        group_snapshots: setup.group_snapshots,
        mode: setup.mode,
    }
}

pub(crate) fn mount() -> v1::VolumeCapability {
    use v1::volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode};
    v1::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
    }
}

pub(crate) fn mount_of(fs_type: &str) -> v1::VolumeCapability {
    use v1::volume_capability::{AccessType, MountVolume};
    let access = MountVolume { fs_type: fs_type.to_owned(), ..Default::default() };
    v1::VolumeCapability { access_type: Some(AccessType::Mount(access)), ..mount() }
}

pub(crate) fn range(required_bytes: i64, limit_bytes: i64) -> v1::CapacityRange {
    v1::CapacityRange { required_bytes, limit_bytes }
}

pub(crate) fn new_volume(name: &str) -> v1::CreateVolumeRequest {
    v1::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(range(400 * MIB, 0)),
        volume_capabilities: vec![mount()],
        ..Default::default()
    }
}

pub(crate) fn entry(key: &str, value: &str) -> std::collections::BTreeMap<String, String> {
    [(key.to_owned(), value.to_owned())].into()
}

/// The code of any answer; a refusal has a text and no details (GEN-16, GEN-17).
pub(crate) fn code<T>(answer: Result<T, Status>) -> Code {
    match answer {
        Ok(_) => Code::Ok,
        Err(status) => {
            assert!(!status.message().is_empty(), "{:?} without a text", status.code());
            assert!(status.details().is_empty());
            status.code()
        }
    }
}

/// Everything that was logged since the first test of this process.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// All tests log into one place, at the most talkative level.
pub(crate) fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    })
}
