//! Which nodes a controller knows, and two daemons that go by the name of one node.

use std::fs::File;
use std::time::Instant;

use orlop_tests::*;

use crate::ceph::{TIMEOUT, VOLUME, delete, down_from, up_on};

const ROUNDS: usize = 3;

/// An operator, or a repair of the cluster, has removed the object that nodes are known by.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_register_again() {
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
    let deadline = Instant::now() + TIMEOUT;
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

/// A copied configuration, or a daemon that is started again before the former one has ended.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_daemons_with_one_node_id_gets_the_volume() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("twin-c").await;
    let twins = [ceph.node("twin").await, ceph.node("twin").await];
    let client = controller.client();
    let volume = client.create("of twins").size(VOLUME).block().done().await;
    let context = client.controller_publish(&volume.volume_id, "twin", block(), false).await;
    let used = twins.each_ref().map(|twin| {
        let mut used = twin.client().on_node(&volume, block());
        used.publish_context = context.clone().unwrap();
        used
    });
    let mut staged_twice = 0;
    for _ in 0..ROUNDS {
        let staged = tokio::join!(used[0].stage(), used[1].stage());
        staged_twice += usize::from(staged.0.is_ok() && staged.1.is_ok());
        let mut writers = 0;
        for (used, staged) in used.iter().zip([staged.0, staged.1]) {
            let is_staged = staged.is_ok();
            let published = match staged {
                Ok(()) => used.publish().await,
                refused => refused,
            };
            match published {
                Ok(()) => {
                    Pattern::new(1).write(&used.target, 4 * MIB);
                    writers += 1;
                    used.down().await;
                }
                Err(status) => {
                    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
                    // One that was taken from the daemon after it was staged.
                    if is_staged {
                        used.unstage().await.unwrap();
                    }
                }
            }
        }
        assert_eq!(writers, 1);
    }
    // One that begins when the other is noted and has no device yet stops that one's client.
    assert!(staged_twice < ROUNDS, "neither was refused");
    client.controller_unpublish(&volume.volume_id, "twin").await.unwrap();
    delete(&client, &volume.volume_id).await;
}

/// Who has a device open may stay for long, as an agent that looks at all devices does.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_staged_again_after_a_refused_unstage() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("held-c").await;
    let node = ceph.node("held-n").await;
    let client = controller.client();
    let volume = client.create("held").size(VOLUME).block().done().await;
    let used = up_on(&client, &node, "held-n", &volume, block()).await;
    let device = used.device();
    used.unpublish().await.unwrap();
    let user = File::open(&device).unwrap();
    expect_code(used.unstage().await, Code::FailedPrecondition);
    used.stage().await.unwrap();
    drop(user);
    used.publish().await.unwrap();
    assert_eq!(used.device(), device);
    Pattern::new(1).write(&used.target, 4 * MIB);
    down_from(&client, "held-n", &used).await;
    delete(&client, &volume.volume_id).await;
}
