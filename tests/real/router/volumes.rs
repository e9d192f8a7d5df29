//! What a workload sees of it: its data.

use std::fs;

use orlop_tests::*;

use crate::router::cluster::{Cluster, at};

const SIZE: u64 = 320 * MIB;

#[tokio::test(flavor = "multi_thread")]
async fn data_is_on_the_node_that_was_asked_for() {
    needs_root!();
    let cluster = Cluster::start(PoolFs::Xfs).await;
    let client = cluster.client();
    for node in &cluster.nodes {
        let mut create = client.create(&format!("volume-of-{}", node.name)).size(SIZE);
        create.request.accessibility_requirements = Some(at(node.name));
        let volume = create.done().await;
        let there = volume.accessible_topology[0].segments.values().any(|value| value == node.name);
        assert!(there, "{:?}", volume.accessible_topology);
        // The orchestrator's node calls go to the node itself.
        let on_node = node.daemon.client().on_node(&volume, mount("xfs"));
        on_node.stage().await.unwrap();
        on_node.publish().await.unwrap();
        let text = format!("written on {}", node.name);
        fs::write(on_node.target.join("file"), &text).unwrap();
        // A snapshot by way of the router freezes the filesystem on its node.
        let snapshot = client.snapshot(&format!("snapshot-{}", node.name), &volume.volume_id).await;
        let snapshot = snapshot.unwrap();
        fs::write(on_node.target.join("file"), "overwritten").unwrap();
        let restored = client
            .create(&format!("restored-{}", node.name))
            .size(SIZE)
            .from_snapshot(&snapshot.snapshot_id)
            .done()
            .await;
        let restored_there = node.daemon.client().on_node(&restored, mount("xfs"));
        restored_there.stage().await.unwrap();
        restored_there.publish().await.unwrap();
        assert_eq!(fs::read_to_string(restored_there.target.join("file")).unwrap(), text);
        for used in [&on_node, &restored_there] {
            used.unpublish().await.unwrap();
            used.unstage().await.unwrap();
        }
        // By way of the other node, which has not got it.
        let other = cluster.nodes.iter().find(|other| other.name != node.name).unwrap();
        let other = other.daemon.client();
        other.expand(&volume.volume_id, 2 * SIZE).await.unwrap();
        other.delete(&restored.volume_id).await.unwrap();
        other.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
        other.delete(&volume.volume_id).await.unwrap();
        assert_eq!(node.daemon.client().list_volumes().await.unwrap().len(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_blocks_of_another_node_are_streamed() {
    needs_root!();
    let cluster = Cluster::start(PoolFs::Xfs).await;
    let (a, b) = (&cluster.nodes[0].daemon.client(), &cluster.nodes[1].daemon.client());
    let mut create = a.create("volume").size(64 * MIB).block();
    create.request.accessibility_requirements = Some(at("node-b"));
    let volume = create.done().await;
    let on_node = b.on_node(&volume, block());
    on_node.stage().await.unwrap();
    on_node.publish().await.unwrap();
    let base = a.snapshot("base", &volume.volume_id).await.unwrap();
    let device = fs::OpenOptions::new().write(true).open(&on_node.target).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&device, &[7; 4096], 8 * MIB).unwrap();
    device.sync_all().unwrap();
    drop(device);
    let target = a.snapshot("target", &volume.volume_id).await.unwrap();
    let request = v1::GetMetadataDeltaRequest {
        base_snapshot_id: base.snapshot_id,
        target_snapshot_id: target.snapshot_id,
        ..Default::default()
    };
    let mut stream = a.snapshot_metadata().get_metadata_delta(request).await.unwrap().into_inner();
    let mut changed = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        changed.extend(message.block_metadata);
    }
    let at = int(8 * MIB);
    let covers = |block: &v1::BlockMetadata| {
        block.byte_offset <= at && at + 4096 <= block.byte_offset + block.size_bytes
    };
    assert!(changed.iter().any(covers), "{changed:?}");
    on_node.unpublish().await.unwrap();
    on_node.unstage().await.unwrap();
}

/// Mounts and their data are no concern of the router's.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_router_only_the_control_plane_is_lost() {
    needs_root!();
    let mut cluster = Cluster::start(PoolFs::Directory).await;
    let mut create = cluster.client().create("volume").size(SIZE);
    create.request.accessibility_requirements = Some(at("node-a"));
    let volume = create.done().await;
    cluster.router.kill9();
    let on_node = cluster.nodes[0].daemon.client().on_node(&volume, mount("xfs"));
    on_node.stage().await.unwrap();
    on_node.publish().await.unwrap();
    fs::write(on_node.target.join("file"), "written").unwrap();
    cluster.router.restart().await;
    cluster.until_all_are_known().await;
    let client = cluster.client();
    expect_code(client.delete(&volume.volume_id).await, Code::FailedPrecondition);
    on_node.unpublish().await.unwrap();
    on_node.unstage().await.unwrap();
    client.delete(&volume.volume_id).await.unwrap();
}

/// The other node sees one connection for all callers of this one.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_cannot_have_all_streams_of_another_node() {
    needs_root!();
    let cluster = Cluster::start(PoolFs::Xfs).await;
    let greedy = cluster.nodes[0].daemon.client();
    let mut create = greedy.create("volume").size(64 * MIB).block();
    create.request.accessibility_requirements = Some(at("node-b"));
    let volume = create.done().await;
    let on_node = cluster.nodes[1].daemon.client().on_node(&volume, block());
    on_node.up().await;
    let device = fs::OpenOptions::new().write(true).open(&on_node.target).unwrap();
    for offset in (0..64 * MIB).step_by(8192) {
        std::os::unix::fs::FileExt::write_all_at(&device, &[7; 4096], offset).unwrap();
    }
    device.sync_all().unwrap();
    drop(device);
    on_node.down().await;
    let snapshot = greedy.snapshot("snapshot", &volume.volume_id).await.unwrap().snapshot_id;
    let open = async |client: &Client| {
        let request = v1::GetMetadataAllocatedRequest {
            snapshot_id: snapshot.clone(),
            // One message for each of some thousand extents: more than is sent before it is read.
            max_results: 1,
            ..v1::GetMetadataAllocatedRequest::default()
        };
        client.snapshot_metadata().get_metadata_allocated(request).await
    };
    let mut unread = Vec::new();
    let refusal = loop {
        match open(&greedy).await {
            Ok(stream) => unread.push(stream),
            Err(refusal) => break refusal,
        }
        assert!(unread.len() <= 32, "{} streams of one connection", unread.len());
    };
    assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal}");
    for other in [cluster.nodes[0].daemon.client(), cluster.nodes[1].daemon.client()] {
        open(&other).await.unwrap();
    }
    drop(unread);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while open(&greedy).await.is_err() {
        assert!(std::time::Instant::now() < deadline, "closed streams count still");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
