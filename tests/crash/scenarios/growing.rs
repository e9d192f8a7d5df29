//! Volumes become larger, and give back what they do not use.

use orlop_tests::reclaimspace::reclaim_space_controller_client::ReclaimSpaceControllerClient;
use orlop_tests::reclaimspace::reclaim_space_node_client::ReclaimSpaceNodeClient;
use orlop_tests::{
    Answer, MIB, OnNode, Pattern, assert_size, block, int, mount, reclaimspace, write_direct,
};

use crate::each_crash_point::{Scenario, ScenarioRunner};
use crate::fixture::{Fixture, settled};

const DATA: Pattern = Pattern::new(7);
const WRITTEN: u64 = 128 << 10;
const SMALL: u64 = 320 * MIB;
const GROWN: u64 = 640 * MIB;

pub(crate) async fn all(runner: &mut impl ScenarioRunner) {
    of_encrypted(runner).await;
    runner.run(&Reclaim { on_node: false }).await;
}

/// The controller looks for zeroes, and in what is encrypted there are none.
pub(crate) async fn of_encrypted(runner: &mut impl ScenarioRunner) {
    runner.run(&Grow { fs: "xfs", on_node: false }).await;
    // A mounted ext4 grows only with a capability that not every machine gives to tests.
    for fs in ["xfs", "btrfs"] {
        runner.run(&Grow { fs, on_node: true }).await;
    }
    runner.run(&Reclaim { on_node: true }).await;
}

/// What the controller does, or the node after it.
struct Grow {
    fs: &'static str,
    on_node: bool,
}

impl Scenario for Grow {
    type State = OnNode;

    fn name(&self) -> &'static str {
        match (self.fs, self.on_node) {
            (_, false) => "controller-expand",
            ("btrfs", true) => "node-expand-btrfs",
            (_, true) => "node-expand-xfs",
        }
    }

    fn rpc(&self) -> &'static str {
        match self.on_node {
            false => "csi.v1.Controller/ControllerExpandVolume",
            true => "csi.v1.Node/NodeExpandVolume",
        }
    }

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> OnNode {
        let client = fixture.client();
        let create = client.create(tag).size(SMALL).fs(self.fs);
        let node = client.on_node(&create.done().await, mount(self.fs));
        node.up().await;
        DATA.write(&node.data_path(), WRITTEN);
        if self.on_node {
            client.expand(&node.id, GROWN).await.expect("expand");
        }
        node
    }

    async fn call(&self, fixture: &Fixture, node: &OnNode) -> Answer<()> {
        if self.on_node {
            return node.expand(GROWN).await.map(drop);
        }
        fixture.client().expand(&node.id, GROWN).await.map(drop)
    }

    async fn holds(&self, fixture: &Fixture, node: &OnNode) {
        let volume = fixture.client().get_volume(&node.id).await.expect("the volume").volume;
        assert_eq!(volume.expect("a volume").capacity_bytes, int(GROWN));
        settled("node expand", || node.expand(GROWN)).await;
        assert_size(node, GROWN);
        DATA.check(&node.data_path(), WRITTEN);
    }

    /// There is no way back to a smaller volume but a new one.
    async fn roll_back(&self, fixture: &Fixture, node: &OnNode) {
        DATA.check(&node.data_path(), WRITTEN);
        settled("unpublish", || node.unpublish()).await;
        settled("unstage", || node.unstage()).await;
        settled("delete", || fixture.client().delete(&node.id)).await;
        assert_eq!(self.prepare(fixture, self.name()).await.id, node.id);
    }

    async fn clear(&self, fixture: &Fixture, node: OnNode) {
        node.down().await;
        fixture.client().delete(&node.id).await.expect("delete");
    }
}

/// On the node what a filesystem does not use, on the pool blocks of zeroes.
struct Reclaim {
    on_node: bool,
}

impl Reclaim {
    const WASTE: u64 = 2 * MIB;

    /// Writes what is to be given back: a file that is removed, or zeroes.
    async fn waste(&self, node: &OnNode) {
        if self.on_node {
            let waste = node.target.join("waste");
            DATA.write(&waste, Self::WASTE);
            std::fs::remove_file(&waste).expect("remove the waste");
            return;
        }
        settled("stage", || node.stage()).await;
        settled("publish", || node.publish()).await;
        let zeroes = vec![0; usize::try_from(Self::WASTE).expect("a small number")];
        write_direct(&node.target, MIB, &zeroes).expect("write zeroes");
        node.down().await;
    }
}

impl Scenario for Reclaim {
    type State = OnNode;

    fn name(&self) -> &'static str {
        if self.on_node { "node-reclaim" } else { "controller-reclaim" }
    }

    fn rpc(&self) -> &'static str {
        match self.on_node {
            true => "reclaimspace.ReclaimSpaceNode/NodeReclaimSpace",
            false => "reclaimspace.ReclaimSpaceController/ControllerReclaimSpace",
        }
    }

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> OnNode {
        let capability = if self.on_node { mount("ext4") } else { block() };
        let create = fixture.client().create(tag).size(64 * MIB).capability(capability.clone());
        let node = fixture.client().on_node(&create.done().await, capability);
        node.up().await;
        DATA.write(&node.data_path(), WRITTEN);
        if !self.on_node {
            node.down().await;
        }
        self.waste(&node).await;
        node
    }

    async fn call(&self, fixture: &Fixture, node: &OnNode) -> Answer<()> {
        let (channel, volume_id) = (fixture.client().channel(), node.id.clone());
        if self.on_node {
            let request = reclaimspace::NodeReclaimSpaceRequest {
                volume_id,
                volume_path: node.target.to_str().expect("text").to_owned(),
                staging_target_path: node.staging.to_str().expect("text").to_owned(),
                volume_capability: Some(node.capability.clone()),
                ..Default::default()
            };
            let mut client = ReclaimSpaceNodeClient::new(channel);
            return client.node_reclaim_space(request).await.map(drop);
        }
        let request =
            reclaimspace::ControllerReclaimSpaceRequest { volume_id, ..Default::default() };
        let mut client = ReclaimSpaceControllerClient::new(channel);
        client.controller_reclaim_space(request).await.map(drop)
    }

    async fn holds(&self, fixture: &Fixture, node: &OnNode) {
        if self.on_node {
            DATA.check(&node.data_path(), WRITTEN);
            return;
        }
        if let Some(taken) = fixture.pool.stored_bytes(&node.id) {
            assert!(taken < MIB, "{taken} bytes are taken");
        }
        node.up().await;
        DATA.check(&node.data_path(), WRITTEN);
        node.down().await;
    }

    async fn roll_back(&self, _: &Fixture, node: &OnNode) {
        self.waste(node).await;
    }

    async fn clear(&self, fixture: &Fixture, node: OnNode) {
        if self.on_node {
            node.down().await;
        }
        fixture.client().delete(&node.id).await.expect("delete");
    }
}
