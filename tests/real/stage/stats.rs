//! NodeGetVolumeStats, row by row.

use std::fs::File;
use std::path::Path;

use orlop_sys::loopdev::{self, AttachOptions};
use orlop_sys::mounts::{self, BindAccess};
use orlop_tests::v1::volume_usage::Unit;
use orlop_tests::*;

use super::{VOLUME, created};

/// ST-04, ST-06 to ST-11, at the staging and at the target path.
#[tokio::test(flavor = "multi_thread")]
async fn stats_are_those_of_the_filesystem() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for fs in ["xfs", "ext4", "btrfs"] {
        let volume = client.create(fs).size(320 * MIB).fs(fs).done().await;
        let node = client.on_node(&volume, mount(fs));
        node.up().await;
        Pattern::new(1).write(&node.data_path(), 20 * MIB);
        let space = orlop_sys::file::space(&node.target).unwrap();
        for path in [&node.target, &node.staging] {
            let stats = client.node_stats(&node.id, path).await.unwrap();
            let bytes = usage(&stats, Unit::Bytes).expect("bytes");
            assert_eq!(bytes.total, int(space.total), "{fs}");
            assert!(bytes.used >= int(20 * MIB), "{fs}: {bytes:?}");
            assert!(bytes.used < int(120 * MIB), "{fs}: {bytes:?}");
            assert!(bytes.available > 0 && bytes.available < bytes.total);
            match usage(&stats, Unit::Inodes) {
                // btrfs makes them as they are needed.
                None => assert_eq!(fs, "btrfs"),
                Some(inodes) => {
                    assert!(inodes.total > 0 && inodes.used > 0, "{fs}: {inodes:?}");
                    assert!(inodes.available > 0, "{fs}: {inodes:?}");
                }
            }
            let condition = stats.volume_condition.expect("a condition");
            assert!(!condition.abnormal, "{}", condition.message);
        }
        node.down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stats_of_a_device_report_its_size() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = created(&client, block()).await;
    node.up().await;
    for path in [&node.target, &node.staging] {
        let stats = client.node_stats(&node.id, path).await.unwrap();
        let bytes = usage(&stats, Unit::Bytes).expect("bytes");
        assert_eq!(bytes.total, int(VOLUME));
        assert!(usage(&stats, Unit::Inodes).is_none());
        assert!(!stats.volume_condition.expect("a condition").abnormal);
    }
    node.down().await;
}

fn usage(stats: &v1::NodeGetVolumeStatsResponse, unit: Unit) -> Option<&v1::VolumeUsage> {
    stats.usage.iter().find(|usage| usage.unit == i32::from(unit))
}

/// ST-02, ST-03, ST-05
#[tokio::test(flavor = "multi_thread")]
async fn stats_of_a_missing_path_are_not_found() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = created(&client, mount("ext4")).await;
    expect_code(node.stats().await, Code::NotFound);
    node.up().await;
    let other = client.create("other").size(VOLUME).fs("ext4").done().await;
    let stats = async |volume: &str, path: &str| {
        let answer = client.node_stats(volume, Path::new(path)).await;
        answer.map(drop).map_err(|status| status.code())
    };
    let path = node.target.to_str().unwrap();
    assert_eq!(stats("", path).await, Err(Code::InvalidArgument));
    assert_eq!(stats(&node.id, "").await, Err(Code::InvalidArgument));
    assert_eq!(stats(&node.id, "a/b").await, Err(Code::NotFound));
    assert_eq!(stats(&node.id, "/tmp").await, Err(Code::NotFound));
    assert_eq!(stats(&other.volume_id, path).await, Err(Code::NotFound));
    assert_eq!(stats("no-such-volume", path).await, Err(Code::NotFound));
    node.down().await;
    assert_eq!(stats(&node.id, path).await, Err(Code::NotFound));
}

/// ST-05 and kubelet, which asks at its own bind of a device (`volumeDevices/PV/dev/POD`), over
/// which it also attaches another loop device.
#[tokio::test(flavor = "multi_thread")]
async fn stats_work_at_every_path_of_the_device() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let other = client.create("other").size(VOLUME).block().done().await;
    let other = client.on_node(&other, block());
    other.up().await;
    for readonly in [false, true] {
        let node = created(&client, block()).await;
        node.stage().await.unwrap();
        node.publish_at(&node.target, readonly).await.unwrap();
        let stats = async |path: &Path| client.node_stats(&node.id, path).await;
        let bound = client.new_target("pod");
        let linked = client.new_target("link");
        std::os::unix::fs::symlink(&bound, &linked).unwrap();
        expect_code(stats(&bound).await, Code::NotFound);
        File::create_new(&bound).unwrap();
        expect_code(stats(&bound).await, Code::NotFound);
        mounts::bind(&node.target, &bound, BindAccess::ReadWrite).unwrap();
        for path in [&bound, &linked] {
            let stats = stats(path).await.unwrap();
            assert_eq!(usage(&stats, Unit::Bytes).expect("bytes").total, int(VOLUME));
            assert!(!stats.volume_condition.expect("a condition").abnormal);
        }
        // As kubelet holds the device while a pod has it: another device, on the same one.
        let options = AttachOptions { label: "of kubelet", read_only: true, size: VOLUME };
        let above = loopdev::attach(&bound, &options).unwrap();
        expect_code(stats(&above.path()).await, Code::NotFound);
        loopdev::ensure_detached(&above, "of kubelet").unwrap();
        expect_code(stats(&other.target).await, Code::NotFound);
        mounts::ensure_unmounted(&bound).unwrap();
        expect_code(stats(&bound).await, Code::NotFound);
        std::fs::remove_file(&linked).unwrap();
        std::fs::remove_file(&bound).unwrap();
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
    other.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stats_work_at_every_path_of_the_filesystem() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = created(&client, mount("ext4")).await;
    node.up().await;
    let bound = client.scratch().ensure_dir("bound");
    expect_code(client.node_stats(&node.id, &bound).await, Code::NotFound);
    mounts::bind(&node.target, &bound, BindAccess::ReadWrite).unwrap();
    let stats = client.node_stats(&node.id, &bound).await.unwrap();
    assert_eq!(stats.usage, node.stats().await.unwrap().usage);
    // A directory in it is no mount.
    let inside = node.target.join("inside");
    std::fs::create_dir(&inside).unwrap();
    expect_code(client.node_stats(&node.id, &inside).await, Code::NotFound);
    mounts::ensure_unmounted(&bound).unwrap();
    node.down().await;
}
