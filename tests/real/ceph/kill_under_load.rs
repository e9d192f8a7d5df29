//! Daemons are killed all the time while callers make, use, copy, grow and delete volumes. What was
//! acknowledged holds, byte for byte; what was not is repeated, by either controller; and in the end
//! nothing is left.
//!
//! `ORLOP_TEST_CEPH_KILLS` says how many daemons are killed (10), `ORLOP_TEST_CEPH_SEED` repeats the
//! choice of calls and of those who are killed; their order is the machine's.

mod caller;
mod content;
mod endpoint;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orlop_tests::*;
use tokio::task::JoinHandle;

use crate::ceph::orphans::Orphans;
use caller::Caller;
use endpoint::Endpoint;

const NAMESPACE: &str = "storm";
const KILLS: u64 = 10;
/// Milliseconds between two kills, at most.
const LONGEST_CALM: u64 = 1200;
/// Milliseconds for which a daemon is away, at most.
const LONGEST_ABSENCE: u64 = 400;
/// Milliseconds. Within them a daemon has begun to look at what its predecessor left.
const A_START: u64 = 200;

/// The controllers, then the nodes.
async fn start() -> Vec<(Daemon, Endpoint)> {
    let ceph = TestCeph::shared();
    ceph.rbd(&["namespace", "create", &format!("rbd/{NAMESPACE}")]);
    let mut daemons = Vec::new();
    for (name, mode) in [
        ("storm-1", "controller"),
        ("storm-2", "controller"),
        ("storm-a", "node"),
        ("storm-b", "node"),
    ] {
        let launch = ceph.launch(name, mode).env("ORLOP_RBD_NAMESPACE", NAMESPACE);
        let daemon = launch.start().await;
        let endpoint = Endpoint::new(name, daemon.client());
        daemons.push((daemon, endpoint));
    }
    daemons
}

/// One daemon, now and then again while it starts.
async fn kill((daemon, endpoint): &mut (Daemon, Endpoint), rng: &mut Rng) -> u64 {
    daemon.kill9();
    endpoint.was_killed();
    tokio::time::sleep(Duration::from_millis(rng.u64(..LONGEST_ABSENCE))).await;
    let in_its_start = rng.u64(..3) == 0;
    if in_its_start {
        daemon.start_again();
        tokio::time::sleep(Duration::from_millis(rng.u64(..A_START))).await;
        daemon.kill9();
        endpoint.was_killed();
    }
    daemon.restart().await;
    1 + u64::from(in_its_start)
}

async fn joined(working: Vec<JoinHandle<Caller>>) -> Vec<Caller> {
    let mut owners = Vec::new();
    for each in working {
        owners.push(
            each.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic())),
        );
    }
    owners
}

/// All that is acknowledged, and nothing else.
async fn check_lists(client: &Client, owners: &[Caller]) {
    let listed = client.list_volumes().await.unwrap().into_iter();
    let mut listed: Vec<_> = listed
        .map(|entry| entry.volume.unwrap())
        .map(|volume| (volume.volume_id, volume.capacity_bytes))
        .collect();
    let mut known: Vec<_> = owners.iter().flat_map(Caller::volumes).collect();
    listed.sort();
    known.sort();
    assert_eq!(listed, known);
    let listed = client.list_snapshots().await.unwrap().into_iter();
    let mut listed: Vec<_> = listed.map(|snapshot| snapshot.snapshot_id).collect();
    let mut known: Vec<_> = owners.iter().flat_map(Caller::snapshots).collect();
    listed.sort();
    known.sort();
    assert_eq!(listed, known);
}

fn names_below(daemon: &Daemon, directory: &str) -> Vec<String> {
    let directory = daemon.launch().scratch().join("run/csi.orlop.io").join(directory);
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_under_load_lose_nothing_and_leave_nothing() {
    needs_root!();
    let kills = variable("ORLOP_TEST_CEPH_KILLS").unwrap_or(KILLS);
    let seed = variable("ORLOP_TEST_CEPH_SEED").unwrap_or_else(random_seed);
    report(&format!("kills on Ceph: {kills}, seed {seed}"));
    let mut daemons = start().await;
    let endpoint: Vec<_> = daemons.iter().map(|(_, endpoint)| endpoint.clone()).collect();
    let enough = Arc::new(AtomicBool::new(false));
    let working: Vec<_> = [mount("xfs"), block(), block()]
        .into_iter()
        .zip(0..)
        .map(|(capability, number)| {
            let (controllers, nodes) = endpoint.split_at(2);
            let caller = Caller::new(number, seed, capability, controllers, nodes);
            tokio::spawn(caller.work_until(Arc::clone(&enough)))
        })
        .collect();
    let mut rng = Rng::with_seed(seed);
    let mut killed = 0;
    // One that has ended has failed.
    while killed < kills && !working.iter().any(JoinHandle::is_finished) {
        tokio::time::sleep(Duration::from_millis(rng.u64(..LONGEST_CALM))).await;
        let which = rng.usize(..4);
        killed += kill(&mut daemons[which], &mut rng).await;
    }
    enough.store(true, Ordering::Release);
    let mut owners = joined(working).await;
    let calls: u64 = owners.iter().map(Caller::calls).sum();
    let repeated: u64 = owners.iter().map(Caller::repeated).sum();
    report(&format!("kills on Ceph: {killed}, {calls} calls, {repeated} of them repeated"));

    for (controller, _) in &daemons[..2] {
        check_lists(&controller.client(), &owners).await;
    }
    for caller in &mut owners {
        caller.check_everything().await;
        caller.delete_everything().await;
    }
    check_lists(&daemons[0].0.client(), &[]).await;
    for (node, _) in &daemons[2..] {
        assert_eq!(node.leaks(), [""; 0]);
        assert_eq!(names_below(node, "exports"), [""; 0]);
        assert_eq!(names_below(node, "volumes"), [""; 0]);
    }
    // After many failures they look seldom, unless they are new.
    daemons[0].0.restart().await;
    Orphans::of(NAMESPACE).until_none().await;
}
