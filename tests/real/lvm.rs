//! The real binary on a thin pool of LVM. Where the kernel has no device-mapper these return at once; the guest of
//! tests/guest has one.

mod growing;
mod hanging;
mod space;

use orlop_tests::*;

const SIZE: LvmSize = LvmSize { thin: 4 * GIB, free: GIB };

/// The limits of cgroup v2, on the device that a workload gets.
#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_on_a_logical_volume() {
    needs_device_mapper!();
    const RATE: u64 = MIB;
    let group = TestLvm::new(SIZE);
    let workloads = Cgroup::new();
    let daemon = group.launch().env("ORLOP_WORKLOAD_CGROUP", &workloads.name).start().await;
    let client = daemon.client();
    let create = client.create("limited").size(64 * MIB).block();
    let volume = create.mutable_parameter("writeBytesPerSecond", &RATE.to_string()).done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    assert_eq!(workloads.limits_of(device_at(&node)), [("writeBytesPerSecond", RATE)]);
    let job = Job { path: &node.target, writes: true, block: 64 << 10, count: 48 };
    let rate = workloads.rate(&job);
    assert!(rate < 2 * RATE, "{rate} bytes a second");
    client.modify(&node.id, &[("writeBytesPerSecond", "0")]).await.unwrap();
    assert_eq!(workloads.limits_of(device_at(&node)), []);
    node.down().await;
    client.delete(&node.id).await.unwrap();
}

/// A daemon that is killed finds what it had: volumes in use go on, and snapshots hold what they held.
#[tokio::test(flavor = "multi_thread")]
async fn volumes_and_snapshots_outlive_the_daemon() {
    needs_device_mapper!();
    let group = TestLvm::new(SIZE);
    let mut daemon = group.launch().start().await;
    let client = daemon.client();
    let volume = client.create("volume").size(320 * MIB).fs("xfs").done().await;
    let node = client.on_node(&volume, mount("xfs"));
    node.up().await;
    let (first, second) = (Pattern::new(1), Pattern::new(2));
    first.write(&node.data_path(), 5 * MIB);
    let snapshot = client.snapshot("snapshot", &node.id).await.unwrap();
    second.write(&node.data_path(), 5 * MIB);

    daemon.kill9();
    daemon.restart().await;
    second.check(&node.data_path(), 5 * MIB);
    let restored = client.create("restored").size(640 * MIB).fs("xfs");
    let restored = restored.from_snapshot(&snapshot.snapshot_id).done().await;
    let copy = client.on_node(&restored, mount("xfs"));
    copy.up().await;
    first.check(&copy.data_path(), 5 * MIB);
    assert_size(&copy, 640 * MIB);
    copy.down().await;
    node.down().await;
    // A snapshot and a copy do not need their source.
    client.delete(&node.id).await.unwrap();
    client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    copy.up().await;
    first.check(&copy.data_path(), 5 * MIB);
    copy.down().await;
    client.delete(&copy.id).await.unwrap();
    assert_eq!(group.objects(), Vec::<String>::new());
}
