//! Volumes in use of which no node record is found: the run directory or the driver's name was
//! changed between two starts, or the records were lost.

use std::fs::{self, File};
use std::path::PathBuf;

use orlop_sys::loopdev::{self, LoopDevice};
use orlop_tests::*;
use rustix::fs::{CWD, FileType, Mode as FileMode, makedev, mknodat};

const VOLUME: u64 = 64 * MIB;
const DATA: u64 = 4 * MIB;

async fn raw_volume(client: &Client, name: &str, seed: u64) -> OnNode {
    let volume = client.create(name).size(VOLUME).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(seed).write(&node.target, DATA);
    node
}

pub(crate) fn lose_record(daemon: &Daemon, id: &str) {
    let records = daemon.launch().scratch().join("run/csi.orlop.io/volumes");
    fs::remove_file(records.join(format!("{id}.json"))).unwrap();
}

/// What the device at the target is on, as the kernel tells it.
fn file_behind(node: &OnNode) -> Option<PathBuf> {
    let (_, minor) = device_at(node);
    let device = LoopDevice::from_path(&PathBuf::from(format!("/dev/loop{minor}"))).unwrap();
    loopdev::backing(&device).unwrap().map(|there| there.file)
}

#[track_caller]
fn assert_kept(pool: &TestPool, node: &OnNode, seed: u64) {
    assert_eq!(file_behind(node), Some(pool.volume_data(&node.id)), "its device is gone");
    Pattern::new(seed).check(&node.target, DATA);
}

/// The kernel lets go of a namespace some time after its last process.
pub(crate) async fn delete_once_unused(client: &Client, id: &str) {
    while let Err(status) = client.delete(id).await {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_volume_keeps_its_device_under_another_run_directory() {
    needs_root!();
    for variable in ["ORLOP_RUN_DIR", "ORLOP_DRIVER_NAME"] {
        let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
        let mut daemon = Daemon::start(&pool).await;
        let client = daemon.client();
        let first = raw_volume(&client, "first", 1).await;
        daemon.terminate();

        let value = match variable {
            "ORLOP_RUN_DIR" => pool.scratch().join("other-run").into_os_string(),
            _ => "csi.example.com".into(),
        };
        let mut other = daemon.launch().clone().env(variable, value).start().await;
        client.reconnect();
        assert_kept(&pool, &first, 1);
        let second = raw_volume(&client, "second", 2).await;
        assert_ne!(device_at(&first), device_at(&second), "one number for two volumes");
        assert_kept(&pool, &first, 1);

        other.terminate();
        let output = other.launch().run(&["doctor", "--repair"]);
        assert!(output.stdout.contains(&first.id), "{output:?}");
        assert_kept(&pool, &first, 1);
        other.restart().await;
        assert_kept(&pool, &first, 1);
        second.down().await;
        other.terminate();
        daemon.restart().await;
        assert_kept(&pool, &first, 1);
        first.down().await;
    }
}

/// As a container runtime makes another node, which is in no mount table.
#[tokio::test(flavor = "multi_thread")]
async fn a_raw_volume_keeps_its_device_when_its_record_is_lost() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = raw_volume(&client, "v", 1).await;
    let (major, minor) = device_at(&node);
    let own = pool.scratch().join("own-node");
    let mode = FileMode::RUSR | FileMode::WUSR;
    mknodat(CWD, &own, FileType::BlockDevice, mode, makedev(major, minor)).unwrap();
    let in_use = File::open(&own).unwrap();
    orlop_sys::mounts::ensure_unmounted(&node.target).unwrap();
    daemon.terminate();
    lose_record(&daemon, &node.id);

    daemon.restart().await;
    Pattern::new(1).check(&own, DATA);
    daemon.terminate();
    let output = daemon.launch().run(&["doctor", "--repair"]);
    assert!(output.stdout.contains("has it open"), "{output:?}");
    daemon.restart().await;
    expect_code(client.delete(&node.id).await, Code::FailedPrecondition);
    let other = raw_volume(&client, "other", 2).await;
    Pattern::new(1).check(&own, DATA);
    drop(in_use);
    fs::remove_file(&own).unwrap();
    fs::remove_file(&node.target).unwrap();
    other.down().await;
    client.delete(&node.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_device_without_a_record_is_not_deleted() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = raw_volume(&client, "v", 1).await;
    daemon.terminate();
    lose_record(&daemon, &node.id);
    daemon.restart().await;
    expect_code(client.delete(&node.id).await, Code::FailedPrecondition);
    assert_kept(&pool, &node, 1);
    node.unpublish().await.unwrap();
    client.delete(&node.id).await.unwrap();
}

/// In a namespace that the daemon cannot see by its own mount table.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_bound_in_another_namespace_is_kept() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = raw_volume(&client, "v", 1).await;
    let holder = MountHolder::of(&[&node.target]);
    orlop_sys::mounts::ensure_unmounted(&node.target).unwrap();
    daemon.terminate();
    lose_record(&daemon, &node.id);
    daemon.restart().await;
    daemon.terminate();
    let output = daemon.launch().run(&["doctor", "--repair"]);
    assert!(output.stdout.contains("stray-device"), "{output:?}");
    daemon.restart().await;
    expect_code(client.delete(&node.id).await, Code::FailedPrecondition);
    Pattern::new(1).check(&holder.path_in_namespace(&node.target), DATA);
    drop(holder);
    fs::remove_file(&node.target).unwrap();
    delete_once_unused(&client, &node.id).await;
}

/// The calls that come after the records were lost know only what the kernel tells them.
#[tokio::test(flavor = "multi_thread")]
async fn later_calls_keep_a_device_without_a_record() {
    needs_root!();
    for read_only in [true, false] {
        let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
        let mut daemon = Daemon::start(&pool).await;
        let client = daemon.client();
        let node = raw_volume(&client, "v", 1).await;
        if read_only {
            node.unpublish().await.unwrap();
            node.publish_at(&node.target, true).await.unwrap();
        }
        daemon.terminate();
        lose_record(&daemon, &node.id);
        daemon.restart().await;

        node.stage().await.unwrap();
        assert_kept(&pool, &node, 1);
        let other = client.new_target("other");
        let published = node.publish_at(&other, !read_only).await;
        expect_code(published, Code::FailedPrecondition);
        assert_kept(&pool, &node, 1);
        expect_code(node.unstage().await, Code::FailedPrecondition);
        assert_kept(&pool, &node, 1);
        // With a reader or writer of the same kind beside it.
        node.publish_at(&other, read_only).await.unwrap();
        node.unpublish_at(&other).await.unwrap();
        assert_kept(&pool, &node, 1);
        node.unpublish().await.unwrap();
        node.unstage().await.unwrap();
        client.delete(&node.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_stage_keeps_an_existing_device() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let create = client.create("v").size(320 * MIB);
    let volume = create.capabilities(vec![block(), mount("ext4")]).done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(1).write(&node.target, DATA);
    daemon.terminate();
    lose_record(&daemon, &node.id);
    daemon.restart().await;

    let mounted = node.with_capability(mount("ext4"));
    expect_code(mounted.stage().await, Code::FailedPrecondition);
    assert_kept(&pool, &node, 1);
    node.unpublish().await.unwrap();
    // No record is left, and nothing uses it any more.
    node.unstage().await.unwrap();
    assert_eq!(loopdev::find(&pool.volume_data(&node.id), false).unwrap(), None);
    client.delete(&node.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unstage_works_by_any_path_to_the_stage() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(320 * MIB).fs("ext4").done().await;
    let mut node = client.on_node(&volume, mount("ext4"));
    let real = pool.scratch().join("real");
    fs::create_dir(&real).unwrap();
    let link = pool.scratch().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    node.staging = link.join("staging");
    node.stage().await.unwrap();
    node.staging = real.join("staging");
    node.unstage().await.unwrap();
    assert!(orlop_sys::mounts::mount_at(&node.staging).unwrap().is_none());
    client.delete(&node.id).await.unwrap();
}
