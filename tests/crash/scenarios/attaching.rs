//! What the controller says about nodes, and limits.

use orlop_tests::{Answer, MIB, OnNode, block, device_at, v1};

use crate::walk::{Scenario, Stroll};
use crate::world::{NODE, World, settled};

pub(crate) async fn all(stroll: &mut impl Stroll) {
    stroll.walk(&Attach { back: false }).await;
    stroll.walk(&Attach { back: true }).await;
    stroll.walk(&Modify).await;
}

struct Attach {
    back: bool,
}

async fn volume(world: &World, tag: &str) -> v1::Volume {
    world.client().create(tag).size(32 * MIB).block().done().await
}

async fn attach(world: &World, volume: &v1::Volume) -> Answer<()> {
    let client = world.client();
    client.controller_publish(&volume.volume_id, NODE, block(), false).await.map(drop)
}

async fn detach(world: &World, volume: &v1::Volume) -> Answer<()> {
    world.client().controller_unpublish(&volume.volume_id, NODE).await
}

impl Scenario for Attach {
    type State = v1::Volume;

    fn name(&self) -> &'static str {
        if self.back { "controller-unpublish" } else { "controller-publish" }
    }

    fn rpc(&self) -> &'static str {
        match self.back {
            false => "csi.v1.Controller/ControllerPublishVolume",
            true => "csi.v1.Controller/ControllerUnpublishVolume",
        }
    }

    async fn prepare(&self, world: &World, tag: &str) -> v1::Volume {
        let volume = volume(world, tag).await;
        self.take_back(world, &volume).await;
        volume
    }

    async fn call(&self, world: &World, volume: &v1::Volume) -> Answer<()> {
        if self.back { detach(world, volume).await } else { attach(world, volume).await }
    }

    async fn holds(&self, world: &World, volume: &v1::Volume) {
        let got = world.client().get_volume(&volume.volume_id).await.expect("the volume");
        let nodes = got.status.expect("a status").published_node_ids;
        assert_eq!(nodes.is_empty(), self.back, "{nodes:?}");
    }

    async fn take_back(&self, world: &World, volume: &v1::Volume) {
        match self.back {
            false => settled("unpublish", || detach(world, volume)).await,
            true => settled("publish", || attach(world, volume)).await,
        }
    }

    async fn clear(&self, world: &World, volume: v1::Volume) {
        detach(world, &volume).await.expect("unpublish");
        world.client().delete(&volume.volume_id).await.expect("delete");
    }
}

/// Of a volume in use, so that the limits go to the kernel too.
struct Modify;

impl Modify {
    const LIMITS: [(&str, &str); 2] = [("readIops", "1000"), ("writeIops", "900")];
    const LIFTED: [(&str, &str); 2] = [("readIops", "0"), ("writeIops", "0")];
}

impl Scenario for Modify {
    type State = OnNode;

    fn name(&self) -> &'static str {
        "modify"
    }

    fn rpc(&self) -> &'static str {
        "csi.v1.Controller/ControllerModifyVolume"
    }

    async fn prepare(&self, world: &World, tag: &str) -> OnNode {
        let volume = volume(world, tag).await;
        let node = world.client().on_node(&volume, block());
        node.up().await;
        node
    }

    async fn call(&self, world: &World, node: &OnNode) -> Answer<()> {
        world.client().modify(&node.id, &Self::LIMITS).await
    }

    async fn holds(&self, world: &World, node: &OnNode) {
        let limits = world.workloads.limits_of(device_at(node));
        assert_eq!(limits, [("readIops", 1000), ("writeIops", 900)]);
    }

    async fn take_back(&self, world: &World, node: &OnNode) {
        settled("lift", || world.client().modify(&node.id, &Self::LIFTED)).await;
        assert_eq!(world.workloads.limits_of(device_at(node)), []);
    }

    async fn clear(&self, world: &World, node: OnNode) {
        node.down().await;
        world.client().delete(&node.id).await.expect("delete");
    }
}
