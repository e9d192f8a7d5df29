//! A publication that is hidden by what is mounted above it later. It is there again when that is
//! unmounted, so until then its device must not become another volume's.

use std::path::{Path, PathBuf};

use orlop_sys::{mounts, tool};
use orlop_tests::*;

const VOLUME: u64 = 64 * MIB;
const DATA: u64 = 4 * MIB;

/// Unmounted when it is dropped, also by a test that fails.
struct Cover(PathBuf);

impl Cover {
    fn over(directory: &Path) -> Self {
        tool::run("mount", ["-t", "tmpfs", "cover", directory.to_str().unwrap()]).unwrap();
        Self(directory.to_owned())
    }
}

impl Drop for Cover {
    fn drop(&mut self) {
        let unmounted = tool::run("umount", [&self.0]);
        assert!(unmounted.is_ok() || std::thread::panicking(), "{unmounted:?}");
    }
}

async fn published_below(
    client: &Client,
    directory: &Path,
    capability: v1::VolumeCapability,
) -> OnNode {
    let create = client.create("hidden").size(VOLUME).capability(capability.clone());
    let mut node = client.on_node(&create.done().await, capability);
    node.target = directory.join("target");
    node.up().await;
    Pattern::new(1).write(&node.data_path(), DATA);
    node
}

#[track_caller]
fn refused_for(node: &OnNode, answer: Answer<()>) {
    let refused = expect_code(answer, Code::FailedPrecondition);
    let text = refused.message();
    assert!(text.contains(node.target.to_str().unwrap()), "{text}");
    assert!(text.contains("unmount what covers"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_raw_volume_keeps_its_device() {
    needs_root!();
    for record_is_lost in [false, true] {
        let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
        let mut daemon = Daemon::start(&pool).await;
        let client = daemon.client();
        let directory = pool.scratch().ensure_dir("directory");
        let node = published_below(&client, &directory, block()).await;
        let number = device_at(&node);
        let cover = Cover::over(&directory);
        if record_is_lost {
            daemon.terminate();
            let records = daemon.launch().scratch().join("run/csi.orlop.io/volumes");
            std::fs::remove_file(records.join(format!("{}.json", node.id))).unwrap();
            daemon.restart().await;
            // Any later stage and publication must not be what takes it away.
            node.stage().await.unwrap();
        }
        for _ in 0..2 {
            refused_for(&node, node.unpublish().await);
            refused_for(&node, node.unstage().await);
        }
        expect_code(client.delete(&node.id).await, Code::FailedPrecondition);
        // A reader's device would be another one, with another cache.
        refused_for(&node, node.publish_at(&client.new_target("reader"), true).await);

        let volume = client.create("other").size(VOLUME).block().done().await;
        let other = client.on_node(&volume, block());
        other.up().await;
        assert_ne!(device_at(&other), number, "one number for two volumes");
        Pattern::new(2).write(&other.target, DATA);
        drop(cover);
        Pattern::new(1).check(&node.target, DATA);
        other.down().await;
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

/// Readers and writers of a raw volume are kept apart, and neither loses its device.
#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_reader_keeps_its_device() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let directory = pool.scratch().ensure_dir("directory");
    let node = published_below(&client, &directory, block()).await;
    node.unpublish().await.unwrap();
    node.publish_at(&node.target, true).await.unwrap();
    let cover = Cover::over(&directory);
    let writer = client.new_target("writer");
    refused_for(&node, node.publish_at(&writer, false).await);
    refused_for(&node, node.unpublish().await);
    drop(cover);
    Pattern::new(1).check(&node.target, DATA);
    node.unpublish().await.unwrap();
    node.publish_at(&writer, false).await.unwrap();
    node.unpublish_at(&writer).await.unwrap();
    node.unstage().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_mount_is_not_taken_for_gone() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let directory = pool.scratch().ensure_dir("directory");
    let node = published_below(&client, &directory, mount("ext4")).await;
    let cover = Cover::over(&directory);
    for _ in 0..2 {
        refused_for(&node, node.unpublish().await);
        refused_for(&node, node.unstage().await);
        assert!(mounts::mount_at(&node.staging).unwrap().is_some(), "half unstaged");
    }
    drop(cover);
    Pattern::new(1).check(&node.data_path(), DATA);
    node.down().await;
    client.delete(&node.id).await.unwrap();
}
