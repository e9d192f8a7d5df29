//! What a workload really gets, measured over seconds. Never more than was set; how much less depends on
//! what else the machine does, so whether a limit is higher or gone is asked of the kernel.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_tests::*;

use crate::limits::daemon_for;

/// Far below what any disk does, so that the limit alone decides.
const SLOW: u64 = 8 * MIB;
const LESS_SLOW: u64 = 16 * MIB;
const FEW: u64 = 200;
const SECONDS: u64 = 3;
const PAGE: u64 = 4096;
const DATA: u64 = SECONDS * LESS_SLOW;
const TIMEOUT: Duration = Duration::from_secs(120);

struct Fixture {
    group: Cgroup,
    client: Client,
    node: OnNode,
    path: PathBuf,
    _daemon: Daemon,
    _pool: TestPool,
}

impl Fixture {
    /// Data that is there already: overwriting it needs no other I/O.
    async fn new(capability: v1::VolumeCapability) -> Self {
        let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
        let group = Cgroup::new();
        let daemon = daemon_for(&pool, &group).await;
        let client = daemon.client();
        let create = client.create("limited").size(GIB).capability(capability.clone());
        let node = client.on_node(&create.done().await, capability);
        node.up().await;
        let path = node.data_path();
        Pattern::new(1).write(&path, DATA);
        Self { group, client, node, path, _daemon: daemon, _pool: pool }
    }

    /// 0: none.
    async fn limit(&self, key: &'static str, rate: u64) {
        self.client.modify(&self.node.id, &[(key, &rate.to_string())]).await.unwrap();
        let set = self.group.limits_of(device_at(&self.node));
        assert_eq!(set, if rate > 0 { vec![(key, rate)] } else { Vec::new() });
    }

    fn bytes_per_second(&self, writes: bool, bytes: u64) -> u64 {
        let (block, count) = (MIB, bytes / MIB);
        self.group.rate(&Job { path: &self.path, writes, block, count })
    }

    fn operations_per_second(&self, writes: bool, count: u64) -> u64 {
        self.group.rate(&Job { path: &self.path, writes, block: PAGE, count }) / PAGE
    }

    async fn end(self) {
        self.node.down().await;
        self.client.delete(&self.node.id).await.unwrap();
    }
}

#[track_caller]
fn assert_within(what: &str, measured: u64, set: u64) {
    println!("{what}: {measured} a second where {set} were set");
    assert!(measured <= set * 12 / 10, "{what}: {measured} a second where {set} were set");
}

/// A disk may be slow for a while for another reason, but a limit is never exceeded by so much.
#[track_caller]
fn assert_exceeds(what: &str, measure: impl Fn() -> u64, limit: u64) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let measured = measure();
        if measured > limit * 3 / 2 {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {measured} a second");
    }
}

async fn bytes_are_limited(capability: v1::VolumeCapability) {
    let fixture = Fixture::new(capability).await;
    for (key, writes) in [("writeBytesPerSecond", true), ("readBytesPerSecond", false)] {
        fixture.limit(key, SLOW).await;
        assert_within(key, fixture.bytes_per_second(writes, SECONDS * SLOW), SLOW);
        fixture.limit(key, LESS_SLOW).await;
        assert_within(key, fixture.bytes_per_second(writes, SECONDS * LESS_SLOW), LESS_SLOW);
        fixture.limit(key, 0).await;
        assert_exceeds(key, || fixture.bytes_per_second(writes, DATA), SLOW);
    }
    fixture.end().await;
}

async fn operations_are_limited(capability: v1::VolumeCapability) {
    let fixture = Fixture::new(capability).await;
    for (key, writes) in [("writeIops", true), ("readIops", false)] {
        fixture.limit(key, FEW).await;
        assert_within(key, fixture.operations_per_second(writes, SECONDS * FEW), FEW);
        fixture.limit(key, 2 * FEW).await;
        assert_within(key, fixture.operations_per_second(writes, SECONDS * 2 * FEW), 2 * FEW);
        fixture.limit(key, 0).await;
        assert_exceeds(key, || fixture.operations_per_second(writes, SECONDS * FEW), FEW);
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_a_device_are_limited() {
    needs_root!();
    bytes_are_limited(block()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_a_mounted_volume_are_limited() {
    needs_root!();
    bytes_are_limited(mount("xfs")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_on_a_device_are_limited() {
    needs_root!();
    operations_are_limited(block()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_on_a_mounted_volume_are_limited() {
    needs_root!();
    operations_are_limited(mount("xfs")).await;
}

/// As a container's, whose group is made after its volumes are published and limited.
#[tokio::test(flavor = "multi_thread")]
async fn workload_in_a_later_cgroup_is_limited() {
    needs_root!();
    let fixture = Fixture::new(block()).await;
    fixture.limit("writeBytesPerSecond", SLOW).await;
    let pod = fixture.group.child("pod");
    let container = pod.child("container");
    let job = Job { path: &fixture.path, writes: true, block: MIB, count: SECONDS * SLOW / MIB };
    assert_within("writeBytesPerSecond", container.rate(&job), SLOW);
    drop(container);
    drop(pod);
    fixture.end().await;
}

/// Only that volume, and only for those in the cgroup.
#[tokio::test(flavor = "multi_thread")]
async fn other_volumes_and_cgroups_are_not_limited() {
    needs_root!();
    let fixture = Fixture::new(block()).await;
    let create = fixture.client.create("free").size(GIB).block();
    let free = fixture.client.on_node(&create.done().await, block());
    free.up().await;
    fixture.limit("writeBytesPerSecond", SLOW).await;
    let job = |path| Job { path, writes: true, block: MIB, count: DATA / MIB };
    assert_exceeds("on another volume", || fixture.group.rate(&job(&free.target)), SLOW);
    let others = Cgroup::new();
    assert_exceeds("from another cgroup", || others.rate(&job(&fixture.path)), SLOW);
    free.down().await;
    fixture.end().await;
}
