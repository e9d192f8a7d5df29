//! A signal to stop lets what is running finish, and answers it.

use std::time::{Duration, Instant};

use orlop_tests::*;
use rustix::process::Signal;
use tokio::task::JoinHandle;

/// Enough that copying it takes much longer than noticing that it has begun.
const DATA: u64 = 384 * MIB;

/// Copies take time where extents are not shared, so a plain directory it is.
async fn volume_with_data(client: &Client) -> OnNode {
    let volume = client.create("source").size(DATA).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(1).write(&node.target, DATA);
    node.down().await;
    node
}

/// Or the call has ended in the meantime, and the test says less.
async fn until_something_is_half_made<T>(pool: &TestPool, call: &JoinHandle<T>) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while pool.entries("staging").is_empty() && !call.is_finished() {
        assert!(Instant::now() < deadline, "no copy has begun");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn begin_copying(client: &Client, source: &OnNode) -> JoinHandle<Answer<v1::Snapshot>> {
    let (client, id) = (client.clone(), source.id.clone());
    tokio::spawn(async move { client.snapshot("slow", &id).await })
}

async fn a_signal_during_a_copy(signal: Signal) {
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let source = volume_with_data(&client).await;

    let copying = begin_copying(&client, &source);
    until_something_is_half_made(&pool, &copying).await;
    daemon.signal(signal);
    let snapshot = copying.await.unwrap().expect("the call that was running is answered");
    assert!(daemon.wait_for_end().success());
    assert!(!daemon.launch().socket().exists());

    daemon.restart().await;
    assert_eq!(client.list_snapshots().await.unwrap(), std::slice::from_ref(&snapshot));
    let restored = client.create("restored").block().from_snapshot(&snapshot.snapshot_id);
    let restored = client.on_node(&restored.done().await, block());
    restored.up().await;
    Pattern::new(1).check(&restored.target, DATA);
    restored.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_finishes_what_is_running() {
    needs_root!();
    a_signal_during_a_copy(Signal::TERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigint_finishes_what_is_running() {
    needs_root!();
    a_signal_during_a_copy(Signal::INT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_finishes_what_is_running() {
    needs_root!();
    a_signal_during_a_copy(Signal::HUP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_is_ignored_as_nohup_asks() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let ignoring = ["/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];
    let mut daemon = Launch::on(&pool).run_by(&ignoring).start().await;
    daemon.signal(Signal::HUP);
    assert!(daemon.client().probe().await.unwrap());
    daemon.terminate();
    assert_eq!(daemon.log().matches("stopping: finishing").count(), 1, "{}", daemon.log_end());
}

/// The kernel chooses the thread that takes a signal. One that keeps a lock has no descriptor by
/// which the others hear of it.
#[tokio::test(flavor = "multi_thread")]
async fn lock_threads_block_signals() {
    const STOPPING: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let mut keepers = 0;
    for thread in std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap() {
        let Ok(status) = std::fs::read_to_string(thread.unwrap().path().join("status")) else {
            continue;
        };
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        if value("Name:").trim() != "lock" {
            continue;
        }
        keepers += 1;
        let blocked = u64::from_str_radix(value("SigBlk:").trim(), 16).unwrap();
        for signal in STOPPING {
            assert!(blocked >> (signal.as_raw() - 1) & 1 == 1, "{signal:?} in {blocked:x}");
        }
    }
    assert!(keepers >= 2, "{keepers} threads keep the locks of the run directory and the pool");
    daemon.terminate();
}

/// GEN-26: a caller that hangs up undoes nothing, and is waited for like any other.
#[tokio::test(flavor = "multi_thread")]
async fn stop_finishes_calls_of_disconnected_clients() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let source = volume_with_data(&client).await;
    let copying = begin_copying(&client, &source);
    until_something_is_half_made(&pool, &copying).await;
    copying.abort();
    daemon.terminate();
    assert_eq!(pool.entries("snapshots").len(), 1);
    assert_eq!(pool.entries("staging"), [""; 0]);
}

/// How far the image of a managed pool is, when a signal comes.
#[derive(Debug, Clone, Copy)]
enum Progress {
    Made,
    Attached,
    Mounted,
}

impl Progress {
    fn is_reached(self, pool: &TestPool) -> bool {
        match self {
            Self::Made => {
                std::fs::read_dir(&pool.path).is_ok_and(|mut found| found.next().is_some())
            }
            Self::Attached => {
                let devices = orlop_sys::loopdev::all_backed().unwrap();
                devices.iter().any(|device| device.file.starts_with(&pool.path))
            }
            Self::Mounted => {
                let mounts = orlop_sys::mounts::all_mounts().unwrap();
                mounts.iter().any(|mount| mount.mount_point.starts_with(&pool.path))
            }
        }
    }
}

/// The first start makes the image, the second one finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_managed_pool_that_is_being_opened_is_closed() {
    needs_root!();
    for progress in [Progress::Made, Progress::Attached, Progress::Mounted] {
        let pool = TestPool::new(PoolFs::Directory, 0);
        let launch = Launch::on(&pool).env("ORLOP_POOL_IMAGE_SIZE", "400MiB");
        let mut daemon = launch.idle();
        for start in 1..=2 {
            daemon.start_again();
            let deadline = Instant::now() + Duration::from_secs(60);
            let is_opening = || daemon.log().matches("opening the pools").count() == start;
            while !is_opening() || !progress.is_reached(&pool) {
                assert!(Instant::now() < deadline, "start {start}: never {progress:?}");
            }
            daemon.signal(Signal::TERM);
            assert!(daemon.wait_for_end().success());
            let left = daemon.devices_and_mounts();
            assert_eq!(left, [""; 0], "start {start}, {progress:?}:\n{}", daemon.log_end());
        }
        daemon.restart().await;
        daemon.terminate();
    }
}

/// Volumes in use are none of the daemon's to take down: workloads go on without it.
#[tokio::test(flavor = "multi_thread")]
async fn publications_survive_a_stop() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(1).write(&node.data_path(), MIB);
    daemon.terminate();
    Pattern::new(1).check(&node.data_path(), MIB);
    Pattern::new(2).write(&node.data_path(), MIB);
    daemon.restart().await;
    Pattern::new(2).check(&node.data_path(), MIB);
    node.down().await;
}
