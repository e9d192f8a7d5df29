//! A foreign mount where a volume is to be.

use std::path::Path;

use orlop_sys::mounts;
use orlop_tests::*;

use crate::faults::run;

const VOLUME: u64 = 32 * MIB;

fn mount_something_at(path: &Path) {
    run("mount", &["-t", "tmpfs", "somebody", path.to_str().unwrap()]);
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
