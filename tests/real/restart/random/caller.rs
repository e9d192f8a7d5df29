//! A caller with names that no other caller uses, and what it knows of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orlop_tests::*;

use super::contents::Contents;

/// Few, so that most calls meet what earlier ones made.
const NAMES: u64 = 3;
const SIZE: u64 = 16 * MIB;
const LARGEST: u64 = 32 * MIB;
/// Far more than any call takes; reached only by one that hangs.
const TIMEOUT: Duration = Duration::from_secs(240);

/// What callers and the one who kills tell each other.
#[derive(Default)]
pub(super) struct Progress {
    calls: AtomicU64,
    repeated: AtomicU64,
    compared: AtomicU64,
    kills: AtomicU64,
    finished: AtomicBool,
}

impl Progress {
    /// That were answered.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Acquire)
    }

    pub(super) fn kill(&self) {
        self.kills.fetch_add(1, Ordering::AcqRel);
    }

    fn kills(&self) -> u64 {
        self.kills.load(Ordering::Acquire)
    }

    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repeated = self.repeated.load(Ordering::Acquire);
        let compared = self.compared.load(Ordering::Acquire);
        let calls = self.calls();
        write!(f, "{calls} calls answered, {repeated} repeated, {compared} volumes compared")
    }
}

struct Volume {
    node: OnNode,
    size: u64,
    contents: Contents,
    in_use: bool,
}

struct Snapshot {
    id: String,
    capability: v1::VolumeCapability,
    size: u64,
    contents: Contents,
}

pub(super) struct Caller {
    client: Client,
    number: u64,
    rng: Rng,
    progress: Arc<Progress>,
    volumes: BTreeMap<u64, Volume>,
    snapshots: BTreeMap<u64, Snapshot>,
}

impl Caller {
    pub(super) fn new(client: Client, seed: u64, number: u64, progress: &Arc<Progress>) -> Self {
        let rng = Rng::with_seed(seed.wrapping_add(number));
        let progress = Arc::clone(progress);
        let (volumes, snapshots) = (BTreeMap::new(), BTreeMap::new());
        Self { client, number, rng, progress, volumes, snapshots }
    }

    /// Until it is asked to stop. Panics at the first answer that is not as it must be.
    pub(super) async fn work(mut self) -> Self {
        while !self.progress.is_finished() {
            let name = self.rng.u64(..NAMES);
            match self.rng.u64(..14) {
                0 => self.create(name).await,
                1 | 2 => self.restore(name).await,
                3 | 4 => self.copy(name).await,
                5..8 => self.toggle_use(name).await,
                8 => self.write(name),
                9 | 10 => self.snapshot(name).await,
                11 => self.expand(name).await,
                12 => self.delete(name).await,
                _ => self.delete_snapshot(name).await,
            }
            self.look_at(name).await;
        }
        self
    }

    /// With their sizes.
    pub(super) fn volumes(&self) -> impl Iterator<Item = (String, i64)> {
        self.volumes.values().map(|volume| (volume.node.id.clone(), int(volume.size)))
    }

    pub(super) fn snapshots(&self) -> impl Iterator<Item = String> {
        self.snapshots.values().map(|snapshot| snapshot.id.clone())
    }

    /// A call is repeated until it is answered, as its daemon may be killed at any moment.
    async fn answered<T, F>(&self, what: &str, call: impl Fn() -> F) -> T
    where
        F: Future<Output = Answer<T>>,
    {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let kills = self.progress.kills();
            match tokio::time::timeout(TIMEOUT / 4, call()).await {
                Ok(Ok(answer)) => {
                    self.progress.calls.fetch_add(1, Ordering::AcqRel);
                    return answer;
                }
                Ok(Err(status)) => {
                    // What a killed daemon started may still be at work, and the next one starts.
                    let passes = matches!(status.code(), Code::Aborted | Code::Unavailable);
                    assert!(passes || is_connection_lost(&status), "{what}, {self}: {status}");
                    assert!(Instant::now() < deadline, "{what}, {self}: {status}");
                }
                // Its daemon is gone, which the library may fail to notice.
                Err(_) => {
                    assert!(self.progress.kills() > kills, "{what}, {self}: no answer");
                    self.client.reconnect();
                }
            }
            self.progress.repeated.fetch_add(1, Ordering::AcqRel);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn name_of(&self, what: &str, name: u64) -> String {
        format!("{what} {name} of {self}")
    }

    async fn create(&mut self, name: u64) {
        let capability =
            self.rng.choice(&[block(), mount("ext4")]).expect("a non-empty list").clone();
        let create = self.client.create(&self.name_of("volume", name)).size(SIZE);
        self.make(name, create.capability(capability), SIZE, Contents::default()).await;
    }

    async fn restore(&mut self, name: u64) {
        let Some(source) = self.snapshots.get(&self.rng.u64(..NAMES)) else { return };
        let create = self.client.create(&self.name_of("volume", name));
        let create = create.capability(source.capability.clone()).from_snapshot(&source.id);
        let (size, contents) = (source.size, source.contents.clone());
        self.make(name, create, size, contents).await;
    }

    async fn copy(&mut self, name: u64) {
        let Some(source) = self.volumes.get(&self.rng.u64(..NAMES)) else { return };
        let create = self.client.create(&self.name_of("volume", name));
        let create = create.capability(source.node.capability.clone()).from_volume(&source.node.id);
        let (size, contents) = (source.size, source.contents.clone());
        self.make(name, create, size, contents).await;
    }

    /// If the name is free.
    async fn make(&mut self, name: u64, create: Create, size: u64, contents: Contents) {
        if self.volumes.contains_key(&name) {
            return;
        }
        let made = self.answered("CreateVolume", || create.clone().send()).await;
        assert_eq!(made.capacity_bytes, int(size), "{self}");
        let capability = create.request.volume_capabilities[0].clone();
        let node = self.client.on_node(&made, capability);
        self.volumes.insert(name, Volume { node, size, contents, in_use: false });
    }

    async fn toggle_use(&mut self, name: u64) {
        let Some(volume) = self.volumes.get(&name) else { return };
        let node = &volume.node;
        if volume.in_use {
            self.compare(volume);
            self.answered("NodeUnpublishVolume", || node.unpublish()).await;
            assert!(!node.target.exists(), "{} is left", node.target.display());
            self.answered("NodeUnstageVolume", || node.unstage()).await;
        } else {
            self.answered("NodeStageVolume", || node.stage()).await;
            self.answered("NodePublishVolume", || node.publish()).await;
            self.compare(volume);
        }
        self.volumes.entry(name).and_modify(|volume| volume.in_use = !volume.in_use);
        self.write(name);
    }

    fn compare(&self, volume: &Volume) {
        volume.contents.check(&volume.node);
        // Of a filesystem as small as these, much is its own.
        if volume.node.capability.is_block() {
            assert_size(&volume.node, volume.size);
        }
        if !volume.contents.is_empty() {
            self.progress.compared.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// As a workload, which does not need the daemon.
    fn write(&mut self, name: u64) {
        if let Some(volume) = self.volumes.get_mut(&name).filter(|volume| volume.in_use) {
            volume.contents.write(&volume.node, &mut self.rng);
        }
    }

    async fn snapshot(&mut self, name: u64) {
        let source = self.volumes.get(&self.rng.u64(..NAMES));
        let Some(source) = source.filter(|_| !self.snapshots.contains_key(&name)) else { return };
        let (wanted, id) = (self.name_of("snapshot", name), &source.node.id);
        let made = self.answered("CreateSnapshot", || self.client.snapshot(&wanted, id)).await;
        let capability = source.node.capability.clone();
        let (size, contents) = (source.size, source.contents.clone());
        assert_eq!(made.size_bytes, int(size), "{self}");
        let snapshot = Snapshot { id: made.snapshot_id, capability, size, contents };
        self.snapshots.insert(name, snapshot);
    }

    /// A filesystem only while it is not in use: to grow a mounted ext4 is a privilege that this machine
    /// may not give.
    async fn expand(&mut self, name: u64) {
        let size = SIZE + self.rng.u64(..(LARGEST - SIZE) / MIB) * MIB;
        let Some(volume) = self.volumes.get(&name) else { return };
        let (node, size) = (&volume.node, size.max(volume.size));
        if volume.in_use && !node.capability.is_block() {
            return;
        }
        let grow = || self.client.expand(&node.id, size);
        let grown = self.answered("ControllerExpandVolume", grow).await;
        assert_eq!(grown.capacity_bytes, int(size), "{self}");
        if volume.in_use {
            self.answered("NodeExpandVolume", || node.expand(size)).await;
        }
        if let Some(volume) = self.volumes.get_mut(&name) {
            volume.size = size;
        }
        if let Some(volume) = self.volumes.get(&name).filter(|volume| volume.in_use) {
            self.compare(volume);
        }
    }

    async fn delete(&mut self, name: u64) {
        let Some(volume) = self.volumes.get(&name).filter(|volume| !volume.in_use) else { return };
        let id = &volume.node.id;
        self.answered("DeleteVolume", || self.client.delete(id)).await;
        self.volumes.remove(&name);
    }

    async fn delete_snapshot(&mut self, name: u64) {
        let Some(snapshot) = self.snapshots.get(&name) else { return };
        let delete = || self.client.delete_snapshot(&snapshot.id);
        self.answered("DeleteSnapshot", delete).await;
        self.snapshots.remove(&name);
    }

    async fn look_at(&self, name: u64) {
        let Some(volume) = self.volumes.get(&name) else { return };
        let get = || self.client.get_volume(&volume.node.id);
        let there = self.answered("ControllerGetVolume", get).await;
        assert_eq!(there.volume.unwrap().capacity_bytes, int(volume.size), "{self}");
    }

    pub(super) async fn check_and_delete_all(mut self) {
        for name in 0..NAMES {
            if self.volumes.get(&name).is_some_and(|volume| !volume.in_use) {
                self.toggle_use(name).await;
            }
            if self.volumes.contains_key(&name) {
                self.toggle_use(name).await;
            }
            self.delete(name).await;
        }
        for (name, snapshot) in std::mem::take(&mut self.snapshots) {
            let create = self.client.create(&self.name_of("volume", name));
            let create = create.capability(snapshot.capability).from_snapshot(&snapshot.id);
            self.make(name, create, snapshot.size, snapshot.contents).await;
            self.toggle_use(name).await;
            self.toggle_use(name).await;
            self.delete(name).await;
            self.client.delete_snapshot(&snapshot.id).await.unwrap();
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "caller {}", self.number)
    }
}
