//! Volumes that are staged and published while the daemon is killed.

use orlop_tests::*;

const VOLUME: u64 = 320 * MIB;
const GROWN: u64 = 384 * MIB;

on_every_pool!(workloads_continue_and_later_calls_work, inline_volumes_survive);

/// A volume with a workload.
pub(crate) struct InUse {
    pub(crate) node: OnNode,
    pub(crate) workload: Workload,
}

/// Published by the controller, staged, published, and busy.
pub(crate) async fn in_use(client: &Client, name: &str, capability: v1::VolumeCapability) -> InUse {
    let create = client.create(name).size(VOLUME).capability(capability.clone());
    let mut node = client.on_node(&create.done().await, capability.clone());
    let context = client.controller_publish(&node.id, "test-node", capability, false).await;
    node.publish_context = context.unwrap();
    node.up().await;
    let workload = Workload::writing(&node.data_path());
    InUse { node, workload }
}

/// Every call that may come for a volume in use, as if the daemon had never been away.
pub(crate) async fn check_every_call(client: &Client, used: &InUse) {
    let node = &used.node;
    node.stage().await.expect("a repeated stage");
    node.publish().await.expect("a repeated publish");
    let other = v1::NodePublishVolumeRequest { readonly: true, ..node.publish_request() };
    expect_code(client.node_publish(other).await, Code::AlreadyExists);
    let repeated =
        client.controller_publish(&node.id, "test-node", node.capability.clone(), false).await;
    assert_eq!(repeated.expect("a repeated publication"), node.publish_context);

    let stats = node.stats().await.expect("stats");
    assert!(!stats.usage.is_empty());
    assert!(!stats.volume_condition.unwrap().abnormal);
    assert!(!client.condition(&node.id).await.unwrap().abnormal);

    client.expand(&node.id, GROWN).await.expect("an expansion");
    match node.expand(GROWN).await {
        Ok(_) => assert_size(node, GROWN),
        // A mounted ext4 grows only with a privilege that this machine may not give.
        Err(status) => {
            assert!(node.capability == mount("ext4"), "{status}");
            assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        }
    }
    expect_code(client.delete(&node.id).await, Code::FailedPrecondition);
    used.workload.goes_on().await;
    check_a_copy(client, node).await;
    used.workload.goes_on().await;
}

async fn check_a_copy(client: &Client, node: &OnNode) {
    let snapshot = match client.snapshot(&node.id, &node.id).await {
        Ok(snapshot) => snapshot.snapshot_id,
        // A raw device under a writer, on a pool that does not share extents.
        Err(status) => {
            assert!(node.capability.is_block(), "{status}");
            assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
            assert!(status.message().contains("cannot take a point-in-time copy"), "{status}");
            return;
        }
    };
    let restored = client.create(&format!("copy of {}", node.id)).from_snapshot(&snapshot);
    let restored = restored.capability(node.capability.clone()).done().await;
    let restored = client.on_node(&restored, node.capability.clone());
    restored.up().await;
    let workload = Workload::writing(&restored.data_path());
    workload.goes_on().await;
    workload.finish();
    restored.down().await;
    client.delete(&restored.id).await.unwrap();
    client.delete_snapshot(&snapshot).await.unwrap();
}

pub(crate) async fn take_down(client: &Client, used: InUse) {
    used.workload.finish();
    used.node.down().await;
    client.controller_unpublish(&used.node.id, "test-node").await.unwrap();
    client.delete(&used.node.id).await.unwrap();
}

async fn workloads_continue_and_later_calls_work(pool: PoolFs) {
    let pool = TestPool::new(pool, 12 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let mut all = Vec::new();
    for fs in ["xfs", "ext4", "btrfs"] {
        all.push(in_use(&client, fs, mount(fs)).await);
    }
    all.push(in_use(&client, "block", block()).await);
    for _ in 0..2 {
        daemon.kill9();
        for used in &all {
            used.workload.goes_on().await;
        }
        daemon.restart().await;
        for used in &all {
            used.workload.goes_on().await;
        }
    }
    for used in &all {
        check_every_call(&client, used).await;
    }
    for used in all {
        take_down(&client, used).await;
    }
    assert_eq!(daemon.leaks(), [""; 0]);
    for directory in ["volumes", "snapshots", "staging", "trash"] {
        assert_eq!(pool.entries(directory), [""; 0], "{directory}");
    }
}

/// A reader and a writer of one filesystem, and a reader of a device that is staged for writing.
#[tokio::test(flavor = "multi_thread")]
async fn readers_stay_read_only_after_a_restart() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 8 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("xfs"), block()] {
        let capability = capability.mode(Mode::SingleNodeMultiWriter);
        let create = client.create("shared").size(VOLUME).capability(capability.clone());
        let node = client.on_node(&create.done().await, capability);
        node.up().await;
        Workload::prepare(&node.data_path());
        if node.capability.is_block() {
            node.unpublish().await.unwrap();
        }
        let reading_target = client.new_target("reader");
        node.publish_at(&reading_target, true).await.unwrap();
        let read_path = match node.capability.is_block() {
            true => reading_target.clone(),
            false => reading_target.join("data"),
        };
        let reader = Workload::reading(&read_path);
        reader.goes_on().await;
        daemon.kill9();
        reader.goes_on().await;
        daemon.restart().await;
        reader.goes_on().await;

        node.publish_at(&reading_target, true).await.expect("a repeated publish");
        expect_code(node.publish_at(&reading_target, false).await, Code::AlreadyExists);
        assert!(write_direct(&read_path, 0, &[1; 4096]).is_err(), "the reader can write");
        reader.finish();
        node.unpublish_at(&reading_target).await.unwrap();
        node.down().await;
        client.delete(&node.id).await.unwrap();
        assert_eq!(daemon.leaks(), [""; 0]);
    }
}

/// What a kubelet sends for a volume that stands in the pod itself.
fn inline(client: &Client, name: &str) -> v1::NodePublishVolumeRequest {
    let context = [("csi.storage.k8s.io/ephemeral", "true"), ("size", "64Mi")];
    v1::NodePublishVolumeRequest {
        volume_id: format!("csi-{:0>64}", name),
        target_path: client.new_target(name).to_str().unwrap().to_owned(),
        volume_capability: Some(mount("ext4")),
        volume_context: context.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..v1::NodePublishVolumeRequest::default()
    }
}

async fn inline_volumes_survive(pool: PoolFs) {
    let pool = TestPool::new(pool, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let request = inline(&client, "1f");
    let target = std::path::Path::new(&request.target_path);
    client.node_publish(request.clone()).await.unwrap();
    let workload = Workload::writing(&target.join("data"));
    daemon.kill9();
    workload.goes_on().await;
    daemon.restart().await;
    workload.goes_on().await;

    client.node_publish(request.clone()).await.expect("a repeated publish");
    let stats = client.node_stats(&request.volume_id, target).await.unwrap();
    assert!(!stats.volume_condition.unwrap().abnormal);
    workload.finish();
    client.node_unpublish(&request.volume_id, target).await.unwrap();
    assert!(!target.exists());
    assert_eq!(pool.entries("volumes"), [""; 0]);
    client.node_unpublish(&request.volume_id, target).await.expect("a repeated unpublish");
    assert_eq!(daemon.leaks(), [""; 0]);
}
