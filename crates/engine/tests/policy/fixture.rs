//! An engine on in-memory pools and an in-memory host, with short forms of common requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orlop_engine::request::{
    ControllerPublish, CreateSnapshot, CreateVolume, PublishContext, PublishVolume, PublishWay,
    StageVolume, VolumeContext, VolumeRef,
};
use orlop_engine::{Engine, EngineSettings};
use orlop_host::MemoryHost;
use orlop_model::{
    AccessMode, AccessType, CapabilitySet, CapacityRange, ContentSource, Device, DeviceAccess,
    FormatState, FsType, IoLimitsChange, MountAccess, MountFlags, NodeId, NodeRecord, Pool, Result,
    SnapshotId, TargetPath, Topology, VolumeCapability, VolumeId, VolumeParameters, VolumeRecord,
};
use orlop_pools::{MemoryPool, MemoryPoolConfig};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// The node that the engine runs on.
pub(crate) const HERE: &str = "n1";
pub(crate) const STAGING: &str = "/staging/v";
pub(crate) const TARGET: &str = "/targets/a";
pub(crate) const OTHER_TARGET: &str = "/targets/b";

pub(crate) struct Fixture {
    pub(crate) engine: Arc<Engine>,
    pub(crate) host: Arc<MemoryHost>,
    pub(crate) pools: Vec<Arc<MemoryPool>>,
    settings: EngineSettings,
}

impl Fixture {
    /// One pool of 100 GiB on this node, and every filesystem.
    pub(crate) fn new() -> Self {
        Self::with_pools(vec![pool("default", &zone("z1"), 100 * GIB)])
    }

    pub(crate) fn with_pools(pools: Vec<MemoryPoolConfig>) -> Self {
        Self::assembled(pools, MemoryHost::default(), settings())
    }

    pub(crate) fn on_host(host: MemoryHost) -> Self {
        Self::assembled(vec![pool("default", &zone("z1"), 100 * GIB)], host, settings())
    }

    pub(crate) fn assembled(
        pools: Vec<MemoryPoolConfig>,
        host: MemoryHost,
        settings: EngineSettings,
    ) -> Self {
        let pools: Vec<_> =
            pools.into_iter().map(|config| Arc::new(MemoryPool::new(config))).collect();
        let host = Arc::new(host);
        Self { engine: engine(&pools, &host, &settings), host, pools, settings }
    }

    /// Two daemons on two machines, `n1` and `n2`, with one pool that both reach.
    pub(crate) fn sharing() -> (Self, Self) {
        let first = Self::with_pools(vec![pool("shared", &Topology::default(), 100 * GIB)]);
        first.pool().share_with(&[&node(HERE), &node("n2")]);
        let pools = first.pools.clone();
        let host = Arc::new(MemoryHost::default());
        let settings = EngineSettings { node_id: node("n2"), ..first.settings.clone() };
        let second = Self { engine: engine(&pools, &host, &settings), host, pools, settings };
        (first, second)
    }

    /// Another daemon on the same pools and machine: what was only in the engine is gone.
    pub(crate) fn restart(&mut self) {
        self.engine = engine(&self.pools, &self.host, &self.settings);
    }

    pub(crate) fn pool(&self) -> &MemoryPool {
        &self.pools[0]
    }

    fn pool_of(&self, id: &VolumeId) -> &MemoryPool {
        let found = self.pools.iter().find(|pool| pool.id() == id.pool());
        found.expect("the volume is on one of the pools")
    }

    pub(crate) fn create(&self, name: &str) -> VolumeId {
        self.create_as(volume(name))
    }

    pub(crate) fn create_as(&self, request: CreateVolume) -> VolumeId {
        self.engine.create_volume(&request).unwrap().record.id
    }

    pub(crate) fn snapshot(&self, name: &str, source: &VolumeId) -> SnapshotId {
        self.engine.create_snapshot(&snapshot(name, source)).unwrap().id
    }

    pub(crate) fn record(&self, id: &VolumeId) -> VolumeRecord {
        self.pool_of(id).catalogue().volume(id).unwrap().expect("the volume exists")
    }

    pub(crate) fn format(&self, id: &VolumeId) -> FormatState {
        self.record(id).format
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let records = self.pools.iter().flat_map(|pool| pool.catalogue().volumes(None, 0).unwrap());
        let mut names: Vec<_> =
            records.map(|(_, record)| record.unwrap().name.as_str().to_owned()).collect();
        names.sort();
        names
    }

    pub(crate) fn device(&self, id: &VolumeId) -> Device {
        self.attached(id, DeviceAccess::ReadWrite).expect("the volume is attached")
    }

    pub(crate) fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Option<Device> {
        self.pool_of(id).devices().attached(id, access).unwrap()
    }

    pub(crate) fn node_record(&self, id: &VolumeId) -> NodeRecord {
        use orlop_model::HostRecords;
        self.host.node_record(id).unwrap()
    }

    pub(crate) fn stage(&self, id: &VolumeId) {
        self.engine.stage_volume(&stage(id)).unwrap();
    }

    pub(crate) fn unstage(&self, id: &VolumeId) -> Result<()> {
        self.engine.unstage_volume(&issued(id), &path(STAGING))
    }

    pub(crate) fn publish(&self, id: &VolumeId) {
        self.engine.publish_volume(&publish(id, TARGET)).unwrap();
    }

    pub(crate) fn unpublish(&self, id: &VolumeId, target: &str) -> Result<()> {
        self.engine.unpublish_volume(&issued(id), &path(target))
    }

    /// The node holds nothing: no mount, no device of any volume, no record.
    pub(crate) fn assert_node_is_clean(&self) {
        use orlop_model::HostRecords;
        assert_eq!(self.host.mounts(), []);
        assert_eq!(self.host.node_records().unwrap(), []);
        for pool in &self.pools {
            assert_eq!(pool.devices().attached_volumes().unwrap(), []);
        }
    }
}

fn engine(
    pools: &[Arc<MemoryPool>],
    host: &Arc<MemoryHost>,
    settings: &EngineSettings,
) -> Arc<Engine> {
    let pools = pools.iter().map(|pool| Arc::clone(pool) as Arc<dyn Pool>).collect();
    Arc::new(Engine::new(pools, Arc::clone(host) as _, settings.clone()).unwrap())
}

pub(crate) fn pool(name: &str, topology: &Topology, capacity_bytes: u64) -> MemoryPoolConfig {
    MemoryPoolConfig { name: name.to_owned(), topology: topology.clone(), capacity_bytes }
}

pub(crate) fn settings() -> EngineSettings {
    EngineSettings {
        node_id: node(HERE),
        topology: zone("z1"),
        attach: true,
        max_volumes: 100,
        default_capacity: GIB,
        // Tests meet a lock on the thread that holds it.
        lock_timeout: Duration::ZERO,
    }
}

pub(crate) fn node(id: &str) -> NodeId {
    id.parse().unwrap()
}

pub(crate) fn zone(name: &str) -> Topology {
    Topology::parse([("example.com/zone".to_owned(), name.to_owned())]).unwrap()
}

pub(crate) fn path(text: &str) -> TargetPath {
    TargetPath::parse("path", text).unwrap()
}

pub(crate) fn issued(id: &VolumeId) -> VolumeRef {
    VolumeRef::Issued(id.clone())
}

pub(crate) fn mount(fs: Option<FsType>, mode: AccessMode) -> VolumeCapability {
    mount_with(fs, mode, &[], None)
}

pub(crate) fn mount_with(
    fs: Option<FsType>,
    mode: AccessMode,
    flags: &[&str],
    group: Option<u32>,
) -> VolumeCapability {
    let flags = MountFlags::parse(flags.iter().map(ToString::to_string).collect()).unwrap();
    VolumeCapability { access: AccessType::Mount(MountAccess { fs, flags, group }), mode }
}

pub(crate) fn block(mode: AccessMode) -> VolumeCapability {
    VolumeCapability { access: AccessType::Block, mode }
}

pub(crate) fn only(capability: VolumeCapability) -> CapabilitySet {
    CapabilitySet::new(vec![capability]).unwrap()
}

pub(crate) fn range(required: u64, limit: u64) -> CapacityRange {
    let wire = |bytes| i64::try_from(bytes).unwrap();
    CapacityRange::parse(wire(required), wire(limit)).unwrap()
}

pub(crate) fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = entries.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    owned.collect()
}

pub(crate) fn parameters(entries: &[(&str, &str)]) -> VolumeParameters {
    VolumeParameters::parse(&map(entries)).unwrap().0
}

pub(crate) fn limits(entries: &[(&str, &str)]) -> IoLimitsChange {
    IoLimitsChange::parse(&map(entries)).unwrap()
}

/// 1 GiB, mounted with the default filesystem, written by one node.
pub(crate) fn volume(name: &str) -> CreateVolume {
    CreateVolume {
        name: name.parse().unwrap(),
        range: Some(range(GIB, 0)),
        capabilities: only(mount(None, AccessMode::SingleNodeWriter)),
        parameters: VolumeParameters::default(),
        limits: IoLimitsChange::default(),
        source: None,
        topology: None,
    }
}

pub(crate) fn block_volume(name: &str) -> CreateVolume {
    CreateVolume { capabilities: only(block(AccessMode::SingleNodeWriter)), ..volume(name) }
}

pub(crate) fn volume_of(name: &str, fs: FsType) -> CreateVolume {
    CreateVolume {
        capabilities: only(mount(Some(fs), AccessMode::SingleNodeWriter)),
        ..volume(name)
    }
}

pub(crate) fn restored(name: &str, source: &SnapshotId) -> CreateVolume {
    CreateVolume {
        source: Some(ContentSource::Snapshot(source.clone())),
        range: None,
        ..volume(name)
    }
}

pub(crate) fn cloned(name: &str, source: &VolumeId) -> CreateVolume {
    CreateVolume {
        source: Some(ContentSource::Volume(source.clone())),
        range: None,
        ..volume(name)
    }
}

pub(crate) fn snapshot(name: &str, source: &VolumeId) -> CreateSnapshot {
    CreateSnapshot { name: name.parse().unwrap(), source: source.clone(), topology: None }
}

pub(crate) fn controller_publish(id: &VolumeId, to: &str) -> ControllerPublish {
    ControllerPublish {
        volume: id.clone(),
        node: node(to),
        capability: mount(None, AccessMode::SingleNodeWriter),
        read_only: false,
        context: VolumeContext::new(),
    }
}

pub(crate) fn stage(id: &VolumeId) -> StageVolume {
    StageVolume {
        volume: id.clone(),
        path: path(STAGING),
        capability: mount(None, AccessMode::SingleNodeWriter),
        publish: PublishContext::default(),
        context: VolumeContext::new(),
        keys: Arc::default(),
    }
}

pub(crate) fn stage_block(id: &VolumeId) -> StageVolume {
    StageVolume { capability: block(AccessMode::SingleNodeWriter), ..stage(id) }
}

pub(crate) fn staged_at(staging: &str) -> PublishWay {
    PublishWay::Staged { staging: path(staging) }
}

pub(crate) fn publish(id: &VolumeId, target: &str) -> PublishVolume {
    PublishVolume {
        volume: issued(id),
        way: staged_at(STAGING),
        target: path(target),
        capability: mount(None, AccessMode::SingleNodeWriter),
        read_only: false,
        publish: PublishContext::default(),
        context: VolumeContext::new(),
        keys: Arc::default(),
    }
}

pub(crate) fn publish_block(id: &VolumeId, target: &str) -> PublishVolume {
    PublishVolume { capability: block(AccessMode::SingleNodeWriter), ..publish(id, target) }
}

/// The call must be refused with an error of this kind; gives the error.
macro_rules! refused {
    ($result:expr, $kind:pat) => {{
        let error = $result.expect_err("the call was accepted");
        assert!(matches!(error, $kind), "{error:?}");
        error
    }};
}
pub(crate) use refused;
