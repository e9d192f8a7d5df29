//! Snapshots, restored volumes and clones, of volumes at rest and in use.

use orlop_tests::{Answer, Client, Code, MIB, OnNode, Pattern, block, expect_code, mount, v1};

use crate::each_crash_point::{Scenario, ScenarioRunner};
use crate::fixture::{Fixture, settled};

const DATA: Pattern = Pattern::new(5);
const WRITTEN: u64 = 256 << 10;

pub(crate) async fn all(runner: &mut impl ScenarioRunner) {
    snapshots(runner).await;
    copies(runner).await;
}

/// Copies in an lvm pool are thin.
pub(crate) async fn on_lvm(runner: &mut impl ScenarioRunner) {
    snapshots(runner).await;
    thin_copies(runner).await;
}

pub(crate) async fn copies(runner: &mut impl ScenarioRunner) {
    thin_copies(runner).await;
    runner.run(&Copy { from_snapshot: true, thick: true }).await;
}

async fn snapshots(runner: &mut impl ScenarioRunner) {
    runner.run(&CreateSnapshot { in_use: false }).await;
    runner.run(&CreateSnapshot { in_use: true }).await;
    runner.run(&DeleteSnapshot).await;
}

async fn thin_copies(runner: &mut impl ScenarioRunner) {
    runner.run(&Copy { from_snapshot: true, thick: false }).await;
    runner.run(&Copy { from_snapshot: false, thick: false }).await;
}

/// A volume with known data, on the node or not.
pub(crate) struct Source {
    pub(crate) node: OnNode,
    pub(crate) tag: String,
    in_use: bool,
}

impl Source {
    /// Mounted if it stays in use, so that it has to be frozen.
    pub(crate) async fn new(client: &Client, tag: &str, in_use: bool) -> Self {
        let capability = if in_use { mount("xfs") } else { block() };
        let size = if in_use { 320 } else { 32 };
        let create = client.create(&format!("{tag}-source")).size(size * MIB);
        let volume = create.capability(capability.clone()).done().await;
        let node = client.on_node(&volume, capability);
        node.up().await;
        DATA.write(&node.data_path(), WRITTEN);
        if !in_use {
            node.down().await;
        }
        Self { node, tag: tag.to_owned(), in_use }
    }

    pub(crate) fn id(&self) -> &str {
        &self.node.id
    }

    pub(crate) async fn clear(self, client: &Client) {
        if self.in_use {
            self.node.down().await;
        }
        client.delete(self.id()).await.expect("delete a source");
    }

    /// It takes writes; would hang if its filesystem were still frozen.
    pub(crate) fn assert_writable(&self) {
        if self.in_use {
            DATA.write(&self.node.target.join("after"), 4096);
        }
    }

    /// What comes out of the snapshot is what went in.
    pub(crate) async fn check_copy(&self, client: &Client, snapshot: &v1::Snapshot) {
        let copy = client.create(&format!("{}-copy", self.tag)).size(320 * MIB);
        let copy = copy.capability(self.node.capability.clone());
        let copy = copy.from_snapshot(&snapshot.snapshot_id).done().await;
        let on_node = client.on_node(&copy, self.node.capability.clone());
        on_node.up().await;
        DATA.check(&on_node.data_path(), WRITTEN);
        on_node.down().await;
        client.delete(&copy.volume_id).await.expect("delete the copy");
    }
}

struct CreateSnapshot {
    in_use: bool,
}

impl Scenario for CreateSnapshot {
    /// The id that the snapshot is going to have.
    type State = (Source, String);

    fn name(&self) -> &'static str {
        if self.in_use { "snapshot-in-use" } else { "snapshot" }
    }

    fn rpc(&self) -> &'static str {
        "csi.v1.Controller/CreateSnapshot"
    }

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> Self::State {
        let client = fixture.client();
        let source = Source::new(client, tag, self.in_use).await;
        let snapshot = client.snapshot(tag, source.id()).await.expect("a snapshot");
        client.delete_snapshot(&snapshot.snapshot_id).await.expect("delete it");
        (source, snapshot.snapshot_id)
    }

    async fn call(&self, fixture: &Fixture, (source, _): &Self::State) -> Answer<()> {
        fixture.client().snapshot(&source.tag, source.id()).await.map(drop)
    }

    async fn holds(&self, fixture: &Fixture, (source, _): &Self::State) {
        source.assert_writable();
        let client = fixture.client();
        let snapshot = client.snapshot(&source.tag, source.id()).await.expect("the snapshot");
        source.check_copy(client, &snapshot).await;
    }

    async fn roll_back(&self, fixture: &Fixture, (source, snapshot): &Self::State) {
        settled("delete", || fixture.client().delete_snapshot(snapshot)).await;
        source.assert_writable();
    }

    async fn clear(&self, fixture: &Fixture, (source, _): Self::State) {
        source.clear(fixture.client()).await;
    }
}

struct DeleteSnapshot;

impl Scenario for DeleteSnapshot {
    type State = (Source, v1::Snapshot);

    fn name(&self) -> &'static str {
        "delete-snapshot"
    }

    fn rpc(&self) -> &'static str {
        "csi.v1.Controller/DeleteSnapshot"
    }

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> Self::State {
        let source = Source::new(fixture.client(), tag, false).await;
        let snapshot = fixture.client().snapshot(tag, source.id()).await.expect("a snapshot");
        (source, snapshot)
    }

    async fn call(&self, fixture: &Fixture, (_, snapshot): &Self::State) -> Answer<()> {
        fixture.client().delete_snapshot(&snapshot.snapshot_id).await
    }

    async fn holds(&self, fixture: &Fixture, (source, snapshot): &Self::State) {
        let copy = fixture.client().create(&format!("{}-none", source.tag)).size(32 * MIB).block();
        expect_code(copy.from_snapshot(&snapshot.snapshot_id).send().await, Code::NotFound);
    }

    async fn roll_back(&self, fixture: &Fixture, (source, snapshot): &Self::State) {
        let again =
            settled("take the snapshot", || fixture.client().snapshot(&source.tag, source.id()))
                .await;
        assert_eq!(again.snapshot_id, snapshot.snapshot_id);
    }

    async fn clear(&self, fixture: &Fixture, (source, snapshot): Self::State) {
        let client = fixture.client();
        client.delete_snapshot(&snapshot.snapshot_id).await.expect("delete");
        source.clear(client).await;
    }
}

/// Larger than its source, so that it grows as well.
struct Copy {
    from_snapshot: bool,
    thick: bool,
}

pub(crate) struct Copied {
    source: Source,
    snapshot: Option<v1::Snapshot>,
    /// The id that the copy is going to have.
    id: String,
}

impl Copy {
    async fn request(
        &self,
        fixture: &Fixture,
        source: &Source,
        snapshot: Option<&v1::Snapshot>,
    ) -> Answer<v1::Volume> {
        let create = fixture.client().create(&source.tag).size(48 * MIB).block();
        let create = if self.thick { create.thick() } else { create };
        let create = match snapshot {
            Some(snapshot) => create.from_snapshot(&snapshot.snapshot_id),
            None => create.from_volume(source.id()),
        };
        create.send().await
    }
}

impl Scenario for Copy {
    type State = Copied;

    fn name(&self) -> &'static str {
        match (self.from_snapshot, self.thick) {
            (true, false) => "restore",
            (false, false) => "clone",
            (true, true) => "restore-thick",
            (false, true) => "clone-thick",
        }
    }

    fn rpc(&self) -> &'static str {
        "csi.v1.Controller/CreateVolume"
    }

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> Copied {
        let client = fixture.client();
        let source = Source::new(client, tag, false).await;
        let mut snapshot = None;
        if self.from_snapshot {
            let taken = client.snapshot(&format!("{tag}-snapshot"), source.id()).await;
            snapshot = Some(taken.expect("a snapshot"));
        }
        let copy = self.request(fixture, &source, snapshot.as_ref()).await.expect("a copy");
        client.delete(&copy.volume_id).await.expect("delete it");
        Copied { source, snapshot, id: copy.volume_id }
    }

    async fn call(&self, fixture: &Fixture, state: &Copied) -> Answer<()> {
        self.request(fixture, &state.source, state.snapshot.as_ref()).await.map(drop)
    }

    async fn holds(&self, fixture: &Fixture, state: &Copied) {
        let volume = self.request(fixture, &state.source, state.snapshot.as_ref()).await;
        let node = fixture.client().on_node(&volume.expect("the copy"), block());
        node.up().await;
        DATA.check(&node.target, WRITTEN);
        node.down().await;
    }

    async fn roll_back(&self, fixture: &Fixture, state: &Copied) {
        settled("delete", || fixture.client().delete(&state.id)).await;
    }

    async fn clear(&self, fixture: &Fixture, state: Copied) {
        let client = fixture.client();
        if let Some(snapshot) = &state.snapshot {
            client.delete_snapshot(&snapshot.snapshot_id).await.expect("delete");
        }
        state.source.clear(client).await;
    }
}
