//! Snapshots, restored volumes and clones, of volumes at rest and in use.

use orlop_tests::{Answer, Client, Code, MIB, OnNode, Pattern, block, expect_code, mount, v1};

use crate::walk::{Scenario, Walk};
use crate::world::{World, settled};

const DATA: Pattern = Pattern::new(5);
const WRITTEN: u64 = 2 * MIB;

pub(crate) async fn all(walk: &mut Walk) {
    walk.walk(&CreateSnapshot { in_use: false }).await;
    walk.walk(&CreateSnapshot { in_use: true }).await;
    walk.walk(&DeleteSnapshot).await;
    walk.walk(&Copy { from_snapshot: true }).await;
    walk.walk(&Copy { from_snapshot: false }).await;
}

/// A volume with known data, on the node or not.
pub(crate) struct Source {
    pub(crate) volume: v1::Volume,
    pub(crate) node: OnNode,
    pub(crate) tag: String,
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
        Self { volume, node, tag: tag.to_owned() }
    }

    pub(crate) fn id(&self) -> &str {
        &self.volume.volume_id
    }

    pub(crate) async fn undo(&self, client: &Client) {
        settled("unpublish", || self.node.unpublish()).await;
        settled("unstage", || self.node.unstage()).await;
        settled("delete", || client.delete(self.id())).await;
    }
}

struct CreateSnapshot {
    in_use: bool,
}

impl Scenario for CreateSnapshot {
    type State = Source;

    fn name(&self) -> &'static str {
        if self.in_use { "snapshot-in-use" } else { "snapshot" }
    }

    async fn prepare(&self, world: &World, tag: &str) -> Source {
        Source::new(world.client(), tag, self.in_use).await
    }

    async fn call(&self, world: &World, source: &Source) -> Answer<()> {
        world.client().snapshot(&source.tag, source.id()).await.map(drop)
    }

    async fn holds(&self, world: &World, source: &Source) {
        if self.in_use {
            // Would hang if the filesystem were still frozen.
            DATA.write(&source.node.target.join("after"), 4096);
        }
        let client = world.client();
        let snapshot = client.snapshot(&source.tag, source.id()).await.expect("the snapshot");
        check_copy(client, &snapshot, source).await;
    }

    async fn undo(&self, world: &World, source: &Source) {
        let client = world.client();
        let snapshot = settled("snapshot", || client.snapshot(&source.tag, source.id())).await;
        settled("delete", || client.delete_snapshot(&snapshot.snapshot_id)).await;
        source.undo(client).await;
    }
}

/// What comes out of the snapshot is what went in.
pub(crate) async fn check_copy(client: &Client, snapshot: &v1::Snapshot, source: &Source) {
    let copy = client.create(&format!("{}-copy", source.tag)).size(320 * MIB);
    let copy = copy.capability(source.node.capability.clone());
    let copy = copy.from_snapshot(&snapshot.snapshot_id).done().await;
    let on_node = client.on_node(&copy, source.node.capability.clone());
    on_node.up().await;
    DATA.check(&on_node.data_path(), WRITTEN);
    on_node.down().await;
    client.delete(&copy.volume_id).await.expect("delete the copy");
}

struct DeleteSnapshot;

impl Scenario for DeleteSnapshot {
    type State = (Source, v1::Snapshot);

    fn name(&self) -> &'static str {
        "delete-snapshot"
    }

    async fn prepare(&self, world: &World, tag: &str) -> Self::State {
        let source = Source::new(world.client(), tag, false).await;
        let snapshot = world.client().snapshot(tag, source.id()).await.expect("a snapshot");
        (source, snapshot)
    }

    async fn call(&self, world: &World, (_, snapshot): &Self::State) -> Answer<()> {
        world.client().delete_snapshot(&snapshot.snapshot_id).await
    }

    async fn holds(&self, world: &World, (source, snapshot): &Self::State) {
        let copy = world.client().create(&format!("{}-none", source.tag)).size(32 * MIB).block();
        expect_code(copy.from_snapshot(&snapshot.snapshot_id).send().await, Code::NotFound);
    }

    async fn undo(&self, world: &World, (source, snapshot): &Self::State) {
        settled("delete", || world.client().delete_snapshot(&snapshot.snapshot_id)).await;
        source.undo(world.client()).await;
    }
}

struct Copy {
    from_snapshot: bool,
}

impl Copy {
    async fn request(
        &self,
        world: &World,
        state: &(Source, Option<v1::Snapshot>),
    ) -> Answer<v1::Volume> {
        let (source, snapshot) = state;
        // Larger than its source, so that it grows as well.
        let create = world.client().create(&source.tag).size(48 * MIB).block();
        let create = match snapshot {
            Some(snapshot) => create.from_snapshot(&snapshot.snapshot_id),
            None => create.from_volume(source.id()),
        };
        create.send().await
    }
}

impl Scenario for Copy {
    type State = (Source, Option<v1::Snapshot>);

    fn name(&self) -> &'static str {
        if self.from_snapshot { "restore" } else { "clone" }
    }

    async fn prepare(&self, world: &World, tag: &str) -> Self::State {
        let client = world.client();
        let source = Source::new(client, tag, false).await;
        if !self.from_snapshot {
            return (source, None);
        }
        let snapshot = client.snapshot(&format!("{tag}-cut"), source.id()).await;
        (source, Some(snapshot.expect("a snapshot")))
    }

    async fn call(&self, world: &World, state: &Self::State) -> Answer<()> {
        self.request(world, state).await.map(drop)
    }

    async fn holds(&self, world: &World, state: &Self::State) {
        let volume = self.request(world, state).await.expect("the copy");
        let node = world.client().on_node(&volume, block());
        node.up().await;
        DATA.check(&node.target, WRITTEN);
        node.down().await;
    }

    async fn undo(&self, world: &World, state: &Self::State) {
        let client = world.client();
        let volume = settled("create", || self.request(world, state)).await;
        settled("delete", || client.delete(&volume.volume_id)).await;
        if let Some(snapshot) = &state.1 {
            settled("delete", || client.delete_snapshot(&snapshot.snapshot_id)).await;
        }
        state.0.undo(client).await;
    }
}
