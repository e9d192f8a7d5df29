//! Cgroups that are removed, renamed and made again under a daemon. On cgroup v1 each group needs the
//! limit itself, so each has to be found.

use std::time::{Duration, Instant};

use orlop_tests::*;

use crate::limits::daemon_for;

const LIMIT: [(&str, u64); 1] = [("writeIops", 300)];
const TIMEOUT: Duration = Duration::from_secs(60);

async fn limited_volume(client: &Client, name: &str) -> OnNode {
    let create = client.create(name).size(64 * MIB).block();
    let volume = create.mutable_parameter("writeIops", "300").done().await;
    client.on_node(&volume, block())
}

#[track_caller]
fn is_limited(group: &Cgroup, device: (u32, u32)) {
    let deadline = Instant::now() + TIMEOUT;
    while group.limits_of(device) != LIMIT {
        assert!(Instant::now() < deadline, "{}: {:?}", group.name, group.limits_of(device));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many directories the process watches.
fn watches(pid: u32) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let texts = descriptors.map(|entry| std::fs::read_to_string(entry.unwrap().path()));
    let count = |text: String| text.lines().filter(|line| line.starts_with("inotify wd:")).count();
    texts.map(|text| text.map_or(0, count)).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_workload_group_that_was_made_again_are_limited() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let group = Cgroup::new();
    if group.is_unified() {
        return;
    }
    let mut daemon = daemon_for(&pool, &group).await;
    let client = daemon.client();
    let node = limited_volume(&client, "v").await;
    node.up().await;
    let device = device_at(&node);
    is_limited(&group.child("first"), device);

    // In use all the time.
    group.remake();
    is_limited(&group, device);
    is_limited(&group.child("second"), device);
    node.down().await;

    // Used for the first time after that.
    group.remake();
    node.up().await;
    let device = device_at(&node);
    is_limited(&group.child("third"), device);

    // While no daemon runs: the kernel does not know the limit any more, but the volume's record does.
    daemon.terminate();
    group.remake();
    daemon.restart().await;
    is_limited(&group, device);
    is_limited(&group.child("fourth"), device);
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_below_a_renamed_one_are_limited() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let group = Cgroup::new();
    if group.is_unified() {
        return;
    }
    let daemon = daemon_for(&pool, &group).await;
    let client = daemon.client();
    let node = limited_volume(&client, "v").await;
    node.up().await;
    let device = device_at(&node);
    let mut pod = group.child("before");
    is_limited(&pod, device);
    pod.rename("after");
    is_limited(&pod.child("container"), device);
    node.down().await;
}

/// The kernel bounds how many directories a user may watch.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_gone_is_watched_no_longer() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let group = Cgroup::new();
    if group.is_unified() {
        return;
    }
    let daemon = daemon_for(&pool, &group).await;
    let client = daemon.client();
    let node = limited_volume(&client, "v").await;
    node.up().await;
    let device = device_at(&node);
    let before = watches(daemon.pid());
    assert!(before > 0, "nothing is watched");
    for number in 0..50 {
        is_limited(&group.child(&format!("pod-{number}")), device);
    }
    let deadline = Instant::now() + TIMEOUT;
    while watches(daemon.pid()) > before {
        assert!(Instant::now() < deadline, "{before} watches became {}", watches(daemon.pid()));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    node.down().await;
}
