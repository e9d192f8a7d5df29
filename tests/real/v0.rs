//! csi.v0: a volume's whole life with real data, and that it is the same volume in csi.v1.

mod v0_client;

use std::slice;

use orlop_tests::*;

use v0_client::{V0Node, V0Plugin, v0_block, v0_mount};

const VOLUME: u64 = 320 * MIB;
const DATA: u64 = 3 * MIB;
const NODE: &str = "test-node";

on_every_pool!(
    volume_lifecycle,
    volume_created_by_v0_works_in_v1,
    volume_created_by_v1_works_in_v0,
);

#[tokio::test(flavor = "multi_thread")]
async fn v0_plugin_info_is_correct() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let old = V0Plugin::of(&daemon.client());
    let mut identity = old.identity();
    identity.probe(v0::ProbeRequest {}).await.unwrap();
    let info = identity.get_plugin_info(v0::GetPluginInfoRequest {}).await.unwrap().into_inner();
    let new = daemon.client().identity().get_plugin_info(v1::GetPluginInfoRequest {}).await;
    let new = new.unwrap().into_inner();
    assert_eq!((info.name, info.vendor_version), (new.name, new.vendor_version));
    let capabilities = v0::GetPluginCapabilitiesRequest {};
    let capabilities = identity.get_plugin_capabilities(capabilities).await.unwrap();
    assert_eq!(capabilities.into_inner().capabilities.len(), 1);
    let id = old.node().node_get_id(v0::NodeGetIdRequest {}).await.unwrap().into_inner();
    assert_eq!(id.node_id, NODE);
    let capacity = old.controller().get_capacity(v0::GetCapacityRequest::default()).await.unwrap();
    let new = daemon.client().capacity().await.unwrap();
    assert_eq!(capacity.into_inner().available_capacity, new.available_capacity);
}

async fn volume_lifecycle(fs: PoolFs) {
    let pool = TestPool::new(fs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let old = V0Plugin::of(&daemon.client());
    for capability in [v0_mount("xfs"), v0_mount("ext4"), v0_block()] {
        let volume = old.create("old", VOLUME, &capability).await;
        assert_eq!(old.create("old", VOLUME, &capability).await, volume);
        assert_eq!(volume.capacity_bytes, int(VOLUME));
        assert_eq!(old.list().await, slice::from_ref(&volume));
        assert!(old.supports(&volume, &capability).await);

        let mut node = V0Node::new(&old, &volume, &capability);
        node.attach(NODE).await;
        for _ in 0..2 {
            node.stage().await.unwrap();
            node.publish().await.unwrap();
        }
        Pattern::new(1).write(&node.data_path(), DATA);
        expect_code(old.delete(&volume.id).await, Code::FailedPrecondition);
        node.unpublish().await.unwrap();
        // The orchestrator that made the path removes it.
        assert!(node.target.exists(), "the target path is the caller's");
        node.publish().await.unwrap();
        Pattern::new(1).check(&node.data_path(), DATA);
        for _ in 0..2 {
            node.unpublish().await.unwrap();
            node.unstage().await.unwrap();
        }
        node.detach(NODE).await;
        node.remove_target();
        old.delete(&volume.id).await.unwrap();
        old.delete(&volume.id).await.unwrap();
        assert_eq!(old.list().await, []);
        assert_eq!(daemon.leaks(), [""; 0]);
    }
    for directory in ["volumes", "staging", "trash"] {
        assert_eq!(pool.entries(directory), [""; 0], "{directory}");
    }
}

async fn volume_created_by_v0_works_in_v1(fs: PoolFs) {
    let pool = TestPool::new(fs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let (client, old) = (daemon.client(), V0Plugin::of(&daemon.client()));
    let made = old.create("volume", VOLUME, &v0_mount("xfs")).await;
    let listed = client.list_volumes().await.unwrap();
    let [entry] = listed.as_slice() else { panic!("one volume, not {}", listed.len()) };
    let volume = entry.volume.clone().unwrap();
    assert_eq!((&volume.volume_id, &volume.volume_context), (&made.id, &made.attributes));

    let staged = V0Node::new(&old, &made, &v0_mount("xfs"));
    staged.stage().await.unwrap();
    staged.publish().await.unwrap();
    Pattern::new(2).write(&staged.data_path(), DATA);
    let stats = client.node_stats(&made.id, &staged.target).await.unwrap();
    assert!(!stats.usage.is_empty());
    let snapshot = client.snapshot("snapshot", &made.id).await.unwrap();
    client.node_unpublish(&made.id, &staged.target).await.unwrap();
    client.node_unstage(&made.id, &staged.staging).await.unwrap();
    client.delete(&made.id).await.unwrap();
    assert_eq!(old.list().await, []);

    let restored = client.create("restored").fs("xfs").from_snapshot(&snapshot.snapshot_id);
    let restored = client.on_node(&restored.done().await, mount("xfs"));
    restored.up().await;
    Pattern::new(2).check(&restored.data_path(), DATA);
    restored.down().await;
}

async fn volume_created_by_v1_works_in_v0(fs: PoolFs) {
    let pool = TestPool::new(fs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let (client, old) = (daemon.client(), V0Plugin::of(&daemon.client()));
    let volume = client.create("volume").size(VOLUME).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(3).write(&node.data_path(), DATA);
    node.down().await;

    // A create with its name returns it.
    let listed = old.create("volume", VOLUME, &v0_mount("ext4")).await;
    assert_eq!(old.list().await, slice::from_ref(&listed));
    assert_eq!(listed.id, volume.volume_id);
    assert!(!old.supports(&listed, &v0_mount("xfs")).await, "it is ext4");
    let used = V0Node::new(&old, &listed, &v0_mount("ext4"));
    used.stage().await.unwrap();
    used.publish().await.unwrap();
    Pattern::new(3).check(&used.data_path(), DATA);
    used.unpublish().await.unwrap();
    used.remove_target();
    used.unstage().await.unwrap();
    old.delete(&listed.id).await.unwrap();
    assert_eq!(client.list_volumes().await.unwrap(), []);
}

/// csi.v0 keeps the target, so that it cannot just be removed.
#[tokio::test(flavor = "multi_thread")]
async fn v0_unpublish_removes_mounts_in_other_namespaces() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let old = V0Plugin::of(&daemon.client());
    for capability in [v0_mount("ext4"), v0_block()] {
        let volume = old.create("old", VOLUME, &capability).await;
        let mut node = V0Node::new(&old, &volume, &capability);
        node.attach(NODE).await;
        node.stage().await.unwrap();
        node.publish().await.unwrap();
        let holder = MountHolder::of(&[&node.target]);
        node.unpublish().await.unwrap();
        assert_eq!(holder.mounts_at(&node.target), 0);
        node.unstage().await.unwrap();
        node.remove_target();
        node.detach(NODE).await;
        old.delete(&volume.id).await.unwrap();
    }
}
