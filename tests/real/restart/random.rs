//! Random calls of several callers while the daemon is killed at random moments, again and again. Each
//! caller knows what its volumes and snapshots hold, from the answers that it got; that is compared byte
//! for byte.
//!
//! `ORLOP_TEST_KILLS` says how many kills there are in all (21), `ORLOP_TEST_KILLS_SEED` repeats the
//! choice of calls; their order is the machine's.

mod caller;
mod contents;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use orlop_tests::*;
use tokio::task::JoinHandle;

use caller::{Caller, Progress};

const KILLS: u64 = 21;
const POOLS: u64 = 3;
const CALLERS: u64 = 6;
/// Answers between two kills, at most.
const CALLS: u64 = 60;
/// Milliseconds, so that a kill is not always at the begin of a call.
const MOMENT: u64 = 30;

on_every_pool!(acknowledged_state_survives_random_kills);

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

fn random_seed() -> u64 {
    u64::from_le_bytes(orlop_sys::rand::random_bytes().unwrap())
}

async fn acknowledged_state_survives_random_kills(fs: PoolFs) {
    let kills = variable("ORLOP_TEST_KILLS").unwrap_or(KILLS).div_ceil(POOLS);
    let seed = variable("ORLOP_TEST_KILLS_SEED").unwrap_or_else(random_seed);
    report(&format!("random kills on {fs:?}: {kills}, seed {seed}"));
    let pool = TestPool::in_memory(fs, 4 * GIB);
    let launch = Launch::on(&pool).env("ORLOP_LOG", "info");
    let mut daemon = launch.start().await;
    let progress = Arc::new(Progress::default());
    let working: Vec<_> = (0..CALLERS)
        .map(|number| Caller::new(daemon.client(), seed, number, &progress))
        .map(|caller| tokio::spawn(caller.work()))
        .collect();
    let mut rng = Rng::with_seed(seed.wrapping_add(CALLERS));
    for _ in 0..kills {
        let calls = progress.calls() + rng.u64(..CALLS);
        until_called(&progress, calls, &working).await;
        tokio::time::sleep(Duration::from_millis(rng.u64(..MOMENT))).await;
        progress.kill();
        daemon.kill9();
        daemon.restart().await;
    }
    until_called(&progress, progress.calls() + CALLS, &working).await;
    progress.finish();
    let mut callers = Vec::new();
    for each in working {
        callers.push(each.await.unwrap());
    }
    compare_lists(&daemon.client(), &callers).await;
    for caller in callers {
        caller.check_and_delete_all().await;
    }
    assert_nothing_is_left(&pool, &daemon);
    report(&format!("random kills on {fs:?}: {kills} kills, {progress}"));
}

async fn until_called<T>(progress: &Progress, calls: u64, working: &[JoinHandle<T>]) {
    while progress.calls() < calls {
        assert!(!working.iter().any(JoinHandle::is_finished), "a caller failed");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn compare_lists(client: &Client, callers: &[Caller]) {
    let listed = client.list_volumes().await.unwrap();
    for entry in &listed {
        let condition = entry.status.as_ref().unwrap().volume_condition.as_ref().unwrap();
        assert!(!condition.abnormal, "{}", condition.message);
    }
    let volumes = listed.into_iter().map(|entry| entry.volume.unwrap());
    let volumes: BTreeSet<_> =
        volumes.map(|volume| (volume.volume_id, volume.capacity_bytes)).collect();
    assert_eq!(volumes, callers.iter().flat_map(Caller::volumes).collect());
    let snapshots = client.list_snapshots().await.unwrap();
    let snapshots: BTreeSet<_> = snapshots.into_iter().map(|each| each.snapshot_id).collect();
    assert_eq!(snapshots, callers.iter().flat_map(Caller::snapshots).collect());
}

fn assert_nothing_is_left(pool: &TestPool, daemon: &Daemon) {
    for directory in ["volumes", "snapshots", "staging", "trash"] {
        assert_eq!(pool.entries(directory), [""; 0], "{directory}");
    }
    let records = pool.scratch().join("run/csi.orlop.io/volumes");
    assert_eq!(std::fs::read_dir(records).unwrap().count(), 0, "records of volumes in use");
    assert_eq!(daemon.leaks(), [""; 0]);
    let found = daemon.launch().run(&["doctor"]);
    assert!(found.status.success(), "{}", found.stdout);
}
