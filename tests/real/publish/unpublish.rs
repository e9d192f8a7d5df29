//! NodeUnpublishVolume, row by row.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use orlop_sys::mounts;
use orlop_tests::*;

use super::{VOLUME, staged};

/// One record still names the path, as after an unmount by hand; another volume is there by now.
#[tokio::test(flavor = "multi_thread")]
async fn unpublish_leaves_a_target_of_another_volume() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [block(), mount("ext4")] {
        let mut nodes = Vec::new();
        for name in ["first", "second"] {
            let create = client.create(name).size(VOLUME).capability(capability.clone());
            nodes.push(client.on_node(&create.done().await, capability.clone()));
        }
        let [first, second] = nodes.as_slice() else { panic!("two volumes") };
        first.up().await;
        mounts::ensure_unmounted(&first.target).unwrap();
        second.stage().await.unwrap();
        second.publish_at(&first.target, false).await.unwrap();
        let taken = first.target.metadata().unwrap();
        daemon.restart().await;
        for _ in 0..2 {
            first.unpublish().await.unwrap();
            let now = first.target.metadata().unwrap();
            assert_eq!((now.dev(), now.rdev()), (taken.dev(), taken.rdev()), "it was taken away");
        }
        first.unstage().await.unwrap();
        second.unpublish_at(&first.target).await.unwrap();
        assert!(!first.target.exists());
        second.unstage().await.unwrap();
        for node in &nodes {
            client.delete(&node.id).await.unwrap();
        }
    }
}

/// A daemon that has given up its rights may not look at all processes, and says how to find them.
#[tokio::test(flavor = "multi_thread")]
async fn busy_mount_error_names_volume_and_process() {
    needs_root!();
    for keeps in ["true", "false"] {
        let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
        let daemon = Launch::on(&pool).env("ORLOP_KEEP_CAPABILITIES", keeps).start().await;
        let client = daemon.client();
        let node = staged(&client, mount("ext4")).await;
        node.publish().await.unwrap();
        let own = match keeps {
            "true" => format!("process {} (", std::process::id()),
            _ => format!("fuser -vm {}", node.target.display()),
        };
        let busy = File::create(node.target.join("busy")).unwrap();
        let status = expect_code(node.unpublish().await, Code::FailedPrecondition);
        assert!(status.message().contains(&format!("volume {}", node.id)), "{status}");
        assert!(status.message().contains(&own), "{status}");
        drop(busy);
        node.unpublish().await.unwrap();

        let busy = File::create(node.staging.join("busy")).unwrap();
        let status = expect_code(node.unstage().await, Code::FailedPrecondition);
        assert!(status.message().contains(&format!("volume {}", node.id)), "{status}");
        drop(busy);
        node.unstage().await.unwrap();
        client.delete(&node.id).await.unwrap();
    }
}

/// NN-02 to NN-07, NN-11.
#[tokio::test(flavor = "multi_thread")]
async fn unpublish_is_idempotent_and_leaves_foreign_mounts() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = staged(&client, mount("ext4")).await;
    node.unpublish().await.unwrap();
    node.publish().await.unwrap();

    let busy = File::create(node.target.join("busy")).unwrap();
    node.unpublish().await.unwrap_err();
    assert_eq!(mounts_at(&node.target), 1, "a busy mount is gone");
    drop(busy);
    assert!(node.target.join("busy").exists());
    node.unpublish().await.unwrap();
    node.unpublish().await.unwrap();
    assert!(!node.target.exists());

    let unpublish = async |volume: &str, path: &str| {
        let answer = client.node_unpublish(volume, Path::new(path)).await;
        answer.map_err(|status| status.code())
    };
    let path = node.target.to_str().unwrap();
    assert_eq!(unpublish("", path).await, Err(Code::InvalidArgument));
    assert_eq!(unpublish(&node.id, "").await, Err(Code::InvalidArgument));
    assert_eq!(unpublish(&node.id, "a/b").await, Err(Code::InvalidArgument));

    // A foreign mount must not be removed.
    let stranger = client.scratch().join("pool");
    unpublish(&node.id, stranger.to_str().unwrap()).await.unwrap_err();
    assert_eq!(mounts_at(&stranger), 1);
    node.unstage().await.unwrap();
}
