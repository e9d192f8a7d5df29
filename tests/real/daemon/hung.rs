//! One of two pools hangs: its filesystem is frozen, and every writer waits in the kernel.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_sys::filesystem;
use orlop_tests::*;
use rustix::process::Signal;

/// Far more than anything here takes; reached only by what never happens.
const TIMEOUT: Duration = Duration::from_secs(120);
const VOLUME: u64 = MIB;
/// For calls of the controller on one pool. Each has a thread.
const PLACES: usize = 64;
/// More than a pool has places.
const CALLS: usize = 100;

pub(super) fn on_pool(client: &Client, name: &str, pool: &str) -> Create {
    client.create(name).size(VOLUME).block().parameter("pool", pool)
}

/// Thawed when it is dropped, also by a test that fails.
pub(crate) struct Frozen(PathBuf);

impl Frozen {
    pub(crate) fn new(pool: &TestPool) -> Self {
        filesystem::freeze(&pool.path).unwrap();
        Self(pool.path.clone())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = filesystem::ensure_thawed(&self.0);
    }
}

pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A call that must be answered, however long the other pool hangs.
pub(super) async fn answered<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, call).await.expect("a call hangs with the other pool")
}

/// Threads that wait in the kernel, and cannot be called off.
fn stuck_threads(daemon: &Daemon) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().flatten();
    // One that cannot be read has ended since it was listed.
    let states =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    states.filter(|status| status.contains("State:\tD")).count()
}

/// Creations whose callers hang up, as many as the pool has places and more.
async fn hang_up_on(daemon: &Daemon, pool: &str) {
    let client = daemon.client();
    let calls: Vec<_> = (0..CALLS)
        .map(|number| {
            let create = on_pool(&client, &format!("hung {number}"), pool);
            tokio::spawn(async move { create.send().await })
        })
        .collect();
    until("all places are taken", || async { stuck_threads(daemon) >= PLACES }).await;
    for call in calls {
        call.abort();
    }
}

pub(super) async fn assert_served(client: &Client, name: &str) {
    let volume = answered(on_pool(client, name, "well").send()).await.unwrap();
    let node = client.on_node(&volume, block());
    answered(node.up()).await;
    answered(node.stats()).await.unwrap();
    answered(node.down()).await;
    let snapshot = answered(client.snapshot(name, &volume.volume_id)).await.unwrap();
    answered(client.delete_snapshot(&snapshot.snapshot_id)).await.unwrap();
    answered(client.delete(&volume.volume_id)).await.unwrap();
    // Without the parameter, the pool that answers will do.
    let anywhere = answered(client.create(name).size(VOLUME).block().send()).await;
    if let Ok(volume) = anywhere {
        answered(client.delete(&volume.volume_id)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hung_pool_affects_only_itself() {
    needs_root!();
    let well = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let hung = well.beside("hung", PoolFs::Xfs, GIB);
    let pools = [("well", &well, ""), ("hung", &hung, "")];
    let daemon = Launch::on_several(&pools).start().await;
    let client = daemon.client();
    let published = client.on_node(&on_pool(&client, "in use", "well").done().await, block());
    published.up().await;
    let kept = on_pool(&client, "kept", "hung").done().await;
    let target = client.on_node(&kept, block());
    target.up().await;

    let frozen = Frozen::new(&hung);
    hang_up_on(&daemon, "hung").await;
    assert_served(&client, "before it is known").await;
    answered(published.down()).await;
    let listed = answered(client.list_volumes()).await.unwrap();
    assert_eq!(listed.len(), 2, "what is there can be seen");
    assert!(answered(client.capacity()).await.unwrap().available_capacity > 0);
    // Needs nothing but the kernel.
    answered(target.unpublish()).await.unwrap();

    until("it is known", || async {
        // Never held up by it.
        assert!(answered(client.probe()).await.unwrap());
        daemon.log().contains("use pool hung")
    })
    .await;
    let refused = answered(client.delete(&kept.volume_id)).await;
    let refused = expect_code(refused, Code::Unavailable);
    assert!(refused.message().contains("pool hung"), "{refused}");
    expect_code(answered(on_pool(&client, "more", "hung").send()).await, Code::Unavailable);
    expect_code(answered(target.unstage()).await, Code::Unavailable);
    let listed = answered(client.list_volumes()).await.unwrap();
    let condition = |entry: &v1::list_volumes_response::Entry| {
        entry.status.clone().unwrap().volume_condition.unwrap()
    };
    let abnormal: Vec<_> = listed.iter().map(condition).filter(|it| it.abnormal).collect();
    assert_eq!(abnormal.len(), 1, "{abnormal:?}");
    let abnormal = answered(client.list_health()).await.unwrap();
    assert_eq!(abnormal, [answered(client.health(&kept.volume_id)).await.unwrap()]);
    assert_eq!(abnormal[0].health_statuses[0].reason, "PoolUnreachable");
    let on_node = answered(target.health()).await.unwrap();
    assert_eq!(on_node.health_statuses[0].reason, "PoolUnreachable");
    let storage = answered(client.storage_health()).await.unwrap();
    let unreachable = v1::StorageHealthErrorType::StorageUnreachable;
    assert_eq!(storage, [(unreachable, "PoolUnreachable".to_owned())]);
    assert!(answered(client.capacity()).await.unwrap().available_capacity > 0);
    let anywhere = answered(client.create("anywhere").size(VOLUME).block().send()).await.unwrap();
    answered(client.delete(&anywhere.volume_id)).await.unwrap();
    assert_served(&client, "while it is known").await;

    drop(frozen);
    until("it answers", || async { daemon.log().contains("the pool responds again") }).await;
    // What was under way is finished, also for callers that are gone.
    until("finished", || async { client.list_volumes().await.is_ok_and(|all| all.len() >= 65) })
        .await;
    target.unstage().await.unwrap();
    for entry in client.list_volumes().await.unwrap() {
        let id = entry.volume.unwrap().volume_id;
        until("deleted", || async { client.delete(&id).await.is_ok() }).await;
    }
}

/// Of a line in the log.
async fn until_logged(daemon: &Daemon, line: &str) {
    until(line, || async { daemon.log().contains(line) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hung_pool_is_detected_without_calls() {
    const SILENT: &str = "use pool hung: its storage does not answer";
    needs_root!();
    let well = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let hung = well.beside("hung", PoolFs::Xfs, 400 * MIB);
    let pools = [("well", &well, ""), ("hung", &hung, "")];
    let daemon = Launch::on_several(&pools).start().await;
    let client = daemon.client();
    let kept = on_pool(&client, "kept", "hung").done().await;
    let frozen = Frozen::new(&hung);
    until_logged(&daemon, SILENT).await;
    assert!(answered(client.probe()).await.unwrap(), "the other pool serves");
    expect_code(answered(client.delete(&kept.volume_id)).await, Code::Unavailable);

    // For each second that it lasts, a prober asks again.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert!(answered(client.probe()).await.unwrap(), "the other pool serves");
    }
    let log = daemon.log();
    let lines = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    assert_eq!(lines("ready, but a pool is absent"), 1, "{log}");
    assert_eq!(lines(SILENT), 3, "noticed, asked for by Probe, and one call refused: {log}");

    drop(frozen);
    until_logged(&daemon, "the pool responds again").await;
    assert!(client.probe().await.unwrap());
    client.delete(&kept.volume_id).await.unwrap();
}

/// Threads that wait in the kernel cannot be ended by anything but a thaw, but all else is.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_a_hung_pool() {
    needs_root!();
    let well = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let hung = well.beside("hung", PoolFs::Xfs, GIB);
    let pools = [("well", &well, ""), ("hung", &hung, "")];
    let mut daemon = Launch::on_several(&pools).start().await;
    let client = daemon.client();
    let frozen = Frozen::new(&hung);
    let stuck = on_pool(&client, "stuck", "hung");
    let calling = tokio::spawn(async move { stuck.send().await });
    // Known to have begun once another call waits for its lock in vain.
    until("begun", || async {
        let again = on_pool(&client, "stuck", "hung").send();
        let again = tokio::time::timeout(Duration::from_secs(15), again).await;
        again.is_ok_and(|answer| answer.is_err_and(|status| status.code() == Code::Aborted))
    })
    .await;
    daemon.signal(Signal::TERM);
    until("stopped", || async { daemon.log().contains("stopped") }).await;
    assert!(
        daemon.log().contains("stopping without waiting for calls that are blocked in the kernel")
    );
    assert!(!daemon.launch().socket().exists(), "the socket was left");
    drop(frozen);
    assert_eq!(daemon.wait_for_end().code(), Some(0));
    calling.await.unwrap().unwrap_err();
    // It may take up what was begun, or have swept it.
    daemon.restart().await;
    let volume = on_pool(&client, "stuck", "hung").done().await;
    client.delete(&volume.volume_id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_does_not_wait_for_a_hung_pool() {
    needs_root!();
    let well = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let hung = well.beside("hung", PoolFs::Xfs, 400 * MIB);
    let pools = [("well", &well, ""), ("hung", &hung, "")];
    let mut daemon = Launch::on_several(&pools).start().await;
    let client = daemon.client();
    let kept = on_pool(&client, "kept", "hung").done().await;
    daemon.terminate();
    let frozen = Frozen::new(&hung);
    daemon.start_again();
    until("served", || async { client.capacity().await.is_ok() }).await;
    let volume = answered(on_pool(&client, "v", "well").send()).await.unwrap();
    answered(client.delete(&volume.volume_id)).await.unwrap();
    expect_code(answered(client.delete(&kept.volume_id)).await, Code::Unavailable);
    assert!(answered(client.probe()).await.unwrap());

    drop(frozen);
    until("all are served", || async { client.list_volumes().await.is_ok() }).await;
    client.delete(&kept.volume_id).await.unwrap();
}
