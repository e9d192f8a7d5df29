//! The whole life of a volume, as an orchestrator leads it: every call that csi.v1 has, each sent
//! twice, and the second time changes nothing.

use orlop_tests::*;

const VOLUME: u64 = 320 * MIB;
const GROWN: u64 = 384 * MIB;
const DATA: u64 = 2 * MIB;
const NODE: &str = "test-node";

on_every_pool!(every_call_may_be_repeated, a_pool_is_named_by_a_symbolic_link);

/// Sends a call twice; both must succeed and say the same.
macro_rules! twice {
    ($call:expr) => {{
        let first = $call.await.unwrap_or_else(|status| panic!("first: {status}"));
        let second = $call.await.unwrap_or_else(|status| panic!("repeated: {status}"));
        assert_eq!(first, second, "the repeated call says something else");
        first
    }};
}

async fn every_call_may_be_repeated(pool: PoolFs) {
    let pool = TestPool::new(pool, 8 * GIB);
    let group = Cgroup::new();
    let launch = Launch::on(&pool).env("ORLOP_WORKLOAD_CGROUP", &group.name);
    let daemon = launch.start().await;
    for capability in [mount("xfs"), mount("btrfs"), block()] {
        lead_a_life(&daemon, capability).await;
        assert_eq!(daemon.leaks(), [""; 0]);
    }
    for directory in ["volumes", "snapshots", "staging", "trash"] {
        assert_eq!(pool.entries(directory), [""; 0], "{directory}");
    }
}

async fn lead_a_life(daemon: &Daemon, capability: v1::VolumeCapability) {
    let client = daemon.client();
    let create = client.create("v").size(VOLUME).capability(capability.clone());
    let volume = twice!(create.clone().send());
    let id = &volume.volume_id;
    assert_eq!(volume.capacity_bytes, int(VOLUME));
    assert!(!volume.accessible_topology.is_empty());
    check_what_is_known(&client, &volume, &capability).await;

    let mut node = client.on_node(&volume, capability.clone());
    let context = twice!(client.controller_publish(id, NODE, capability.clone(), false));
    node.publish_context = context;
    twice!(node.stage());
    let staged = daemon.leaks();
    twice!(node.publish());
    let published = daemon.leaks();
    assert_eq!(published.len(), staged.len() + 1, "one mount more: {published:?}");
    node.stage().await.unwrap();
    assert_eq!(daemon.leaks(), published, "staged as it was");
    Pattern::new(1).write(&node.data_path(), DATA);

    use_it(&client, &node).await;
    let restored = copy_it(&client, &node).await;

    twice!(node.unpublish());
    assert!(!node.target.exists());
    twice!(node.unstage());
    twice!(client.controller_unpublish(id, NODE));
    twice!(client.delete(id));
    // Cleaning up goes on after the volume is gone.
    twice!(node.unpublish());
    twice!(node.unstage());
    twice!(client.controller_unpublish(id, NODE));
    expect_code(client.get_volume(id).await, Code::NotFound);

    restored.up().await;
    Pattern::new(1).check(&restored.data_path(), DATA);
    restored.down().await;
    client.delete(&restored.id).await.unwrap();
}

/// VO-05: every reply describes a volume in the same way.
async fn check_what_is_known(
    client: &Client,
    volume: &v1::Volume,
    capability: &v1::VolumeCapability,
) {
    let got = client.get_volume(&volume.volume_id).await.unwrap();
    assert_eq!(got.volume.as_ref(), Some(volume));
    let listed = client.list_volumes().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].volume.as_ref(), Some(volume));
    let request = v1::ValidateVolumeCapabilitiesRequest {
        volume_id: volume.volume_id.clone(),
        volume_capabilities: vec![capability.clone()],
        volume_context: volume.volume_context.clone(),
        ..v1::ValidateVolumeCapabilitiesRequest::default()
    };
    let validated = client.controller().validate_volume_capabilities(request).await.unwrap();
    let confirmed = validated.into_inner().confirmed.expect("what it was made for");
    assert!(confirmed.volume_capabilities == [capability.clone()]);
    assert_eq!(confirmed.volume_context, volume.volume_context);
}

async fn use_it(client: &Client, node: &OnNode) {
    let id = &node.id;
    twice!(client.modify(id, &[("writeIops", "100000")]));
    let answer = twice!(client.expand(id, GROWN));
    assert_eq!(answer.capacity_bytes, int(GROWN));
    assert_eq!(twice!(node.expand(GROWN)), int(GROWN));
    assert_size(node, GROWN);
    for path in [&node.staging, &node.target] {
        let stats = client.node_stats(id, path).await.unwrap();
        assert!(!stats.volume_condition.unwrap().abnormal);
        let bytes = stats.usage.iter().find(|usage| usage.unit() == v1::volume_usage::Unit::Bytes);
        assert!(bytes.expect("how many bytes").total > int(VOLUME / 2));
    }
    let capacity = client.capacity().await.unwrap();
    assert!(capacity.available_capacity > 0);
    let status = client.get_volume(id).await.unwrap().status.unwrap();
    assert_eq!(status.published_node_ids, [NODE]);
    Pattern::new(1).check(&node.data_path(), DATA);
}

/// A snapshot, of which a volume is left.
async fn copy_it(client: &Client, node: &OnNode) -> OnNode {
    let snapshot = twice!(client.snapshot("s", &node.id));
    assert!(snapshot.ready_to_use);
    assert_eq!(snapshot.size_bytes, int(GROWN));
    assert_eq!(client.list_snapshots().await.unwrap(), std::slice::from_ref(&snapshot));
    let snapshot_id = &snapshot.snapshot_id;
    let request = v1::GetSnapshotRequest {
        snapshot_id: snapshot_id.clone(),
        ..v1::GetSnapshotRequest::default()
    };
    let got = client.controller().get_snapshot(request).await.unwrap().into_inner();
    assert_eq!(got.snapshot, Some(snapshot.clone()));
    let create = client.create("restored").capability(node.capability.clone());
    let restored = twice!(create.clone().from_snapshot(snapshot_id).send());
    assert_eq!(restored.capacity_bytes, int(GROWN));
    assert!(restored.content_source.is_some(), "VO-11");
    twice!(client.delete_snapshot(snapshot_id));
    assert_eq!(client.list_snapshots().await.unwrap(), []);
    client.on_node(&restored, node.capability.clone())
}

/// As on machines where the place of the data is a link to the disk that holds it.
async fn a_pool_is_named_by_a_symbolic_link(pool: PoolFs) {
    let pool = TestPool::new(pool, 4 * GIB);
    let link = pool.scratch().join("link");
    std::os::unix::fs::symlink(&pool.path, &link).unwrap();
    let mut daemon = Launch::on(&pool).env("ORLOP_POOL", &link).start().await;
    let client = daemon.client();
    let volume = client.create("volume").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(1).write(&node.data_path(), MIB);
    let snapshot = client.snapshot("snapshot", &node.id).await.unwrap();
    let group = client.group_snapshot("group", std::slice::from_ref(&node.id)).await.unwrap();
    daemon.restart().await;
    Pattern::new(1).check(&node.data_path(), MIB);
    node.down().await;

    let restored = client.create("restored").fs("ext4").from_snapshot(&snapshot.snapshot_id);
    let restored = client.on_node(&restored.done().await, mount("ext4"));
    restored.up().await;
    Pattern::new(1).check(&restored.data_path(), MIB);
    restored.down().await;
    client.delete_group_snapshot(&group.group_snapshot_id, &group.member_ids()).await.unwrap();
    client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    for id in [&node.id, &restored.id] {
        client.delete(id).await.unwrap();
    }
    assert_eq!(daemon.leaks(), [""; 0]);
}
