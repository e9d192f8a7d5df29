//! A caller with volumes and snapshots that no other caller uses, and that knows what must be in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orlop_tests::*;

use super::content::{Content, PIECES, ROOM};
use super::endpoint::{Endpoint, ask};

const MAX_VOLUMES: usize = 3;
const MAX_SNAPSHOTS: usize = 2;

/// How far a volume has come on its way to a workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Away,
    Attached,
    Staged,
    InUse,
}

struct OwnedVolume {
    name: String,
    volume: v1::Volume,
    size: u64,
    content: Content,
    reach: Reach,
    /// Where it is unless it is away: the number of a node.
    node: usize,
    used: Option<OnNode>,
}

struct OwnedSnapshot {
    id: String,
    size: u64,
    content: Content,
}

pub(crate) struct Caller {
    number: u64,
    rng: Rng,
    capability: v1::VolumeCapability,
    controllers: Vec<Endpoint>,
    nodes: Vec<Endpoint>,
    volumes: Vec<OwnedVolume>,
    snapshots: Vec<OwnedSnapshot>,
    names: u64,
    calls: u64,
    repeated: u64,
}

impl Caller {
    pub(crate) fn new(
        number: u64,
        seed: u64,
        capability: v1::VolumeCapability,
        controllers: &[Endpoint],
        nodes: &[Endpoint],
    ) -> Self {
        Self {
            number,
            rng: Rng::with_seed(seed.wrapping_add(1 + number)),
            capability,
            controllers: controllers.to_vec(),
            nodes: nodes.to_vec(),
            volumes: Vec::new(),
            snapshots: Vec::new(),
            names: 0,
            calls: 0,
            repeated: 0,
        }
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// With their sizes, as they are to be listed.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = (String, i64)> {
        self.volumes.iter().map(|owned| (owned.volume.volume_id.clone(), int(owned.size)))
    }

    pub(crate) fn snapshots(&self) -> impl Iterator<Item = String> {
        self.snapshots.iter().map(|snapshot| snapshot.id.clone())
    }

    pub(crate) async fn work_until(mut self, enough: Arc<AtomicBool>) -> Self {
        while !enough.load(Ordering::Acquire) {
            self.step().await;
        }
        self
    }

    async fn step(&mut self) {
        if self.volumes.is_empty() {
            return self.create().await;
        }
        let which = self.any_below(self.volumes.len());
        match self.rng.u64(..10) {
            0 | 1 if self.volumes.len() < MAX_VOLUMES => self.create().await,
            2 if self.snapshots.len() < MAX_SNAPSHOTS => self.snapshot(which).await,
            3 if !self.snapshots.is_empty() => self.delete_snapshot().await,
            4 => self.grow(which).await,
            5 | 6 => {
                let to = *self
                    .rng
                    .choice(&[Reach::Away, Reach::Attached, Reach::Staged])
                    .expect("a non-empty list");
                self.lower(which, to).await;
            }
            7 if self.volumes.len() > 1 => self.delete(which).await,
            _ => self.use_it(which).await,
        }
    }

    fn any_below(&mut self, count: usize) -> usize {
        self.rng.usize(..count)
    }

    fn new_name(&mut self) -> String {
        self.names += 1;
        format!("{} of {}", self.names, self.number)
    }

    /// Of any controller, another one perhaps if it has to be repeated.
    async fn controllers<T, F: Future<Output = Answer<T>>>(
        &mut self,
        what: &str,
        call: impl Fn(Client) -> F,
    ) -> T {
        let (controllers, rng) = (&self.controllers, &mut self.rng);
        let (answer, times) =
            ask(what, || rng.choice(controllers).expect("a non-empty list").clone(), call).await;
        self.count(times);
        answer
    }

    async fn node<T, F: Future<Output = Answer<T>>>(
        &mut self,
        what: &str,
        which: usize,
        call: impl Fn(OnNode) -> F,
    ) -> T {
        let owned = &self.volumes[which];
        let (endpoint, used) = (self.nodes[owned.node].clone(), owned.used.clone().unwrap());
        let (answer, times) = ask(what, || endpoint.clone(), |_| call(used.clone())).await;
        self.count(times);
        answer
    }

    fn count(&mut self, times: u64) {
        self.calls += 1;
        self.repeated += u64::from(times > 1);
    }

    fn least_size(&self) -> u64 {
        if self.capability.is_block() { ROOM } else { crate::ceph::VOLUME }
    }

    /// A blank one, or a copy.
    async fn create(&mut self) {
        match self.rng.u64(..3) {
            0 if !self.snapshots.is_empty() => {
                let which = self.any_below(self.snapshots.len());
                self.restore(which).await;
            }
            1 if !self.volumes.is_empty() => {
                let which = self.any_below(self.volumes.len());
                let from = &self.volumes[which];
                let (size, content) = (from.size, from.content.clone());
                let id = from.volume.volume_id.clone();
                self.make(size, content, |create| create.from_volume(&id)).await;
            }
            _ => self.make(self.least_size(), Content::default(), |create| create).await,
        }
    }

    async fn restore(&mut self, which: usize) {
        let snapshot = &self.snapshots[which];
        let (size, content, id) = (snapshot.size, snapshot.content.clone(), snapshot.id.clone());
        self.make(size, content, |create| create.from_snapshot(&id)).await;
    }

    async fn make(&mut self, size: u64, content: Content, from: impl Fn(Create) -> Create) {
        let (name, capability) = (self.new_name(), self.capability.clone());
        let call = |client: Client| {
            from(client.create(&name).size(size).capability(capability.clone())).send()
        };
        let volume = self.controllers("CreateVolume", call).await;
        assert_eq!(volume.capacity_bytes, int(size));
        let (reach, node, used) = (Reach::Away, 0, None);
        self.volumes.push(OwnedVolume { name, volume, size, content, reach, node, used });
    }

    async fn snapshot(&mut self, which: usize) {
        let name = self.new_name();
        let owned = &self.volumes[which];
        let (size, content) = (owned.size, owned.content.clone());
        let source = owned.volume.volume_id.clone();
        let call = |client: Client| {
            let (name, source) = (name.clone(), source.clone());
            async move { client.snapshot(&name, &source).await }
        };
        let made = self.controllers("CreateSnapshot", call).await;
        assert!(made.ready_to_use);
        self.snapshots.push(OwnedSnapshot { id: made.snapshot_id, size, content });
    }

    async fn delete_snapshot(&mut self) {
        let which = self.any_below(self.snapshots.len());
        let snapshot = self.snapshots.swap_remove(which);
        let call = |client: Client| {
            let id = snapshot.id.clone();
            async move { client.delete_snapshot(&id).await }
        };
        self.controllers("DeleteSnapshot", call).await;
    }

    async fn grow(&mut self, which: usize) {
        let owned = &mut self.volumes[which];
        owned.size += 16 * MIB;
        let (id, size) = (owned.volume.volume_id.clone(), owned.size);
        let is_in_use = owned.reach == Reach::InUse;
        let call = |client: Client| {
            let id = id.clone();
            async move { client.expand(&id, size).await }
        };
        let grown = self.controllers("ControllerExpandVolume", call).await;
        assert_eq!(grown.capacity_bytes, int(size));
        if is_in_use {
            let call = |used: OnNode| async move { used.expand(size).await };
            self.node("NodeExpandVolume", which, call).await;
            assert_size(self.volumes[which].used.as_ref().unwrap(), size);
        }
    }

    /// All the way up; what it holds is compared and changed.
    async fn use_it(&mut self, which: usize) {
        self.raise(which).await;
        self.check(which);
        for _ in 0..self.rng.u64(..3) {
            let (piece, seed) = (self.any_below(PIECES), self.rng.u64(..));
            let owned = &mut self.volumes[which];
            owned.content.write(&owned.used.as_ref().unwrap().data_path(), piece, seed);
        }
        self.check(which);
    }

    fn check(&self, which: usize) {
        let owned = &self.volumes[which];
        owned.content.check(&owned.used.as_ref().unwrap().data_path(), &owned.name);
    }

    async fn raise(&mut self, which: usize) {
        if self.volumes[which].reach == Reach::Away {
            self.attach(which).await;
        }
        if self.volumes[which].reach == Reach::Attached {
            let call = |used: OnNode| async move { used.stage().await };
            self.node("NodeStageVolume", which, call).await;
            self.volumes[which].reach = Reach::Staged;
        }
        if self.volumes[which].reach == Reach::Staged {
            let call = |used: OnNode| async move { used.publish().await };
            self.node("NodePublishVolume", which, call).await;
            self.volumes[which].reach = Reach::InUse;
        }
    }

    async fn attach(&mut self, which: usize) {
        let node = self.any_below(self.nodes.len());
        let endpoint = self.nodes[node].clone();
        let (name, capability) = (endpoint.name(), self.capability.clone());
        let mut used = endpoint.client.on_node(&self.volumes[which].volume, capability.clone());
        let id = used.id.clone();
        let call = |client: Client| {
            let (id, capability) = (id.clone(), capability.clone());
            async move { client.controller_publish(&id, name, capability, false).await }
        };
        used.publish_context = self.controllers("ControllerPublishVolume", call).await;
        let owned = &mut self.volumes[which];
        (owned.node, owned.used, owned.reach) = (node, Some(used), Reach::Attached);
    }

    async fn lower(&mut self, which: usize, to: Reach) {
        if self.volumes[which].reach == Reach::InUse && to < Reach::InUse {
            let call = |used: OnNode| async move { used.unpublish().await };
            self.node("NodeUnpublishVolume", which, call).await;
            self.volumes[which].reach = Reach::Staged;
        }
        if self.volumes[which].reach == Reach::Staged && to < Reach::Staged {
            let call = |used: OnNode| async move { used.unstage().await };
            self.node("NodeUnstageVolume", which, call).await;
            self.volumes[which].reach = Reach::Attached;
        }
        if self.volumes[which].reach == Reach::Attached && to < Reach::Attached {
            let owned = &self.volumes[which];
            let (id, name) = (owned.volume.volume_id.clone(), self.nodes[owned.node].name());
            let call = |client: Client| {
                let id = id.clone();
                async move { client.controller_unpublish(&id, name).await }
            };
            self.controllers("ControllerUnpublishVolume", call).await;
            self.volumes[which].reach = Reach::Away;
        }
    }

    async fn delete(&mut self, which: usize) {
        self.lower(which, Reach::Away).await;
        let owned = self.volumes.swap_remove(which);
        let id = owned.volume.volume_id;
        let call = |client: Client| {
            let id = id.clone();
            async move { client.delete(&id).await }
        };
        self.controllers("DeleteVolume", call).await;
    }

    /// Also what the snapshots hold.
    pub(crate) async fn check_everything(&mut self) {
        for which in 0..self.volumes.len() {
            self.raise(which).await;
            self.check(which);
        }
        for which in 0..self.snapshots.len() {
            self.restore(which).await;
            let restored = self.volumes.len() - 1;
            self.raise(restored).await;
            self.check(restored);
        }
    }

    pub(crate) async fn delete_everything(&mut self) {
        while !self.volumes.is_empty() {
            self.delete(0).await;
        }
        while !self.snapshots.is_empty() {
            self.delete_snapshot().await;
        }
    }
}
