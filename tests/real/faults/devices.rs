//! A loop device is detached from outside, and perhaps used for something else.

use std::fs::File;
use std::path::{Path, PathBuf};

use orlop_sys::loopdev::{self, LoopDevice};
use orlop_sys::tool;
use orlop_tests::*;

use crate::faults::run;

const VOLUME: u64 = 32 * MIB;

fn device_of(pool: &TestPool, id: &str) -> LoopDevice {
    loopdev::find(&pool.volume_data(id), false).unwrap().expect("an attached volume")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

async fn is_unwell(node: &OnNode) -> bool {
    node.stats().await.unwrap().volume_condition.unwrap().abnormal
}

/// A raw volume: nothing holds its device open.
async fn raw(client: &Client) -> OnNode {
    let volume = client.create("volume").size(VOLUME).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(1).write(&node.target, MIB);
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_was_detached_by_hand() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = raw(&client).await;
    assert!(!is_unwell(&node).await);
    detach_by_hand(&device_of(&pool, &node.id).path());
    assert!(is_unwell(&node).await);
    expect_code(node.expand(VOLUME).await, Code::FailedPrecondition);
    expect_code(node.publish().await, Code::FailedPrecondition);

    node.unpublish().await.unwrap();
    node.up().await;
    assert!(!is_unwell(&node).await);
    Pattern::new(1).check(&node.target, MIB);
    node.down().await;
}

/// The node at the target now shows the other file. The daemon must neither write to that nor detach it.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_used_for_another_file() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = raw(&client).await;
    let elsewhere = TestPool::new(PoolFs::Directory, 0);
    let other = elsewhere.path.join("other");
    File::create_new(&other).unwrap().set_len(VOLUME).unwrap();
    Pattern::new(9).write_at(&other, 0, MIB);
    let stolen = give_device_to(&pool, &node, &other).await;
    assert!(is_unwell(&node).await);
    expect_code(node.publish().await, Code::FailedPrecondition);
    expect_code(node.expand(VOLUME).await, Code::FailedPrecondition);

    node.unpublish().await.unwrap();
    node.up().await;
    assert!(!is_unwell(&node).await);
    Pattern::new(1).check(&node.target, MIB);
    assert_ne!(device_of(&pool, &node.id), stolen);
    node.down().await;
    assert_eq!(backing_file(&stolen), Some(other.clone()), "the other's device is left alone");
    Pattern::new(9).check(&stolen.path(), MIB);
    detach_by_hand(&stolen.path());
}

/// Attaches the volume's device to the file instead. If another test attaches a file to that number first,
/// the volume gets another device, which is tried instead.
async fn give_device_to(pool: &TestPool, node: &OnNode, file: &Path) -> LoopDevice {
    for _ in 0..100 {
        let device = device_of(pool, &node.id);
        detach_by_hand(&device.path());
        if tool::run("losetup", [text(&device.path()), text(file)]).is_ok() {
            return device;
        }
        node.unpublish().await.unwrap();
        node.up().await;
    }
    panic!("other tests take every device that is detached");
}

fn backing_file(device: &LoopDevice) -> Option<PathBuf> {
    loopdev::backing(device).unwrap().map(|there| there.file)
}

/// The kernel keeps a device that is mounted until it no longer is.
#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_device_that_was_detached_by_hand() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(1).write(&node.data_path(), MIB);
    run("losetup", &["-d", text(&device_of(&pool, &node.id).path())]);
    // The workload does not notice, so there is nothing to tell.
    Pattern::new(1).check(&node.data_path(), MIB);
    Pattern::new(2).write(&node.data_path(), MIB);
    node.publish().await.unwrap();
    node.down().await;
    node.up().await;
    Pattern::new(2).check(&node.data_path(), MIB);
    assert!(!is_unwell(&node).await);
    node.down().await;
}
