//! Clients that each use names of no other client: whatever the others do, a client's next answer is
//! known beforehand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use orlop_tests::*;

/// Few, so that most calls meet what earlier ones made.
const NAMES: u64 = 3;
const SIZE: u64 = MIB;
/// Far more than any call takes; reached only by one that hangs.
const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Clone)]
struct Kept {
    volume: v1::Volume,
    used: Option<OnNode>,
}

pub(crate) struct IsolatedClient {
    client: Client,
    rng: Rng,
    number: u64,
    volumes: BTreeMap<u64, Kept>,
    snapshots: BTreeMap<u64, v1::Snapshot>,
    /// The names of those snapshots that are of a deleted volume.
    former: BTreeSet<u64>,
    moments: BTreeMap<u64, v1::VolumeGroupSnapshot>,
    inline: Option<std::path::PathBuf>,
    pub(crate) calls: u64,
}

impl IsolatedClient {
    pub(crate) fn new(client: Client, seed: u64, number: u64) -> Self {
        let rng = Rng::with_seed(seed.wrapping_add(number));
        let (volumes, snapshots, former, moments) = Default::default();
        Self { client, rng, number, volumes, snapshots, former, moments, inline: None, calls: 0 }
    }

    /// Panics at the first answer that is not the expected one.
    pub(crate) async fn call_until(mut self, deadline: Instant) -> u64 {
        while Instant::now() < deadline {
            self.calls += 1;
            let step = tokio::time::timeout(TIMEOUT, self.step()).await;
            step.unwrap_or_else(|_| panic!("client {}: a call was not answered", self.number));
        }
        self.clean_up().await;
        self.calls
    }

    async fn step(&mut self) {
        let name = self.rng.u64(..NAMES);
        match self.rng.u64(..9) {
            0 | 1 => self.create(name).await,
            2 => self.delete(name).await,
            3 => self.toggle_use(name).await,
            4 => self.snapshot(name).await,
            5 => self.delete_snapshot(name).await,
            6 => self.moment(name).await,
            7 => self.toggle_inline().await,
            _ => self.compare(name).await,
        }
    }

    fn named(&self, name: u64) -> String {
        format!("client {} name {name}", self.number)
    }

    async fn create(&mut self, name: u64) {
        let wanted = self.client.create(&self.named(name)).block();
        let made = wanted.clone().size(SIZE).done().await;
        if let Some(kept) = self.volumes.get(&name) {
            assert_eq!(kept.volume, made, "the same call, another answer");
            let other = wanted.size(2 * SIZE).send().await;
            expect_code(other, Code::AlreadyExists);
        }
        self.volumes.entry(name).or_insert(Kept { volume: made, used: None });
    }

    async fn delete(&mut self, name: u64) {
        let Some(kept) = self.volumes.get(&name) else { return };
        let id = kept.volume.volume_id.clone();
        if kept.used.is_some() {
            expect_code(self.client.delete(&id).await, Code::FailedPrecondition);
            return;
        }
        for _ in 0..2 {
            self.client.delete(&id).await.unwrap();
        }
        self.volumes.remove(&name);
        if self.snapshots.contains_key(&name) {
            self.former.insert(name);
        }
        expect_code(self.client.get_volume(&id).await, Code::NotFound);
        let late = format!("{} late", self.named(name));
        expect_code(self.client.snapshot(&late, &id).await, Code::NotFound);
    }

    async fn toggle_use(&mut self, name: u64) {
        let client = self.client.clone();
        let Some(kept) = self.volumes.get_mut(&name) else { return };
        match kept.used.take() {
            Some(node) => {
                node.down().await;
                node.unpublish().await.unwrap();
                node.unstage().await.unwrap();
            }
            None => {
                let node = client.on_node(&kept.volume, block());
                expect_code(node.publish().await, Code::FailedPrecondition);
                node.up().await;
                node.up().await;
                kept.used = Some(node);
            }
        }
    }

    async fn snapshot(&mut self, name: u64) {
        let Some(kept) = self.volumes.get(&name) else { return };
        let source = kept.volume.volume_id.clone();
        let wanted = self.named(name);
        match self.snapshots.get(&name) {
            // Ids come from names: a volume that was created again has the id of the one before.
            Some(snapshot) => {
                let again = self.client.snapshot(&wanted, &source).await;
                match self.former.contains(&name) {
                    true => drop(expect_code(again, Code::AlreadyExists)),
                    false => assert_eq!(&again.unwrap(), snapshot),
                }
                let copy = self.client.create(&format!("{wanted} copy")).block();
                let copy = copy.from_snapshot(&snapshot.snapshot_id).done().await;
                self.client.delete(&copy.volume_id).await.unwrap();
            }
            None => {
                let snapshot = self.client.snapshot(&wanted, &source).await.unwrap();
                self.snapshots.insert(name, snapshot);
            }
        }
    }

    async fn delete_snapshot(&mut self, name: u64) {
        let Some(snapshot) = self.snapshots.remove(&name) else { return };
        self.former.remove(&name);
        for _ in 0..2 {
            self.client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
        }
        let copy = self.client.create(&format!("{} lost", self.named(name))).block();
        let copy = copy.from_snapshot(&snapshot.snapshot_id).send().await;
        expect_code(copy, Code::NotFound);
    }

    async fn moment(&mut self, name: u64) {
        if let Some(moment) = self.moments.remove(&name) {
            let (id, members) = (&moment.group_snapshot_id, moment.member_ids());
            assert_eq!(&self.client.get_group_snapshot(id, &members).await.unwrap(), &moment);
            let member = self.client.delete_snapshot(&members[0]).await;
            expect_code(member, Code::InvalidArgument);
            self.client.delete_group_snapshot(id, &members).await.unwrap();
            return;
        }
        let sources: Vec<_> =
            self.volumes.values().map(|kept| kept.volume.volume_id.clone()).collect();
        if !sources.is_empty() {
            let moment = self.client.group_snapshot(&self.named(name), &sources).await.unwrap();
            assert_eq!(moment.snapshots.len(), sources.len());
            self.moments.insert(name, moment);
        }
    }

    async fn toggle_inline(&mut self) {
        let id = format!("csi-{:064x}", self.number);
        match self.inline.take() {
            Some(target) => {
                for _ in 0..2 {
                    self.client.node_unpublish(&id, &target).await.unwrap();
                }
            }
            None => {
                let target = self.client.new_target(&id);
                let context = [("csi.storage.k8s.io/ephemeral", "true"), ("size", "16Mi")];
                let request = v1::NodePublishVolumeRequest {
                    volume_id: id,
                    target_path: target.to_str().unwrap().to_owned(),
                    volume_capability: Some(mount("ext4")),
                    volume_context: context.map(|(key, value)| (key.into(), value.into())).into(),
                    ..v1::NodePublishVolumeRequest::default()
                };
                for _ in 0..2 {
                    self.client.node_publish(request.clone()).await.unwrap();
                }
                self.inline = Some(target);
            }
        }
    }

    /// A stream that is left before its end.
    async fn compare(&mut self, name: u64) {
        let Some(snapshot) = self.snapshots.get(&name) else { return };
        let request = v1::GetMetadataAllocatedRequest {
            snapshot_id: snapshot.snapshot_id.clone(),
            ..v1::GetMetadataAllocatedRequest::default()
        };
        let mut metadata = self.client.snapshot_metadata();
        drop(metadata.get_metadata_allocated(request).await.unwrap());
    }

    async fn clean_up(&mut self) {
        for name in 0..NAMES {
            if self.volumes.get(&name).is_some_and(|kept| kept.used.is_some()) {
                self.toggle_use(name).await;
            }
            self.delete(name).await;
            self.delete_snapshot(name).await;
            if self.moments.contains_key(&name) {
                self.moment(name).await;
            }
        }
        if self.inline.is_some() {
            self.toggle_inline().await;
        }
    }
}
