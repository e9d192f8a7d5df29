//! The limits in the kernel: all or nothing, again after a restart, and no longer than needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orlop_tests::*;

use crate::limits::daemon_for;

const NONE: [(&str, u64); 0] = [];
const TIMEOUT: Duration = Duration::from_secs(60);

async fn volume(client: &Client, limits: &[(&str, &str)]) -> OnNode {
    let create = client.create("v").size(64 * MIB).block();
    let create =
        limits.iter().fold(create, |create, (key, rate)| create.mutable_parameter(key, rate));
    client.on_node(&create.done().await, block())
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_limits_change_nothing() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let group = Cgroup::new();
    let daemon = daemon_for(&pool, &group).await;
    let client = daemon.client();
    let node = volume(&client, &[("writeIops", "300")]).await;
    node.up().await;
    let before = group.limits_of(device_at(&node));
    assert_eq!(before, [("writeIops", 300)]);
    let good = ("readIops", "100");
    let wrong: [&[(&str, &str)]; 7] = [
        &[],
        &[("colour", "red")],
        &[good, ("colour", "red")],
        &[good, ("writeIops", "fast")],
        &[good, ("writeIops", "-1")],
        &[good, ("writeBytesPerSecond", "1.5")],
        &[good, ("writeIops", "99999999999999999999")],
    ];
    for parameters in wrong {
        let answer = client.modify(&node.id, parameters).await;
        expect_code(answer, Code::InvalidArgument);
        assert_eq!(group.limits_of(device_at(&node)), before, "{parameters:?}");
    }
    expect_code(client.modify("no-such-volume", &[good]).await, Code::NotFound);
    let create = client.create("other").size(64 * MIB).block();
    let answer = create.mutable_parameter("writeIops", "fast").send().await;
    expect_code(answer, Code::InvalidArgument);
    assert_eq!(pool.entries("volumes"), std::slice::from_ref(&node.id));

    client.modify(&node.id, &[good]).await.unwrap();
    let both = [("readIops", 100), ("writeIops", 300)];
    assert_eq!(group.limits_of(device_at(&node)), both, "what is not named stays");
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_survive_a_restart_and_a_new_stage() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let group = Cgroup::new();
    let mut daemon = daemon_for(&pool, &group).await;
    let client = daemon.client();
    // CV-19: of the same key in both, the mutable one counts.
    let create = client.create("v").size(64 * MIB).block().parameter("readIops", "100");
    let create = create.parameter("writeIops", "300").mutable_parameter("readIops", "200");
    let node = client.on_node(&create.done().await, block());
    let expected = [("readIops", 200), ("writeIops", 300)];
    node.up().await;
    let device = device_at(&node);
    assert_eq!(group.limits_of(device), expected);

    daemon.kill9();
    assert_eq!(group.limits_of(device), expected);
    daemon.restart().await;
    assert_eq!(group.limits_of(device), expected);
    client.modify(&node.id, &[("readIops", "250")]).await.unwrap();
    let expected = [("readIops", 250), ("writeIops", 300)];
    assert_eq!(group.limits_of(device), expected);

    node.down().await;
    assert_eq!(group.limits_of(device), NONE, "the number goes to another volume next");
    daemon.kill9();
    daemon.restart().await;
    node.up().await;
    assert_eq!(group.limits_of(device_at(&node)), expected);
    node.down().await;
}

/// Staged by a daemon that was killed, unstaged by its successor.
#[tokio::test(flavor = "multi_thread")]
async fn successor_lifts_limits_at_unstage() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let group = Cgroup::new();
    let mut daemon = daemon_for(&pool, &group).await;
    let client = daemon.client();
    let node = volume(&client, &[("writeIops", "300")]).await;
    node.up().await;
    let device = device_at(&node);
    daemon.kill9();
    daemon.restart().await;
    node.down().await;
    assert_eq!(group.limits_of(device), NONE);
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_device_has_the_same_limits() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let group = Cgroup::new();
    let daemon = daemon_for(&pool, &group).await;
    let client = daemon.client();
    let node = volume(&client, &[("readIops", "200")]).await;
    node.stage().await.unwrap();
    node.publish_at(&node.target, true).await.unwrap();
    let device = device_at(&node);
    assert_eq!(group.limits_of(device), [("readIops", 200)]);
    client.modify(&node.id, &[("readIops", "250")]).await.unwrap();
    assert_eq!(group.limits_of(device), [("readIops", 250)]);
    node.unpublish().await.unwrap();
    assert_eq!(group.limits_of(device), NONE, "released while the volume is still staged");
    node.unstage().await.unwrap();
}

/// A pod's cgroup is made after its volumes are staged and before they are published.
#[tokio::test(flavor = "multi_thread")]
async fn cgroup_created_between_stage_and_publish_is_limited() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let group = Cgroup::new();
    let daemon = daemon_for(&pool, &group).await;
    let client = daemon.client();
    let node = volume(&client, &[("writeIops", "300")]).await;
    node.stage().await.unwrap();
    let pod = group.child("pod");
    node.publish().await.unwrap();
    let device = device_at(&node);
    // cgroup v2 needs no limit of the group's own: that of the group above holds.
    let limits = [pod.limits_of(device), group.limits_of(device)].concat();
    assert!(limits.contains(&("writeIops", 300)));
    node.down().await;
    assert_eq!(pod.limits_of(device), NONE);
    assert_eq!(group.limits_of(device), NONE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_volume_leaves_no_limit() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let group = Cgroup::new();
    let daemon = daemon_for(&pool, &group).await;
    let client = daemon.client();
    let node = volume(&client, &[("writeIops", "300")]).await;
    node.up().await;
    let device = device_at(&node);
    node.down().await;
    client.delete(&node.id).await.unwrap();
    assert_eq!(group.limits_of(device), NONE);
    // The next device with this number has no limit either.
    let other = client.create("other").size(64 * MIB).block().done().await;
    let other = client.on_node(&other, block());
    other.up().await;
    assert_eq!(group.limits_of(device_at(&other)), NONE);
    other.down().await;
}

/// A container's cgroup is made after its volumes are published. On cgroup v2 the limit of the group
/// above holds for it; on v1 it needs one itself.
async fn is_limited(pods: &[&Cgroup], group: &Cgroup, device: (u32, u32), limits: &[(&str, u64)]) {
    let deadline = Instant::now() + TIMEOUT;
    for pod in pods {
        let found =
            || if group.is_unified() { group.limits_of(device) } else { pod.limits_of(device) };
        while found() != limits {
            assert!(Instant::now() < deadline, "{}: {:?}", pod.name, found());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cgroup_created_later_is_limited() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let group = Cgroup::new();
    let mut daemon = daemon_for(&pool, &group).await;
    let client = daemon.client();
    let node = volume(&client, &[("writeIops", "300")]).await;
    node.up().await;
    let device = device_at(&node);
    let pod = group.child("pod");
    let container = pod.child("container");
    is_limited(&[&pod, &container], &group, device, &[("writeIops", 300)]).await;
    client.modify(&node.id, &[("readIops", "100"), ("writeIops", "200")]).await.unwrap();
    let limits = [("readIops", 100), ("writeIops", 200)];
    let second = pod.child("second");
    is_limited(&[&pod, &container, &second], &group, device, &limits).await;

    // Made while no daemon runs, and then under its successor.
    daemon.kill9();
    let while_down = group.child("while-down");
    daemon.restart().await;
    let after = while_down.child("after");
    is_limited(&[&while_down, &after], &group, device, &limits).await;

    node.down().await;
    for made in [&pod, &container, &second, &while_down, &after, &group] {
        assert_eq!(made.limits_of(device), NONE, "{}", made.name);
    }
    let last = group.child("last");
    let other = client.create("other").size(64 * MIB).block().done().await;
    let other = client.on_node(&other, block());
    other.up().await;
    assert_eq!(last.limits_of(device), NONE);
    other.down().await;
    drop(after);
    drop(container);
    drop(second);
}

/// Some are gone by the time they are looked at.
#[tokio::test(flavor = "multi_thread")]
async fn short_lived_cgroups_are_limited() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let group = Cgroup::new();
    let daemon = daemon_for(&pool, &group).await;
    let client = daemon.client();
    let node = volume(&client, &[("writeIops", "300")]).await;
    node.up().await;
    let device = device_at(&node);
    for round in 0..3 {
        let passing: Vec<_> = (0..100).map(|pod| group.child(&format!("{round}-{pod}"))).collect();
        let inner: Vec<_> = passing.iter().map(|pod| pod.child("container")).collect();
        drop(inner);
        drop(passing);
    }
    let pods: Vec<_> = (0..100).map(|pod| group.child(&format!("pod-{pod}"))).collect();
    is_limited(&pods.iter().collect::<Vec<_>>(), &group, device, &[("writeIops", 300)]).await;
    node.down().await;
    for pod in &pods {
        assert_eq!(pod.limits_of(device), NONE);
    }
}

/// A machine on which pods start and end all the time, while an operator changes a class.
#[tokio::test(flavor = "multi_thread")]
async fn limits_are_set_while_groups_come_and_go() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let group = Arc::new(Cgroup::new());
    let daemon = daemon_for(&pool, &group).await;
    let client = daemon.client();
    let node = volume(&client, &[("writeIops", "300")]).await;
    let quiet = Arc::new(AtomicBool::new(false));
    let _when_done = Quiet(Arc::clone(&quiet));
    let pods: Vec<_> = (0..4)
        .map(|worker| {
            let (group, quiet) = (Arc::clone(&group), Arc::clone(&quiet));
            tokio::task::spawn_blocking(move || come_and_go(&group, worker, &quiet))
        })
        .collect();
    for round in 0..10_u64 {
        node.up().await;
        for rate in [300 + round, 400 + round] {
            client.modify(&node.id, &[("writeIops", &rate.to_string())]).await.unwrap();
            let pod = group.child(&format!("kept-{rate}"));
            is_limited(&[&pod], &group, device_at(&node), &[("writeIops", rate)]).await;
        }
        let device = device_at(&node);
        node.down().await;
        assert_eq!(group.limits_of(device), NONE, "the number goes to another volume next");
    }
    quiet.store(true, Ordering::SeqCst);
    for pods in pods {
        assert!(pods.await.unwrap() > 0, "no group came");
    }
    let defects = daemon.log().lines().filter(|line| line.contains(" ERROR ")).count();
    assert_eq!(defects, 0, "errors in the log");
}

/// Ends the pods also when the test fails: the runtime waits for them.
struct Quiet(Arc<AtomicBool>);

impl Drop for Quiet {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn come_and_go(group: &Cgroup, worker: u32, quiet: &AtomicBool) -> u32 {
    for round in 0.. {
        let pod = group.child(&format!("pod-{worker}-{round}"));
        let container = pod.child("container");
        if quiet.load(Ordering::SeqCst) {
            return round;
        }
        drop(container);
        drop(pod);
    }
    unreachable!("the loop has no end")
}
