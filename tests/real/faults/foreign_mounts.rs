//! A foreign mount or file where a volume is to be.

use std::path::{Path, PathBuf};

use orlop_sys::mounts;
use orlop_tests::*;

use crate::faults::run;

const VOLUME: u64 = 32 * MIB;

fn mount_something_at(path: &Path) {
    run("mount", &["-t", "tmpfs", "foreign", path.to_str().unwrap()]);
    std::fs::write(path.join("theirs"), "not ours to remove").unwrap();
}

/// And nothing that is below it.
fn unmount_theirs(path: &Path) {
    run("umount", &[path.to_str().unwrap()]);
}

fn is_still_theirs(path: &Path) -> bool {
    let there = mounts::mount_at(path).unwrap().expect("a mount");
    there.fs_type == "tmpfs" && path.join("theirs").exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_mount_at_the_staging_path() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    mount_something_at(&node.staging);
    expect_code(node.stage().await, Code::FailedPrecondition);
    expect_code(node.publish().await, Code::FailedPrecondition);
    expect_code(node.unstage().await, Code::FailedPrecondition);
    expect_code(node.stats().await, Code::NotFound);
    assert!(is_still_theirs(&node.staging));
    assert!(!crate::faults::is_abnormal(&client, &node.id).await, "the volume itself is well");

    unmount_theirs(&node.staging);
    node.up().await;
    // On top of what is staged it hides the volume.
    mount_something_at(&node.staging);
    let hidden = client.node_stats(&node.id, &node.staging).await.unwrap();
    assert!(hidden.volume_condition.unwrap().abnormal);
    assert!(is_still_theirs(&node.staging));
    unmount_theirs(&node.staging);
    let seen = client.node_stats(&node.id, &node.staging).await.unwrap();
    assert!(!seen.volume_condition.unwrap().abnormal);
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_mount_at_the_target_path() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.stage().await.unwrap();
    std::fs::create_dir(&node.target).unwrap();
    mount_something_at(&node.target);
    expect_code(node.publish().await, Code::FailedPrecondition);
    expect_code(node.unpublish().await, Code::FailedPrecondition);
    expect_code(node.stats().await, Code::NotFound);
    assert!(is_still_theirs(&node.target));

    unmount_theirs(&node.target);
    node.publish().await.unwrap();
    Pattern::new(1).write(&node.data_path(), MIB);
    mount_something_at(&node.target);
    assert!(node.stats().await.unwrap().volume_condition.unwrap().abnormal);
    expect_code(node.unpublish().await, Code::FailedPrecondition);
    assert!(is_still_theirs(&node.target));
    unmount_theirs(&node.target);
    assert!(!node.stats().await.unwrap().volume_condition.unwrap().abnormal);
    Pattern::new(1).check(&node.data_path(), MIB);
    node.down().await;
}

fn put_something_at(node: &OnNode) -> PathBuf {
    let theirs = match node.capability.is_block() {
        true => node.target.clone(),
        false => {
            std::fs::create_dir_all(&node.target).unwrap();
            node.target.join("theirs")
        }
    };
    std::fs::write(&theirs, "not ours to remove").unwrap();
    theirs
}

/// NN-03: it is hidden while the volume is there. What came to a path that Orlop made has to be moved.
#[tokio::test(flavor = "multi_thread")]
async fn data_at_the_target_path() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("ext4"), block()] {
        let create = client.create("volume").size(VOLUME).capability(capability.clone());
        let node = client.on_node(&create.done().await, capability);
        node.stage().await.unwrap();
        for record_is_lost in [false, true] {
            let theirs = put_something_at(&node);
            node.publish().await.unwrap();
            assert!(mounts::mount_at(&node.target).unwrap().is_some());
            if record_is_lost {
                daemon.terminate();
                let records = daemon.launch().scratch().join("run/csi.orlop.io/volumes");
                std::fs::remove_file(records.join(format!("{}.json", node.id))).unwrap();
                daemon.restart().await;
            }
            for _ in 0..2 {
                node.unpublish().await.unwrap();
                assert!(mounts::mount_at(&node.target).unwrap().is_none());
                assert_eq!(std::fs::read(&theirs).unwrap(), b"not ours to remove");
            }
            std::fs::remove_file(&theirs).unwrap();
            if node.target.exists() {
                std::fs::remove_dir(&node.target).unwrap();
            }
        }

        node.stage().await.unwrap();
        node.publish().await.unwrap();
        mounts::ensure_unmounted(&node.target).unwrap();
        let theirs = put_something_at(&node);
        for _ in 0..2 {
            let refused = expect_code(node.unpublish().await, Code::FailedPrecondition);
            assert!(refused.message().contains("away and try again"), "{refused}");
            assert_eq!(std::fs::read(&theirs).unwrap(), b"not ours to remove");
        }
        std::fs::remove_file(&theirs).unwrap();
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}
