//! Inline volumes on a pool that nodes share.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::{Duration, Instant};

use orlop_tests::*;

use crate::ceph::TIMEOUT;

fn request(target: &str) -> v1::NodePublishVolumeRequest {
    let context = [("csi.storage.k8s.io/ephemeral", "true"), ("size", "64Mi")];
    v1::NodePublishVolumeRequest {
        volume_id: format!("csi-{:064x}", 1),
        target_path: target.to_owned(),
        volume_capability: Some(mount("ext4")),
        volume_context: BTreeMap::from(context.map(|(key, value)| (key.into(), value.into()))),
        ..v1::NodePublishVolumeRequest::default()
    }
}

/// As on an image pool: an error after a reboot must not delete data.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_publish_keeps_an_inline_volume_it_found() {
    needs_root!();
    let ceph = TestCeph::shared();
    ceph.rbd(&["namespace", "create", "rbd/inline-found"]);
    let launch = ceph.launch("inline-found", "all").env("ORLOP_RBD_NAMESPACE", "inline-found");
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let target = daemon.launch().scratch().ensure_dir("targets").join("inline");
    let published = request(target.to_str().unwrap());
    client.node_publish(published.clone()).await.unwrap();
    Pattern::new(1).write(&target.join("file"), MIB);
    daemon.reboot_machine().await;

    std::fs::remove_dir(&target).unwrap();
    std::fs::write(&target, "in the way").unwrap();
    client.node_publish(published.clone()).await.unwrap_err();
    std::fs::remove_file(&target).unwrap();
    client.node_publish(published.clone()).await.unwrap();
    Pattern::new(1).check(&target.join("file"), MIB);
    client.node_unpublish(&published.volume_id, &target).await.unwrap();
    assert!(client.list_volumes().await.unwrap().is_empty());
}

/// Another daemon of the same node has nothing at the target, and the volume is mounted all the same.
#[tokio::test(flavor = "multi_thread")]
async fn other_run_directory_does_not_delete_inline_volume() {
    needs_root!();
    let ceph = TestCeph::shared();
    ceph.rbd(&["namespace", "create", "rbd/inline-run"]);
    let launch = ceph.launch("inline-run", "all").env("ORLOP_RBD_NAMESPACE", "inline-run");
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let targets = daemon.launch().scratch().ensure_dir("targets");
    let target = targets.join("inline");
    let published = request(target.to_str().unwrap());
    client.node_publish(published.clone()).await.unwrap();
    Pattern::new(1).write(&target.join("file"), MIB);
    daemon.terminate();

    let run = daemon.launch().scratch().join("other-run");
    let mut other = daemon.launch().clone().env("ORLOP_RUN_DIR", run).start().await;
    let nothing = targets.join("nothing");
    let refused = client.node_unpublish(&published.volume_id, &nothing).await;
    expect_code(refused, Code::FailedPrecondition);
    let elsewhere = request(targets.join("second").to_str().unwrap());
    expect_code(client.node_publish(elsewhere).await, Code::FailedPrecondition);
    Pattern::new(2).write(&target.join("file"), MIB);
    other.terminate();

    daemon.restart().await;
    Pattern::new(2).check(&target.join("file"), MIB);
    client.node_unpublish(&published.volume_id, &target).await.unwrap();
    assert!(client.list_volumes().await.unwrap().is_empty());
}

/// Nothing publishes an inline volume to a node, so only the writer's note can keep a second one out.
#[tokio::test(flavor = "multi_thread")]
async fn an_inline_volume_is_writable_on_one_node_only() {
    needs_root!();
    let ceph = TestCeph::shared();
    ceph.rbd(&["namespace", "create", "rbd/inline-two"]);
    let launch = |name| ceph.launch(name, "all").env("ORLOP_RBD_NAMESPACE", "inline-two");
    let (first, second) = (launch("inline-one").start().await, launch("inline-two").start().await);
    let target = |node: &Daemon| node.launch().scratch().ensure_dir("targets").join("inline");
    let (on_first, on_second) = (target(&first), target(&second));
    let published = request(on_first.to_str().unwrap());
    first.client().node_publish(published.clone()).await.unwrap();
    Pattern::new(1).write(&on_first.join("file"), MIB);

    let beside = request(on_second.to_str().unwrap());
    let refused = second.client().node_publish(beside.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("inline-one"), "{refused}");
    Pattern::new(1).check(&on_first.join("file"), MIB);
    first.client().node_publish(published.clone()).await.unwrap();
    first.client().node_unpublish(&published.volume_id, &on_first).await.unwrap();

    second.client().node_publish(beside.clone()).await.unwrap();
    second.client().node_unpublish(&beside.volume_id, &on_second).await.unwrap();
    assert!(second.client().list_volumes().await.unwrap().is_empty());
}

/// Nothing reports that the workload of a dead node is gone; so an operator who knows can delete its
/// volume, and only then.
#[tokio::test(flavor = "multi_thread")]
async fn inline_volume_is_deletable_only_if_its_node_is_dead() {
    needs_root!();
    let ceph = TestCeph::shared();
    ceph.rbd(&["namespace", "create", "rbd/inline"]);
    let launch = |name, mode| ceph.launch(name, mode).env("ORLOP_RBD_NAMESPACE", "inline");
    let controller = launch("inline-c", "controller").start().await;
    let mut node = launch("inline-n", "node").start().await;
    let client = controller.client();
    let target = node.launch().scratch().ensure_dir("targets").join("inline");
    let published = request(target.to_str().unwrap());
    node.client().node().node_publish_volume(published).await.unwrap();
    Pattern::new(1).write(&target.join("file"), MIB);
    let [entry] = client.list_volumes().await.unwrap().try_into().unwrap();
    let volume = entry.volume.unwrap().volume_id;
    expect_code(client.delete(&volume).await, Code::FailedPrecondition);

    node.lose_machine();
    // Until the cluster misses the node.
    let deadline = Instant::now() + TIMEOUT;
    while let Err(status) = client.delete(&volume).await {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(client.list_volumes().await.unwrap().is_empty());
}

/// Its workload may come back with the node. An unpublish elsewhere says nothing about that.
#[tokio::test(flavor = "multi_thread")]
async fn unpublish_on_another_node_keeps_the_inline_volume() {
    needs_root!();
    let ceph = TestCeph::shared();
    ceph.rbd(&["namespace", "create", "rbd/inline-down"]);
    let launch = |name| ceph.launch(name, "all").env("ORLOP_RBD_NAMESPACE", "inline-down");
    let (mut down, other) =
        (launch("inline-down").start().await, launch("inline-other").start().await);
    let target = |node: &Daemon| node.launch().scratch().ensure_dir("targets").join("inline");
    let published = request(target(&down).to_str().unwrap());
    down.client().node_publish(published.clone()).await.unwrap();
    Pattern::new(1).write(&target(&down).join("file"), MIB);
    let synced = File::open(target(&down).join("file")).unwrap();
    synced.sync_all().unwrap();
    drop(synced);
    let [entry] = other.client().list_volumes().await.unwrap().try_into().unwrap();
    let volume = entry.volume.unwrap().volume_id;

    down.lose_machine();
    let is_open = || {
        let status = ceph.rbd(&["status", &format!("rbd/inline-down/{volume}")]);
        status.contains("watcher=")
    };
    let deadline = Instant::now() + TIMEOUT;
    while is_open() {
        assert!(Instant::now() < deadline, "the cluster never missed the node");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    other.client().node_unpublish(&published.volume_id, &target(&other)).await.unwrap();
    assert_eq!(other.client().list_volumes().await.unwrap().len(), 1, "deleted");

    let run = down.launch().scratch().join("run");
    std::fs::rename(&run, run.with_extension("before")).unwrap();
    down.restart().await;
    // The node has closed what it had left open, and the volume is still published to it.
    other.client().node_unpublish(&published.volume_id, &target(&other)).await.unwrap();
    down.client().node_publish(published.clone()).await.unwrap();
    Pattern::new(1).check(&target(&down).join("file"), MIB);
    down.client().node_unpublish(&published.volume_id, &target(&down)).await.unwrap();
    assert!(other.client().list_volumes().await.unwrap().is_empty());
}
