//! 32 callers send random valid calls on 8 volumes. Every answer is one that the requirements
//! name for that call, and in the end the pool and the machine agree with the answers.
//!
//! `ORLOP_TEST_STRESS_SECONDS` says for how long (60), `ORLOP_TEST_STRESS_SEED` repeats a choice
//! of calls; their order is the machine's.

mod calls;
mod final_check;
mod history;
mod isolated;
mod objects;
mod tally;

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_tests::*;

use calls::Caller;
use history::History;
use isolated::IsolatedClient;
use objects::Subjects;
use tally::Tally;

const CALLERS: u64 = 32;

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_random_calls_get_correct_answers() {
    needs_root!();
    let seconds = variable("ORLOP_TEST_STRESS_SECONDS").unwrap_or(60);
    let seed = variable("ORLOP_TEST_STRESS_SEED").unwrap_or_else(random_seed);
    println!("{CALLERS} callers for {seconds} seconds, seed {seed}");

    let pool = TestPool::new(PoolFs::Xfs, 24 * GIB);
    let group = Cgroup::new();
    let launch = Launch::on(&pool).env("ORLOP_WORKLOAD_CGROUP", &group.name);
    let daemon = launch.env("ORLOP_LOG", "warn").start().await;
    let subjects = Arc::new(Subjects::introduce(&daemon.client()).await);
    let history = Arc::new(History::default());
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let callers = (0..CALLERS).map(|number| {
        let caller = Caller {
            client: daemon.client(),
            subjects: Arc::clone(&subjects),
            history: Arc::clone(&history),
            rng: Rng::with_seed(seed.wrapping_add(number)),
            tally: Tally::default(),
        };
        tokio::spawn(caller.call_until(deadline))
    });
    let mut tally = Tally::default();
    let mut complaints = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        let (counted, complaint) = caller.await.unwrap();
        tally.add(&counted);
        complaints.extend(complaint);
    }
    println!("{tally}");
    assert!(complaints.is_empty(), "not allowed:\n{}", complaints.join("\n"));
    tally.assert_varied();

    final_check::check(&pool, &daemon, &subjects, &history).await;
    final_check::take_down(&pool, &daemon, &subjects).await;
}

/// Also of what the callers above leave out: group snapshots, inline volumes and streams.
#[tokio::test(flavor = "multi_thread")]
async fn random_calls_of_many_clients_leave_no_orphans() {
    const CLIENTS: u64 = 24;
    const SECONDS: u64 = 10;
    needs_root!();
    let seed = variable("ORLOP_TEST_STRESS_SEED").unwrap_or_else(random_seed);
    println!("{CLIENTS} clients for {SECONDS} seconds, seed {seed}");
    let pool = TestPool::new(PoolFs::Xfs, 8 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let empty = daemon.client().capacity().await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(SECONDS);
    let clients = (0..CLIENTS).map(|number| {
        tokio::spawn(IsolatedClient::new(daemon.client(), seed, number).call_until(deadline))
    });
    let mut calls = 0;
    for client in clients.collect::<Vec<_>>() {
        calls += client.await.unwrap();
    }
    println!("{calls} steps");
    assert!(calls > CLIENTS, "hardly anything was called");
    for directory in ["volumes", "snapshots", "group-snapshots", "staging", "trash"] {
        assert_eq!(pool.entries(directory), [""; 0], "{directory}");
    }
    assert_eq!(daemon.leaks(), [""; 0]);
    daemon.restart().await;
    let after = daemon.client().capacity().await.unwrap();
    let lost = empty.available_capacity - after.available_capacity;
    assert!(lost.unsigned_abs() < 64 * MIB, "{lost} bytes of capacity are lost");
    let report = daemon.launch().run(&["doctor"]);
    assert!(report.status.success(), "{}", report.stdout);
}
