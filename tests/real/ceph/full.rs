//! The object stores are full, not just a pool by its quota: nothing can be added, and all can be
//! taken away.

use std::time::{Duration, Instant};

use orlop_tests::*;

use crate::ceph::{TIMEOUT, VOLUME, delete, persist, up_on};

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// As the stores themselves have noticed.
fn is_full(ceph: &TestCeph) -> bool {
    ceph.ceph(&["health", "--format", "json"]).contains("OSD_FULL")
}

/// The monitors learn of it a little later.
async fn until_room(client: &Client, holds: impl Fn(i64) -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds(client.capacity().await.unwrap().available_capacity) {
        assert!(Instant::now() < deadline, "never: another capacity");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// None of the lower marks may be above it.
fn set_full_at(ceph: &TestCeph, ratio: &str) {
    for mark in ["nearfull", "backfillfull", "full"] {
        ceph.ceph(&["osd", &format!("set-{mark}-ratio"), ratio]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_cluster_allows_delete() {
    needs_root!();
    let ceph = TestCeph::small();
    let controller = ceph.controller("full-c").await;
    let (mut dead, node) = (ceph.node("full-a").await, ceph.node("full-b").await);
    let client = controller.client();
    let create = |name: &str| client.create(name).size(VOLUME).block();
    let filled = create("filled").done().await.volume_id;
    let lost = up_on(&client, &dead, "full-a", &create("lost").done().await, block()).await;
    let idle = up_on(&client, &node, "full-b", &create("idle").done().await, block()).await;
    let snapshot = client.snapshot("before", &filled).await.unwrap().snapshot_id;
    ceph.rbd(&["bench", "--io-type", "write", "--io-size", "4M", "--io-total", "200M", &filled]);
    dead.kill9();
    dead.kill_exporters();
    set_full_at(&ceph, "0.01");
    until("the stores are full", || is_full(&ceph)).await;
    until_room(&client, |free| free == 0).await;

    expect_code(create("more").send().await, Code::ResourceExhausted);
    expect_code(client.snapshot("more", &idle.id).await, Code::ResourceExhausted);
    expect_code(client.expand(&idle.id, 2 * VOLUME).await, Code::ResourceExhausted);
    assert_eq!(client.list_volumes().await.unwrap().len(), 3);
    let condition = idle.stats().await.unwrap().volume_condition.unwrap();
    assert!(condition.abnormal && condition.message.contains("full"), "{}", condition.message);
    assert_eq!(condition, client.condition(&idle.id).await.unwrap(), "both answers agree");
    for health in [idle.health().await.unwrap(), client.health(&idle.id).await.unwrap()] {
        let reasons: Vec<_> = health.health_statuses.iter().map(|it| it.reason.as_str()).collect();
        assert_eq!(reasons, ["PoolFull"]);
    }
    assert_eq!(node.log().matches("the Ceph pool is full").count(), 1);

    // One that let go by itself, and one that has to be fenced.
    idle.down().await;
    client.controller_unpublish(&idle.id, "full-b").await.unwrap();
    client.controller_unpublish(&lost.id, "full-a").await.unwrap();
    client.delete_snapshot(&snapshot).await.unwrap();
    for volume in [&idle.id, &lost.id, &filled] {
        delete(&client, volume).await;
    }
    assert!(client.list_volumes().await.unwrap().is_empty());
    until("what was deleted is freed", || ceph.rbd(&["trash", "ls"]).is_empty()).await;

    set_full_at(&ceph, "0.95");
    until("there is room", || !is_full(&ceph)).await;
    until_room(&client, |free| free > 0).await;
    delete(&client, &create("more").done().await.volume_id).await;
    dead.restart().await;
    lost.down().await;
    assert_eq!([dead.leaks(), node.leaks()].concat(), Vec::<String>::new());
}

/// A quota that is used up; lifted when it is dropped, also by a test that fails with a call that waits.
struct ExhaustedQuota<'a>(&'a TestCeph);

impl<'a> ExhaustedQuota<'a> {
    fn new(ceph: &'a TestCeph) -> Self {
        ceph.ceph(&["osd", "pool", "set-quota", "rbd", "max_objects", "1"]);
        Self(ceph)
    }

    fn shows(&self) -> bool {
        self.0.ceph(&["osd", "pool", "ls", "detail", "--format", "json"]).contains("full_quota")
    }
}

impl Drop for ExhaustedQuota<'_> {
    fn drop(&mut self) {
        self.0.ceph(&["osd", "pool", "set-quota", "rbd", "max_objects", "0"]);
    }
}

/// Unlike others it writes then, also if nothing was changed, and would wait in the kernel.
#[tokio::test(flavor = "multi_thread")]
async fn ext4_on_a_full_pool_is_not_unmounted() {
    needs_root!();
    let ceph = TestCeph::small();
    let mut daemon = ceph.launch("full-ext4", "all").start().await;
    let client = daemon.client();
    let volume = client.create("v").size(VOLUME).fs("ext4").done().await;
    let used = up_on(&client, &daemon, "full-ext4", &volume, mount("ext4")).await;
    Pattern::new(1).write(&used.data_path(), MIB);
    let used_up = ExhaustedQuota::new(&ceph);
    until("the pool is full", || used_up.shows()).await;
    until_room(&client, |free| free == 0).await;

    used.unpublish().await.unwrap();
    let refused = tokio::time::timeout(TIMEOUT, used.unstage()).await.expect("it waits");
    let refused = expect_code(refused, Code::ResourceExhausted);
    assert!(refused.message().contains("full"), "{refused}");
    // Nothing of it is left that a stop would wait for.
    daemon.restart().await;
    expect_code(used.unstage().await, Code::ResourceExhausted);
    used.publish().await.unwrap();
    Pattern::new(1).check(&used.data_path(), MIB);
    used.unpublish().await.unwrap();

    drop(used_up);
    until_room(&client, |free| free > 0).await;
    persist(|| used.unstage()).await;
    assert_eq!(daemon.leaks(), Vec::<String>::new());
}

/// The client that has the image open has to take part in the removal of a snapshot, and waits until
/// there is room.
#[tokio::test(flavor = "multi_thread")]
async fn stuck_snapshot_on_a_full_pool_does_not_stop_freeing() {
    needs_root!();
    let ceph = TestCeph::small();
    let (mut controller, node) = (ceph.controller("full-s").await, ceph.node("full-n").await);
    let client = controller.client();
    let create = |name: &str| client.create(name).size(VOLUME).block();
    let used = up_on(&client, &node, "full-n", &create("used").done().await, block()).await;
    Pattern::new(1).write(&used.target, 8 * MIB);
    let snapshot = client.snapshot("before", &used.id).await.unwrap().snapshot_id;
    let unused = create("unused").done().await.volume_id;
    ceph.rbd(&["bench", "--io-type", "write", "--io-size", "4M", "--io-total", "8M", &unused]);
    let used_up = ExhaustedQuota::new(&ceph);
    until("the pool is full", || used_up.shows()).await;
    until_room(&client, |free| free == 0).await;

    for _ in 0..2 {
        let deleted = tokio::time::timeout(TIMEOUT, client.delete_snapshot(&snapshot)).await;
        deleted.expect("it waits").unwrap();
    }
    assert!(client.list_snapshots().await.unwrap().is_empty());
    delete(&client, &unused).await;
    until("what was deleted is freed", || ceph.rbd(&["trash", "ls"]).is_empty()).await;
    let begun = Instant::now();
    controller.restart().await;
    assert!(begun.elapsed() < TIMEOUT / 4, "the stop waited");

    drop(used_up);
    until_room(&client, |free| free > 0).await;
    until("the snapshot is removed", || ceph.rbd(&["snap", "ls", "--all", &used.id]).is_empty())
        .await;
    Pattern::new(1).check(&used.target, 8 * MIB);
    used.down().await;
    client.controller_unpublish(&used.id, "full-n").await.unwrap();
    delete(&client, &used.id).await;
}
