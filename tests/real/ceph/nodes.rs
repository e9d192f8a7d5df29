//! Which nodes a controller knows, and two daemons that go by the name of one node.

use std::time::Instant;

use orlop_tests::*;

use crate::{PATIENCE, VOLUME, delete};

/// An operator, or a repair of the cluster, has removed the object that nodes are known by.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_make_themselves_known_again() {
    needs_root!();
    let ceph = TestCeph::shared();
    ceph.rbd(&["namespace", "create", "rbd/nodes-lost"]);
    let launch = |name, mode| ceph.launch(name, mode).env("ORLOP_RBD_NAMESPACE", "nodes-lost");
    let controller = launch("lost-c", "controller").start().await;
    let node = launch("lost-n", "node").start().await;
    let client = controller.client();
    let mut volumes = Vec::new();
    for name in ["before", "after"] {
        volumes.push(client.create(name).size(VOLUME).block().done().await.volume_id);
    }
    client.controller_publish(&volumes[0], "lost-n", block(), false).await.unwrap();
    ceph.remove_object("nodes-lost", "orlop.nodes");
    client.controller_publish(&volumes[0], "lost-n", block(), false).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while let Err(status) = client.controller_publish(&volumes[1], "lost-n", block(), false).await {
        assert_eq!(status.code(), Code::NotFound, "{status}");
        assert!(Instant::now() < deadline, "{status}");
        // As a supervisor asks; without it the daemon looks every half minute.
        assert!(node.client().probe().await.unwrap());
    }
    for volume in volumes {
        client.controller_unpublish(&volume, "lost-n").await.unwrap();
        delete(&client, &volume).await;
    }
}
