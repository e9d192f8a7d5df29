//! The whole cluster is away for longer than calls wait: they say so, other pools do not suffer, and
//! all goes on when it is back.

use std::path::Path;

use orlop_tests::*;

use crate::ceph::killing::answered;
use crate::ceph::{VOLUME, down_from, persist, up_on};

const DATA: u64 = 8 * MIB;
const NODE: &str = "away";
/// Soon enough not to hold up the tests, and far more than a cluster needs that is there.
const TIMEOUT_SECONDS: u32 = 6;

fn on_pool(client: &Client, name: &str, pool: &str) -> Create {
    client.create(name).size(VOLUME).parameter("pool", pool)
}

fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

/// Whatever is asked of the pool that is away; nothing of it waits without end or changes anything.
async fn assert_away(client: &Client, in_use: &OnNode, idle: &OnNode) {
    let refusals = [
        on_pool(client, "more", "ceph").block().send().await.map(drop),
        client.delete(&idle.id).await,
        client.snapshot("more", &in_use.id).await.map(drop),
        client.controller_unpublish(&in_use.id, NODE).await,
        client.controller_unpublish(&idle.id, NODE).await,
        client.get_volume(&idle.id).await.map(drop),
        // What is missing from a list is taken for gone.
        client.list_volumes().await.map(drop),
        idle.stage().await,
        idle.unstage().await,
        in_use.stats().await.map(drop),
    ];
    for (number, refusal) in refusals.into_iter().enumerate() {
        let status = refusal.expect_err(&format!("call {number} succeeded"));
        assert_eq!(status.code(), Code::Unavailable, "call {number}: {status}");
        assert!(status.message().contains("Ceph"), "call {number}: {status}");
    }
    assert!(is_mounted(&in_use.target));
    assert_health_away(client, in_use).await;
}

fn is_unreachable(health: &v1::VolumeHealth) -> bool {
    health.health_statuses.iter().any(|entry| entry.reason == "PoolUnreachable")
}

async fn assert_health_away(client: &Client, in_use: &OnNode) {
    assert!(is_unreachable(&in_use.health().await.unwrap()));
    expect_code(client.list_health().await, Code::Unavailable);
    let storage = client.storage_health().await.unwrap();
    let unreachable = v1::StorageHealthErrorType::StorageUnreachable;
    assert_eq!(storage, [(unreachable, "PoolUnreachable".to_owned())]);
}

async fn assert_served(client: &Client, name: &str) {
    let volume = persist(|| on_pool(client, name, "local").block().send()).await;
    client.snapshot(name, &volume.volume_id).await.unwrap();
    assert!(client.capacity().await.unwrap().available_capacity > 0);
    client.delete(&volume.volume_id).await.unwrap();
    client.delete_snapshot(&snapshot_of(client, &volume.volume_id).await).await.unwrap();
}

async fn snapshot_of(client: &Client, volume: &str) -> String {
    let request = v1::ListSnapshotsRequest {
        source_volume_id: volume.to_owned(),
        ..v1::ListSnapshotsRequest::default()
    };
    let listed = client.controller().list_snapshots(request).await.unwrap().into_inner();
    listed.entries.into_iter().next().unwrap().snapshot.unwrap().snapshot_id
}

/// No client can be fenced then, so no other node gets the volume.
async fn assert_kept_without_monitors(ceph: &TestCeph, client: &Client, staged: &OnNode) {
    ceph.kill("mon.a");
    expect_code(client.controller_unpublish(&staged.id, NODE).await, Code::Unavailable);
    ceph.revive();
    let there = persist(|| client.get_volume(&staged.id)).await;
    assert_eq!(there.status.unwrap().published_node_ids, [NODE]);
    persist(|| client.controller_unpublish(&staged.id, NODE)).await;
    let there = client.get_volume(&staged.id).await.unwrap();
    assert!(there.status.unwrap().published_node_ids.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_cluster_is_reported_and_other_pools_work() {
    needs_root!();
    let ceph = TestCeph::small();
    let mut daemon = ceph.launch_beside_a_directory(NODE, TIMEOUT_SECONDS).start().await;
    let client = daemon.client();
    let volume = on_pool(&client, "in use", "ceph").fs("xfs").done().await;
    let in_use = up_on(&client, &daemon, NODE, &volume, mount("xfs")).await;
    Pattern::new(1).write(&in_use.target.join("kept"), DATA);
    let workload = Workload::writing(&in_use.data_path());
    let volume = on_pool(&client, "idle", "ceph").block().done().await;
    let idle = up_on(&client, &daemon, NODE, &volume, block()).await;

    let outage = ceph.take_down();
    assert!(client.probe().await.unwrap(), "the other pool serves");
    assert_served(&client, "before it is known").await;
    expect_code(on_pool(&client, "more", "ceph").block().send().await, Code::Unavailable);
    assert!(client.probe().await.unwrap(), "the other pool serves");
    // Needs only the kernel.
    idle.unpublish().await.unwrap();
    assert_away(&client, &in_use, &idle).await;
    assert!(is_unreachable(&client.health(&idle.id).await.unwrap()));
    assert_served(&client, "while it is away").await;

    // Its successor does not even know what the pool is called by those who made its volumes.
    daemon.kill9();
    daemon.start_again();
    assert_served(&client, "of a successor").await;
    assert!(client.probe().await.unwrap(), "the other pool serves");
    assert_away(&client, &in_use, &idle).await;
    // It cannot know whether the volume exists.
    expect_code(client.health(&idle.id).await, Code::Unavailable);
    let absent = client.delete(&idle.id).await.unwrap_err();
    assert!(absent.message().contains("not in service yet"), "{absent}");

    drop(outage);
    persist(|| client.list_volumes()).await;
    workload.goes_on().await;
    workload.finish();
    Pattern::new(1).check(&in_use.target.join("kept"), DATA);
    persist(|| on_pool(&client, "more", "ceph").block().send()).await;
    let more = client.list_volumes().await.unwrap();
    assert_eq!(more.len(), 3);
    down_from(&client, NODE, &in_use).await;
    assert_kept_without_monitors(&ceph, &client, &idle).await;
    idle.unstage().await.unwrap();
    for entry in more {
        let id = entry.volume.unwrap().volume_id;
        answered(|| client.delete(&id)).await;
    }
}

/// It would not be mended by waiting.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_ceph_setting_ends_the_start() {
    needs_root!();
    let ceph = TestCeph::shared();
    let launch = ceph.launch("mistaken", "controller");
    let keyring = launch.scratch().join("keyring");
    let wrong = "AQDNxyVnAAAAABAAZ0mZGZ3dWkZ0mZGZ3dWkZw==";
    std::fs::write(&keyring, format!("[client.orlop]\n\tkey = {wrong}\n")).unwrap();
    let nowhere = launch.scratch().join("no-keyring");
    // What `--check` can tell without the cluster has its code.
    for (name, value, expected, code) in [
        ("ORLOP_RBD_KEYRING", keyring.to_str().unwrap(), "may not", 1),
        ("ORLOP_RBD_KEYRING", nowhere.to_str().unwrap(), "keyring", 2),
        ("ORLOP_RBD_POOL", "no-such-pool", "no-such-pool", 1),
        ("ORLOP_RBD_NAMESPACE", "no-such-space", "no-such-space", 1),
    ] {
        let ended = launch.clone().env(name, value).run_to_end();
        assert_eq!(ended.status.code(), Some(code), "{name}={value}: {}", ended.output);
        assert!(ended.output.contains(expected), "{name}={value}: {}", ended.output);
        std::fs::remove_file(launch.log_path()).unwrap();
    }
}

/// The start waits a while for what may be a mistake in the settings, but not with all pools.
#[tokio::test(flavor = "multi_thread")]
async fn other_pools_are_served_while_one_is_being_opened() {
    needs_root!();
    let ceph = TestCeph::small();
    let launch = ceph.launch_beside_a_directory("opening", 60);
    let outage = ceph.take_down();
    let mut daemon = launch.idle();
    daemon.start_again();
    let client = daemon.client();
    let volume = persist(|| on_pool(&client, "local", "local").block().send()).await;
    let given_up = "it is opened when it appears";
    assert!(!daemon.log().contains(given_up), "{}", daemon.log_end());
    let absent = on_pool(&client, "remote", "ceph").block().send().await.unwrap_err();
    assert_eq!(absent.code(), Code::Unavailable, "{absent}");
    assert!(absent.message().contains("not in service yet"), "{absent}");
    assert!(client.probe().await.unwrap());
    client.delete(&volume.volume_id).await.unwrap();

    drop(outage);
    let volume = persist(|| on_pool(&client, "remote", "ceph").block().send()).await;
    client.delete(&volume.volume_id).await.unwrap();
}
