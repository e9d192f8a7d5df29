//! Mounts that another process keeps in another mount namespace, as a monitoring agent does.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use orlop_tests::*;

const VOLUME: u64 = 320 * MIB;

async fn created(client: &Client, capability: v1::VolumeCapability) -> OnNode {
    let create = client.create("volume").size(VOLUME).capability(capability.clone());
    client.on_node(&create.done().await, capability)
}

fn keep(node: &OnNode) -> MountHolder {
    match node.capability.is_block() {
        true => MountHolder::of(&[&node.target]),
        false => MountHolder::of(&[&node.staging, &node.target]),
    }
}

fn owner_and_mode(path: &Path) -> (u32, u32, u32) {
    let found = path.metadata().unwrap();
    (found.uid(), found.gid(), found.mode())
}

#[tokio::test(flavor = "multi_thread")]
async fn other_mount_namespace_does_not_keep_a_volume() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("ext4"), mount("xfs"), mount("btrfs"), block()] {
        let node = created(&client, capability).await;
        chown(&node.staging, Some(12), Some(34)).unwrap();
        std::fs::set_permissions(&node.staging, PermissionsExt::from_mode(0o2711)).unwrap();
        let before = owner_and_mode(&node.staging);
        node.up().await;
        let holder = keep(&node);
        node.down().await;
        assert_eq!(holder.mounts_at(&node.staging) + holder.mounts_at(&node.target), 0);
        assert_eq!(daemon.leaks(), [""; 0]);
        client.delete(&node.id).await.unwrap();
        assert_eq!(owner_and_mode(&node.staging), before, "the orchestrator's directory");
        let around = std::fs::read_dir(node.staging.parent().unwrap()).unwrap();
        assert_eq!(around.count(), 1, "something was left beside the staging path");
        std::fs::remove_dir(&node.staging).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_mount_namespace_does_not_keep_an_inline_volume() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let (id, target) = (format!("csi-{:064x}", 1), client.new_target("inline"));
    let context = [("csi.storage.k8s.io/ephemeral", "true"), ("size", "400Mi")];
    let request = v1::NodePublishVolumeRequest {
        volume_id: id.clone(),
        target_path: target.to_str().unwrap().to_owned(),
        volume_capability: Some(mount("ext4")),
        volume_context: BTreeMap::from(context.map(|(key, value)| (key.into(), value.into()))),
        ..v1::NodePublishVolumeRequest::default()
    };
    client.node_publish(request).await.unwrap();
    let stages = pool.scratch().join("run/csi.orlop.io/inline");
    let stage = std::fs::read_dir(&stages).unwrap().next().unwrap().unwrap().path();
    let _holder = MountHolder::of(&[&stage, &target]);
    client.node_unpublish(&id, &target).await.unwrap();
    assert_eq!(daemon.leaks(), [""; 0]);
    assert_eq!(pool.entries("volumes"), [""; 0]);
    assert_eq!(std::fs::read_dir(&stages).unwrap().count(), 0);
}

/// Then it is really in use; the answer says which process has to end.
#[tokio::test(flavor = "multi_thread")]
async fn process_with_open_files_in_another_namespace_is_named() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for fs in ["ext4", "xfs", "btrfs"] {
        let node = created(&client, mount(fs)).await;
        node.stage().await.unwrap();
        let file = node.staging.join("file");
        std::fs::write(&file, "read elsewhere").unwrap();
        let holder = MountHolder::reading(&file, &[&node.staging]);
        let named = format!("process {} (sleep) has files open", holder.pid());
        for _ in 0..2 {
            let status = expect_code(node.unstage().await, Code::FailedPrecondition);
            assert!(status.message().contains(&named), "{fs}: {status}");
        }
        drop(holder);
        is_unstaged_soon(&node).await;
        assert_eq!(daemon.leaks(), [""; 0]);
        client.delete(&node.id).await.unwrap();
    }
}

/// The kernel lets go of a namespace some time after its last process.
async fn is_unstaged_soon(node: &OnNode) {
    while let Err(status) = node.unstage().await {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    }
}

/// A process with more rights than the daemon cannot be looked at, but found by an operator.
#[tokio::test(flavor = "multi_thread")]
async fn error_explains_how_to_find_an_invisible_process() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let node = created(&daemon.client(), mount("ext4")).await;
    node.stage().await.unwrap();
    let file = node.staging.join("file");
    std::fs::write(&file, "read elsewhere").unwrap();
    let holder = MountHolder::privileged_reading(&file, &[&node.staging]);
    for _ in 0..2 {
        let status = expect_code(node.unstage().await, Code::FailedPrecondition);
        assert!(status.message().contains("fuser -vm /dev/loop"), "{status}");
    }
    drop(holder);
    is_unstaged_soon(&node).await;
    assert_eq!(daemon.leaks(), [""; 0]);
}

/// What is below the mount is its owner's and is not replaced; then only the other process can let
/// go.
#[tokio::test(flavor = "multi_thread")]
async fn files_below_a_mount_point_stay() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = created(&client, mount("ext4")).await;
    let below = node.staging.join("of-the-orchestrator");
    std::fs::write(&below, "kept").unwrap();
    node.stage().await.unwrap();
    let holder = MountHolder::of(&[&node.staging]);
    let status = expect_code(node.unstage().await, Code::FailedPrecondition);
    let named = format!("process {} (sleep) sees it mounted", holder.pid());
    assert!(status.message().contains(&named), "{status}");
    assert_eq!(std::fs::read_to_string(&below).unwrap(), "kept");
    drop(holder);
    is_unstaged_soon(&node).await;
    assert_eq!(std::fs::read_to_string(&below).unwrap(), "kept");
}

/// The daemon is killed after each effect of NodeUnstageVolume in turn.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_unstage_unmounts_in_all_namespaces() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let crash = pool.scratch().ensure_dir("crash");
    let mut daemon = Launch::on(&pool).env("ORLOP_TEST_CRASH", &crash).start().await;
    let client = daemon.client();
    for effects in 0_u32.. {
        let node = created(&client, mount("ext4")).await;
        node.stage().await.unwrap();
        let before = owner_and_mode(&node.staging);
        let holder = MountHolder::of(&[&node.staging]);
        std::fs::write(crash.join("at"), effects.to_string()).unwrap();
        let unstaged = node.unstage().await;
        let _ = std::fs::remove_file(crash.join("at"));
        let _ = std::fs::remove_file(crash.join("armed"));
        if unstaged.is_err() {
            daemon.wait_for_end();
            daemon.restart().await;
            node.unstage().await.unwrap();
        }
        assert_eq!(daemon.leaks(), [""; 0], "after {effects} effects");
        assert_eq!(holder.mounts_at(&node.staging), 0, "after {effects} effects");
        assert!(owner_and_mode(&node.staging).2 & 0o170_000 == before.2 & 0o170_000);
        let around = std::fs::read_dir(node.staging.parent().unwrap()).unwrap();
        assert_eq!(around.count(), 1, "something was left beside the staging path");
        client.delete(&node.id).await.unwrap();
        if unstaged.is_ok() {
            assert!(effects > 3, "no effect was interrupted");
            return;
        }
    }
}
