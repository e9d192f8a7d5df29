//! Daemons that were given another pool than before, or what belongs to another node.

use std::path::PathBuf;

use orlop_tests::*;

use crate::ceph::{VOLUME, delete, down_from, up_on};

const DATA: u64 = 4 * MIB;

/// The ids name a pool that this daemon has not, and it must not say that they are gone.
async fn assert_refused(client: &Client, used: &OnNode, snapshot: &str) {
    let id = used.id.as_str();
    for deleted in [client.delete(id).await, client.delete_snapshot(snapshot).await] {
        assert_named(used, &expect_code(deleted, Code::FailedPrecondition));
    }
    let unknown = [
        client.expand(id, 2 * VOLUME).await.map(drop),
        client.snapshot("mistaken again", id).await.map(drop),
        client.get_volume(id).await.map(drop),
        client.controller_publish(id, "mistaken", block(), false).await.map(drop),
        client.create("mistaken copy").block().from_volume(id).send().await.map(drop),
        client.create("mistaken copy").block().from_snapshot(snapshot).send().await.map(drop),
        used.stage().await,
    ];
    for refused in unknown {
        assert_named(used, &expect_code(refused, Code::NotFound));
    }
    assert!(client.list_volumes().await.unwrap().is_empty());
    assert!(client.list_snapshots().await.unwrap().is_empty());
}

/// It says which pool is missing.
fn assert_named(used: &OnNode, refused: &Status) {
    let pool = used.id.split('-').nth(1).unwrap();
    assert!(refused.message().contains(&format!("pool {pool}")), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_another_pool_are_refused_and_kept() {
    needs_root!();
    let ceph = TestCeph::shared();
    ceph.rbd(&["namespace", "create", "rbd/mistaken"]);
    ceph.ceph(&["osd", "pool", "create", "mistaken", "1"]);
    let mut daemon = ceph.launch("mistaken", "all").start().await;
    let client = daemon.client();
    let volume = client.create("mistaken").size(VOLUME).block().done().await;
    let used = up_on(&client, &daemon, "mistaken", &volume, block()).await;
    Pattern::new(1).write(&used.target, DATA);
    let snapshot = client.snapshot("mistaken", &used.id).await.unwrap().snapshot_id;
    daemon.terminate();

    let administrator = ceph.keyring().with_file_name("client.admin.keyring");
    let launch = daemon.launch().clone();
    let namespace = launch.clone().env("ORLOP_RBD_NAMESPACE", "mistaken");
    let pool = launch.env("ORLOP_RBD_POOL", "mistaken").env("ORLOP_RBD_USER", "admin");
    let pool = pool.env("ORLOP_RBD_KEYRING", administrator);
    // Each looks for leaks when it is dropped.
    let mut others = Vec::new();
    for launch in [namespace, pool] {
        let mut other = launch.start().await;
        assert_refused(&client, &used, &snapshot).await;
        Pattern::new(2).write(&used.target, DATA);
        other.terminate();
        others.push(other);
    }
    daemon.restart().await;
    Pattern::new(2).check(&used.target, DATA);
    let restored = client.create("mistaken restored").block().from_snapshot(&snapshot).done().await;
    let copy = up_on(&client, &daemon, "mistaken", &restored, block()).await;
    Pattern::new(1).check(&copy.target, DATA);
    for used in [copy, used] {
        down_from(&client, "mistaken", &used).await;
        delete(&client, &used.id).await;
    }
    client.delete_snapshot(&snapshot).await.unwrap();
    ceph.ceph(&["osd", "pool", "rm", "mistaken", "mistaken", "--yes-i-really-really-mean-it"]);
}

/// The run directories of two nodes have changed places, as mounts of two machines may.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_swapped_run_directories_harm_no_volume() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("swap-c").await;
    let client = controller.client();
    let mut nodes = [("swap-a", ceph.node("swap-a").await), ("swap-b", ceph.node("swap-b").await)];
    let mut used = Vec::new();
    for (name, node) in &nodes {
        let volume = client.create(name).size(VOLUME).fs("xfs").done().await;
        used.push(up_on(&client, node, name, &volume, mount("xfs")).await);
    }
    let working: Vec<_> = used.iter().map(|used| Workload::writing(&used.data_path())).collect();
    nodes.iter_mut().for_each(|(_, node)| node.terminate());
    let run = |node: &Daemon| -> PathBuf { node.launch().scratch().join("run") };
    let runs = [run(&nodes[1].1), run(&nodes[0].1)];
    let mut swapped = Vec::new();
    for ((_, node), run) in nodes.iter().zip(runs) {
        swapped.push(node.launch().clone().env("ORLOP_RUN_DIR", run).start().await);
    }
    for used in &used {
        for refused in [used.stage().await, used.unpublish().await, used.unstage().await] {
            expect_code(refused, Code::FailedPrecondition);
        }
    }
    for workload in &working {
        workload.goes_on().await;
    }
    swapped.iter_mut().for_each(Daemon::terminate);
    for (_, node) in &mut nodes {
        node.restart().await;
    }
    for workload in working {
        workload.goes_on().await;
        workload.finish();
    }
    for ((name, _), used) in nodes.iter().zip(&used) {
        down_from(&client, name, used).await;
        delete(&client, &used.id).await;
    }
}
