//! Growing: seen by the filesystem or the device, with the data as it was.

use orlop_tests::*;

const BEFORE: u64 = 320 * MIB;
const AFTER: u64 = 640 * MIB;
const DATA: u64 = 3 * MIB;

on_every_pool!(a_volume_in_use_grows, unstaged_volume_grows_at_stage,);

async fn a_volume_in_use_grows(pool: PoolFs) {
    let pool = TestPool::new(pool, 8 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("xfs"), mount("btrfs"), block()] {
        let create = client.create("volume").size(BEFORE);
        let volume = create.capability(capability.clone()).done().await;
        let node = client.on_node(&volume, capability);
        node.up().await;
        Pattern::new(1).write(&node.data_path(), DATA);

        let answer = client.expand(&node.id, AFTER).await.unwrap();
        assert_eq!(answer.capacity_bytes, int(AFTER));
        assert!(answer.node_expansion_required);
        assert_eq!(node.expand(AFTER).await.unwrap(), int(AFTER));
        assert_size(&node, AFTER);
        Pattern::new(1).check(&node.data_path(), DATA);
        // NE-02, CE-02
        client.expand(&node.id, AFTER).await.unwrap();
        node.expand(AFTER).await.unwrap();
        let listed = client.get_volume(&node.id).await.unwrap().volume.unwrap();
        assert_eq!(listed.capacity_bytes, int(AFTER));

        node.down().await;
        node.up().await;
        assert_size(&node, AFTER);
        Pattern::new(1).check(&node.data_path(), DATA);
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

async fn unstaged_volume_grows_at_stage(pool: PoolFs) {
    let pool = TestPool::new(pool, 8 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("xfs"), mount("ext4"), mount("btrfs"), block()] {
        let create = client.create("volume").size(BEFORE);
        let volume = create.capability(capability.clone()).done().await;
        let node = client.on_node(&volume, capability.clone());
        node.up().await;
        Pattern::new(2).write(&node.data_path(), DATA);
        node.down().await;

        client.expand(&node.id, AFTER).await.unwrap();
        node.up().await;
        assert_size(&node, AFTER);
        Pattern::new(2).check(&node.data_path(), DATA);
        assert_eq!(node.expand(AFTER).await.unwrap(), int(AFTER));
        node.down().await;

        // Read-only now, although nothing grows while it is mounted read-only.
        client.expand(&node.id, AFTER + BEFORE).await.unwrap();
        let reader = node.with_capability(capability.mode(Mode::SingleNodeReaderOnly));
        reader.up().await;
        assert_size(&reader, AFTER + BEFORE);
        Pattern::new(2).check(&reader.data_path(), DATA);
        reader.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

/// NE-15: the reason is reported, the data stays, and the next stage makes up for it.
#[tokio::test(flavor = "multi_thread")]
async fn mounted_ext4_grows_or_gives_a_reason() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(BEFORE).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(3).write(&node.data_path(), DATA);
    client.expand(&node.id, AFTER).await.unwrap();
    let grown = node.expand(AFTER).await;
    if may_grow_ext4_mounted() {
        assert_eq!(grown.unwrap(), int(AFTER));
    } else {
        let status = expect_code(grown, Code::FailedPrecondition);
        let reason = status.message().to_ascii_lowercase();
        assert!(reason.contains("ext4"), "{reason}");
        assert_size(&node, BEFORE);
        node.down().await;
        node.up().await;
    }
    assert_size(&node, AFTER);
    Pattern::new(3).check(&node.data_path(), DATA);
    node.down().await;
}

/// NE-05: before it is published, by the staging path.
#[tokio::test(flavor = "multi_thread")]
async fn a_staged_volume_grows_by_its_staging_path() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(BEFORE).fs("xfs").done().await;
    let node = client.on_node(&volume, mount("xfs"));
    node.stage().await.unwrap();
    client.expand(&node.id, AFTER).await.unwrap();
    let at_staging = client.node_expand(&node.id, &node.staging, AFTER).await;
    assert_eq!(at_staging.unwrap(), int(AFTER));
    node.publish().await.unwrap();
    assert_size(&node, AFTER);
    node.down().await;
}

/// A read-only publication has another device than the stage that it is of.
#[tokio::test(flavor = "multi_thread")]
async fn all_devices_of_a_volume_grow() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let capability = block().mode(Mode::SingleNodeMultiWriter);
    let create = client.create("volume").size(64 * MIB);
    let volume = create.capability(capability.clone()).done().await;
    let node = client.on_node(&volume, capability);
    node.stage().await.unwrap();
    node.publish_at(&node.target, true).await.unwrap();

    client.expand(&node.id, 128 * MIB).await.unwrap();
    node.expand(128 * MIB).await.unwrap();
    assert_size(&node, 128 * MIB);
    node.unpublish().await.unwrap();
    node.publish().await.unwrap();
    assert_size(&node, 128 * MIB);
    node.down().await;
}

/// CE-10, CE-11, CE-13, CE-16, CE-17.
#[tokio::test(flavor = "multi_thread")]
async fn controller_refuses_impossible_expansions() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(BEFORE).block().done().await;
    let request = |required: u64, limit: u64| v1::ControllerExpandVolumeRequest {
        volume_id: volume.volume_id.clone(),
        capacity_range: Some(v1::CapacityRange {
            required_bytes: int(required),
            limit_bytes: int(limit),
        }),
        ..v1::ControllerExpandVolumeRequest::default()
    };
    let expand = async |request| client.controller().controller_expand_volume(request).await;

    let smaller = expand(request(64 * MIB, 0)).await.unwrap().into_inner();
    assert_eq!(smaller.capacity_bytes, int(BEFORE));
    expect_code(expand(request(0, 64 * MIB)).await, Code::OutOfRange);
    expect_code(expand(request(AFTER + 1, AFTER + 1)).await, Code::OutOfRange);
    expect_code(expand(request(1 << 50, 0)).await, Code::OutOfRange);
    let full = expand(request(4 * GIB - 64 * MIB, 0)).await;
    expect_code(full, Code::ResourceExhausted);
    expect_code(expand(request(0, 0)).await, Code::InvalidArgument);
    let nothing = v1::ControllerExpandVolumeRequest { capacity_range: None, ..request(0, 0) };
    expect_code(expand(nothing).await, Code::InvalidArgument);
    let mounted = v1::ControllerExpandVolumeRequest {
        volume_capability: Some(mount("xfs")),
        ..request(AFTER, 0)
    };
    expect_code(expand(mounted).await, Code::InvalidArgument);
    expect_code(client.expand("no-such-volume", AFTER).await, Code::NotFound);

    let unchanged = client.get_volume(&volume.volume_id).await.unwrap();
    assert_eq!(unchanged.volume.unwrap().capacity_bytes, int(BEFORE));
}

/// NE-04, NE-08, NE-09, NE-13, NE-14, NE-16, ST-14.
#[tokio::test(flavor = "multi_thread")]
async fn node_refuses_impossible_expansions() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(BEFORE).fs("xfs").done().await;
    let node = client.on_node(&volume, mount("xfs"));
    let target = node.target.clone();
    let not_staged = client.node_expand(&node.id, &target, BEFORE).await;
    expect_code(not_staged, Code::NotFound);

    node.up().await;
    let expand = async |volume: &str, path: &str, capability| {
        let request = v1::NodeExpandVolumeRequest {
            volume_id: volume.to_owned(),
            volume_path: path.to_owned(),
            volume_capability: capability,
            ..v1::NodeExpandVolumeRequest::default()
        };
        client.node().node_expand_volume(request).await
    };
    let path = target.to_str().unwrap();
    expand(&node.id, path, None).await.unwrap();
    expand(&node.id, path, Some(mount(""))).await.unwrap();
    expect_code(expand("", path, None).await, Code::InvalidArgument);
    expect_code(expand(&node.id, "", None).await, Code::InvalidArgument);
    expect_code(expand("no-such-volume", path, None).await, Code::NotFound);
    expect_code(expand(&node.id, "some/path", None).await, Code::NotFound);
    expect_code(expand(&node.id, "/some/path", None).await, Code::NotFound);
    let as_block = expand(&node.id, path, Some(block())).await;
    expect_code(as_block, Code::InvalidArgument);
    expect_code(node.expand(AFTER).await, Code::OutOfRange);
    node.down().await;
}
