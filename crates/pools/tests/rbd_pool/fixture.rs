//! A cluster for all tests of this binary, and for each test its own namespace in it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use orlop_model::{
    AccessMode, AccessType, CapabilitySet, Consistency, ContentSource, Error, FormatState,
    IoLimits, NameDigest, NewSnapshot, NewVolume, Pool, Provisioning, Result, SnapshotId,
    SnapshotRecord, VolumeCapability, VolumeId, VolumeParameters, VolumeRecord,
};
use orlop_pools::{RbdPool, RbdPoolConfig};
use orlop_sys::ceph::{Access, Cluster, ClusterConfig, Image, IoCtx, Update};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
/// As librbd makes them.
pub(crate) const OBJECT: u64 = 4 * MIB;
const TRASH: &str = "rbd_trash";
/// The cluster answers in milliseconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// `None` where the run opted out of tests that need root.
fn root_or_opted_out() -> Option<()> {
    if std::env::var_os("ORLOP_TEST_SKIP_ROOT").is_some_and(|value| value == "1") {
        return None;
    }
    assert!(rustix::process::geteuid().is_root(), "run as root, or set ORLOP_TEST_SKIP_ROOT=1");
    Some(())
}

/// Where its ceph.conf is. The script takes it down when this process has ended; `ORLOP_TEST_CEPH` names
/// one that is there already, of another version of Ceph, say.
pub(crate) fn cluster() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        if let Some(running) = std::env::var_os("ORLOP_TEST_CEPH") {
            return running.into();
        }
        let pid = std::process::id();
        let directory = std::env::temp_dir().join(format!("orlop-ceph-{pid}"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ceph-cluster");
        let started = Command::new(script)
            .args(["start".as_ref(), directory.as_os_str()])
            .args(["--while", &pid.to_string()])
            .status()
            .unwrap();
        assert!(started.success(), "no cluster");
        directory
    })
}

pub(crate) struct Fixture {
    pub(crate) namespace: String,
    run_dir: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        root_or_opted_out()?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("t{number}-{}", std::process::id());
        run("rbd", &["namespace", "create", &format!("rbd/{namespace}")]);
        Some(Self { namespace, run_dir: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn config(&self) -> RbdPoolConfig {
        RbdPoolConfig {
            name: "test".to_owned(),
            monitors: monitors(),
            pool: "rbd".to_owned(),
            namespace: self.namespace.clone(),
            user: "orlop".to_owned(),
            keyring: cluster().join("client.orlop.keyring"),
            timeout: TIMEOUT,
            create: true,
            collects_garbage: false,
            takes_unrestorable_groups: true,
            node_id: "n1".parse().unwrap(),
            serves_node: false,
            run_dir: self.run_dir.path().to_owned(),
        }
    }

    /// Another process that works on the same pool, as far as the cluster can tell.
    pub(crate) fn open(&self) -> RbdPool {
        RbdPool::open(&self.config()).unwrap()
    }

    pub(crate) fn open_collecting_garbage(&self) -> RbdPool {
        RbdPool::open(&RbdPoolConfig { collects_garbage: true, ..self.config() }).unwrap()
    }

    /// Past the pool, right into the cluster.
    pub(crate) fn io(&self) -> Arc<IoCtx> {
        let config = self.config();
        let config = ClusterConfig {
            monitors: config.monitors,
            user: config.user,
            keyring: config.keyring,
            connect_timeout: TIMEOUT,
            operation_timeout: TIMEOUT,
        };
        Cluster::connect(&config).unwrap().pool("rbd", &self.namespace).unwrap()
    }

    pub(crate) fn image(&self, id: &VolumeId) -> Image {
        self.io().open_image(&id.to_string(), Access::ReadWrite).unwrap()
    }

    /// The command line on this namespace.
    pub(crate) fn rbd(&self, command: &[&str]) -> String {
        let namespace = ["--pool", "rbd", "--namespace", &self.namespace];
        run("rbd", &[command, &namespace].concat())
    }

    /// As [`Self::rbd`], parsed.
    pub(crate) fn rbd_json(&self, command: &[&str]) -> Value {
        let output = self.rbd(&[command, &["--format", "json"]].concat());
        serde_json::from_str(&output).unwrap()
    }

    pub(crate) fn image_names(&self) -> Vec<String> {
        let listed = self.rbd_json(&["ls"]);
        let names = listed.as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn trash_is_empty(&self) -> bool {
        self.rbd_json(&["trash", "ls"]).as_array().unwrap().is_empty()
    }

    fn rados(&self, command: &[&str]) -> String {
        let namespace = ["--pool", "rbd", "--namespace", &self.namespace];
        run("rados", &[&namespace[..], command].concat())
    }

    pub(crate) fn objects(&self) -> Vec<String> {
        self.rados(&["ls"]).lines().map(str::to_owned).collect()
    }

    pub(crate) fn remove_object(&self, object: &str) {
        self.rados(&["rm", object]);
    }

    /// All objects, and what is entered in the directory and in the trash.
    pub(crate) fn objects_and_entries(&self) -> Vec<String> {
        let io = self.io();
        let mut all = self.objects();
        for object in ["rbd_directory", TRASH] {
            let keys = io.omap_list(object, "", "", 0).unwrap();
            all.extend(keys.into_iter().map(|(key, _)| format!("{object}: {key}")));
        }
        all
    }

    /// Is it there to keep an image from being made, either the object or its entry in the trash?
    pub(crate) fn is_prevention(&self, object_or_entry: &str) -> bool {
        let image = object_or_entry.strip_prefix("rbd_header.");
        let image = image.or_else(|| object_or_entry.strip_prefix("rbd_trash: id_"));
        image.is_some_and(|image| {
            let keys = self.io().omap_list(&format!("rbd_header.{image}"), "", "", 0).unwrap();
            keys == [(format!("metadata_orlop.record.{image}"), b"-".to_vec())]
        })
    }

    /// An entry ends with two times, of eight bytes each, and the state.
    fn change_trash_entry(&self, image: &str, change: impl Fn(&mut [u8])) {
        let (io, key) = (self.io(), format!("id_{image}"));
        let mut entry = io.omap_get(TRASH, &key).unwrap().unwrap();
        let end = entry.len() - 17;
        change(&mut entry[end..]);
        io.update(TRASH, &Update::default().set(&key, &entry)).unwrap();
    }

    pub(crate) fn age_trash_entry(&self, image: &str) {
        self.change_trash_entry(image, |end| end[..8].fill(0));
    }

    pub(crate) fn set_trash_state(&self, image: &str, state: u8) {
        self.change_trash_entry(image, |end| end[16] = state);
    }

    /// Nothing is left of any volume or snapshot, neither in sight nor in the trash.
    pub(crate) fn is_empty(&self) -> bool {
        self.image_names().is_empty() && self.trash_is_empty()
    }
}

fn monitors() -> String {
    let conf = std::fs::read_to_string(cluster().join("ceph.conf")).unwrap();
    conf.lines().find_map(|line| line.strip_prefix("mon_host = ")).unwrap().to_owned()
}

/// As the cluster's administrator.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let conf = cluster().join("ceph.conf");
    let output = Command::new(program).arg("--conf").arg(conf).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Calls again while the pool is busy, as an orchestrator does.
pub(crate) fn settled<T>(call: impl Fn() -> Result<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match call() {
            Err(Error::Busy { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            outcome => return outcome.unwrap(),
        }
    }
}

pub(crate) fn volume_id(pool: &RbdPool, name: &str) -> VolumeId {
    VolumeId::new(pool.id().clone(), NameDigest::of_text(name))
}

pub(crate) fn writer_capability() -> VolumeCapability {
    VolumeCapability { access: AccessType::Block, mode: AccessMode::SingleNodeWriter }
}

pub(crate) fn new_volume(pool: &RbdPool, name: &str, capacity_bytes: u64) -> NewVolume {
    NewVolume {
        id: volume_id(pool, name),
        name: name.parse().unwrap(),
        capacity_bytes,
        capabilities: CapabilitySet::new(vec![writer_capability()]).unwrap(),
        parameters: VolumeParameters { provisioning: Provisioning::Thin, ..Default::default() },
        limits: IoLimits::default(),
        source: None,
        format: FormatState::Raw,
        encryption: None,
        filesystem: None,
        ephemeral: false,
    }
}

pub(crate) fn create(pool: &RbdPool, new: &NewVolume) -> Result<VolumeRecord> {
    pool.provisioner().begin_volume(new)?.commit()
}

pub(crate) fn volume(pool: &RbdPool, name: &str, capacity_bytes: u64) -> VolumeRecord {
    create(pool, &new_volume(pool, name, capacity_bytes)).unwrap()
}

pub(crate) fn copy_of(
    pool: &RbdPool,
    name: &str,
    source: ContentSource,
    capacity_bytes: u64,
) -> Result<VolumeRecord> {
    create(pool, &NewVolume { source: Some(source), ..new_volume(pool, name, capacity_bytes) })
}

pub(crate) fn new_snapshot(pool: &RbdPool, name: &str, source: &VolumeRecord) -> NewSnapshot {
    NewSnapshot {
        id: SnapshotId::new(pool.id().clone(), NameDigest::of_text(name)),
        name: name.parse().unwrap(),
        source: source.clone(),
        format: FormatState::Raw,
        consistency: Consistency::Crash,
    }
}

pub(crate) fn snapshot(pool: &RbdPool, name: &str, source: &VolumeRecord) -> SnapshotRecord {
    pool.provisioner().begin_snapshot(&new_snapshot(pool, name, source)).unwrap().commit().unwrap()
}

pub(crate) fn write(image: &Image, offset: u64, byte: u8, length: u64) {
    image.write(offset, &vec![byte; usize::try_from(length).unwrap()]).unwrap();
    image.flush().unwrap();
}

/// The byte that fills this part.
pub(crate) fn byte_at(image: &Image, offset: u64, length: u64) -> u8 {
    let bytes = read(image, offset, length);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "mixed bytes at {offset}");
    bytes[0]
}

pub(crate) fn read(image: &Image, offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    assert_eq!(image.read(offset, &mut bytes).unwrap(), bytes.len());
    bytes
}
