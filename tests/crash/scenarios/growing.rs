//! Volumes become larger, and give back what they do not use.

use orlop_tests::{Answer, MIB, OnNode, Pattern, assert_size, mount};

use crate::walk::{Scenario, Walk};
use crate::world::{World, settled};

const DATA: Pattern = Pattern::new(7);
const GROWN: u64 = 640 * MIB;

pub(crate) async fn all(walk: &mut Walk) {
    walk.walk(&Grow { on_node: false }).await;
    walk.walk(&Grow { on_node: true }).await;
}

/// What the controller does, or the node after it.
struct Grow {
    on_node: bool,
}

impl Scenario for Grow {
    type State = OnNode;

    fn name(&self) -> &'static str {
        if self.on_node { "node-expand" } else { "controller-expand" }
    }

    async fn prepare(&self, world: &World, tag: &str) -> OnNode {
        let client = world.client();
        let create = client.create(tag).size(320 * MIB).fs("xfs");
        let node = client.on_node(&create.done().await, mount("xfs"));
        node.up().await;
        DATA.write(&node.data_path(), MIB);
        if self.on_node {
            client.expand(&node.id, GROWN).await.expect("expand");
        }
        node
    }

    async fn call(&self, world: &World, node: &OnNode) -> Answer<()> {
        if self.on_node {
            return node.expand(GROWN).await.map(drop);
        }
        world.client().expand(&node.id, GROWN).await.map(drop)
    }

    async fn holds(&self, world: &World, node: &OnNode) {
        let volume = world.client().get_volume(&node.id).await.expect("the volume").volume;
        assert_eq!(volume.expect("a volume").capacity_bytes, orlop_tests::int(GROWN));
        settled("node expand", || node.expand(GROWN)).await;
        assert_size(node, GROWN);
        DATA.check(&node.data_path(), MIB);
    }

    async fn undo(&self, world: &World, node: &OnNode) {
        settled("unpublish", || node.unpublish()).await;
        settled("unstage", || node.unstage()).await;
        settled("delete", || world.client().delete(&node.id)).await;
    }
}
