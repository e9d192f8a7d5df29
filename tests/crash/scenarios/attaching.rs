//! What the controller says about nodes, and limits.

use orlop_tests::{Answer, MIB, block, v1};

use crate::walk::{Scenario, Walk};
use crate::world::{NODE, World, settled};

pub(crate) async fn all(walk: &mut Walk) {
    walk.walk(&Attach { back: false }).await;
    walk.walk(&Attach { back: true }).await;
    walk.walk(&Modify).await;
}

struct Attach {
    back: bool,
}

async fn volume(world: &World, tag: &str) -> v1::Volume {
    world.client().create(tag).size(32 * MIB).block().done().await
}

impl Attach {
    async fn attach(&self, world: &World, volume: &v1::Volume) -> Answer<()> {
        let client = world.client();
        client.controller_publish(&volume.volume_id, NODE, block(), false).await.map(drop)
    }
}

impl Scenario for Attach {
    type State = v1::Volume;

    fn name(&self) -> &'static str {
        if self.back { "controller-unpublish" } else { "controller-publish" }
    }

    async fn prepare(&self, world: &World, tag: &str) -> v1::Volume {
        let volume = volume(world, tag).await;
        if self.back {
            self.attach(world, &volume).await.expect("publish");
        }
        volume
    }

    async fn call(&self, world: &World, volume: &v1::Volume) -> Answer<()> {
        if self.back {
            return world.client().controller_unpublish(&volume.volume_id, NODE).await;
        }
        self.attach(world, volume).await
    }

    async fn holds(&self, world: &World, volume: &v1::Volume) {
        let got = world.client().get_volume(&volume.volume_id).await.expect("the volume");
        let nodes = got.status.expect("a status").published_node_ids;
        assert_eq!(nodes.is_empty(), self.back, "{nodes:?}");
    }

    async fn undo(&self, world: &World, volume: &v1::Volume) {
        let (client, id) = (world.client(), &volume.volume_id);
        settled("unpublish", || client.controller_unpublish(id, NODE)).await;
        settled("delete", || client.delete(id)).await;
    }
}

/// Of a volume in use, so that the limits go to the kernel too.
struct Modify;

impl Scenario for Modify {
    type State = orlop_tests::OnNode;

    fn name(&self) -> &'static str {
        "modify"
    }

    async fn prepare(&self, world: &World, tag: &str) -> Self::State {
        let volume = volume(world, tag).await;
        let node = world.client().on_node(&volume, block());
        node.up().await;
        node
    }

    async fn call(&self, world: &World, node: &Self::State) -> Answer<()> {
        world.client().modify(&node.id, &[("readIops", "1000"), ("writeIops", "900")]).await
    }

    async fn holds(&self, _: &World, node: &Self::State) {
        let record = node.stats().await;
        assert!(record.is_ok(), "{record:?}");
    }

    async fn undo(&self, world: &World, node: &Self::State) {
        settled("unpublish", || node.unpublish()).await;
        settled("unstage", || node.unstage()).await;
        settled("delete", || world.client().delete(&node.id)).await;
    }
}
