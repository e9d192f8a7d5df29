//! What the controller says about nodes, and limits.

use orlop_tests::{Answer, MIB, OnNode, block, device_at, v1};

use crate::each_crash_point::{Scenario, ScenarioRunner};
use crate::fixture::{Fixture, NODE, settled};

pub(crate) async fn all(runner: &mut impl ScenarioRunner) {
    runner.run(&Attach { back: false }).await;
    runner.run(&Attach { back: true }).await;
    runner.run(&Modify).await;
}

struct Attach {
    back: bool,
}

async fn volume(fixture: &Fixture, tag: &str) -> v1::Volume {
    fixture.client().create(tag).size(32 * MIB).block().done().await
}

async fn attach(fixture: &Fixture, volume: &v1::Volume) -> Answer<()> {
    let client = fixture.client();
    client.controller_publish(&volume.volume_id, NODE, block(), false).await.map(drop)
}

async fn detach(fixture: &Fixture, volume: &v1::Volume) -> Answer<()> {
    fixture.client().controller_unpublish(&volume.volume_id, NODE).await
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

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> v1::Volume {
        let volume = volume(fixture, tag).await;
        self.roll_back(fixture, &volume).await;
        volume
    }

    async fn call(&self, fixture: &Fixture, volume: &v1::Volume) -> Answer<()> {
        if self.back { detach(fixture, volume).await } else { attach(fixture, volume).await }
    }

    async fn holds(&self, fixture: &Fixture, volume: &v1::Volume) {
        let got = fixture.client().get_volume(&volume.volume_id).await.expect("the volume");
        let nodes = got.status.expect("a status").published_node_ids;
        assert_eq!(nodes.is_empty(), self.back, "{nodes:?}");
    }

    async fn roll_back(&self, fixture: &Fixture, volume: &v1::Volume) {
        match self.back {
            false => settled("unpublish", || detach(fixture, volume)).await,
            true => settled("publish", || attach(fixture, volume)).await,
        }
    }

    async fn clear(&self, fixture: &Fixture, volume: v1::Volume) {
        detach(fixture, &volume).await.expect("unpublish");
        fixture.client().delete(&volume.volume_id).await.expect("delete");
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

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> OnNode {
        let volume = volume(fixture, tag).await;
        let node = fixture.client().on_node(&volume, block());
        node.up().await;
        node
    }

    async fn call(&self, fixture: &Fixture, node: &OnNode) -> Answer<()> {
        fixture.client().modify(&node.id, &Self::LIMITS).await
    }

    async fn holds(&self, fixture: &Fixture, node: &OnNode) {
        let limits = fixture.workloads.limits_of(device_at(node));
        assert_eq!(limits, [("readIops", 1000), ("writeIops", 900)]);
    }

    async fn roll_back(&self, fixture: &Fixture, node: &OnNode) {
        settled("lift", || fixture.client().modify(&node.id, &Self::LIFTED)).await;
        assert_eq!(fixture.workloads.limits_of(device_at(node)), []);
    }

    async fn clear(&self, fixture: &Fixture, node: OnNode) {
        node.down().await;
        fixture.client().delete(&node.id).await.expect("delete");
    }
}
