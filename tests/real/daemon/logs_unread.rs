//! A log that is not read holds up neither calls, nor the end, nor the thaw of any filesystem.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orlop_tests::*;
use rustix::process::Signal;
use tokio::task::JoinHandle;

use crate::daemon::hung::until;

/// Far more than anything here takes; reached only by what waits for the log.
const TIMEOUT: Duration = Duration::from_secs(60);
const VOLUME: u64 = 320 * MIB;
/// Enough that copying it takes much longer than noticing that it has begun.
const DATA: u64 = 192 * MIB;

async fn in_time<T>(what: &str, call: impl Future<Output = T>) -> T {
    let answered = tokio::time::timeout(TIMEOUT, call).await;
    answered.unwrap_or_else(|_| panic!("{what} waits for the log"))
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_answered_and_the_daemon_ends() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let log = UnreadLog::new(pool.scratch());
    let mut daemon = log.of(Launch::on(&pool)).start().await;
    let client = daemon.client();
    log.read();
    let full = log.fill();
    for name in ["first", "second"] {
        let create = client.create(name).size(64 * MIB).block();
        let volume = in_time("CreateVolume", create.done()).await;
        assert!(in_time("Probe", client.probe()).await.unwrap());
        in_time("DeleteVolume", client.delete(&volume.volume_id)).await.unwrap();
    }
    // What fits into the daemon's memory is not lost.
    let deadline = Instant::now() + TIMEOUT;
    let mut logged = String::new();
    while logged.matches("DeleteVolume").count() < 2 {
        assert!(Instant::now() < deadline, "{logged}");
        tokio::time::sleep(Duration::from_millis(10)).await;
        logged += &log.read();
    }
    drop(full);
    let _full = log.fill();
    let begun = Instant::now();
    daemon.terminate();
    assert!(begun.elapsed() < TIMEOUT, "the end took {:?}", begun.elapsed());
}

/// At this level each call has dozens of lines.
#[tokio::test(flavor = "multi_thread")]
async fn lines_that_find_no_room_are_counted() {
    needs_root!();
    const CALLS: usize = 1000;
    let pool = TestPool::new(PoolFs::Directory, 0);
    let log = UnreadLog::new(pool.scratch());
    let launch = Launch::on(&pool).env("ORLOP_LOG", "trace").env("ORLOP_LOG_FORMAT", "json");
    let mut daemon = log.of(launch).start().await;
    let client = daemon.client();
    let _full = log.fill();
    for _ in 0..CALLS {
        in_time("Probe", client.probe()).await.unwrap();
    }
    let deadline = Instant::now() + TIMEOUT;
    let mut logged = String::new();
    while !logged.contains("dropped log lines") {
        assert!(Instant::now() < deadline, "nothing says that lines were dropped");
        tokio::time::sleep(Duration::from_millis(1)).await;
        logged += &log.read();
    }
    let line = logged.lines().find(|line| line.contains("dropped log lines")).unwrap();
    let entry: serde_json::Value = serde_json::from_str(line).unwrap();
    assert!(entry["fields"]["lines"].as_u64().unwrap() > 0, "{entry}");
    daemon.terminate();
}

/// Two volumes with an ext4 each, and enough in them that a copy takes a while.
async fn two_in_use(client: &Client) -> Vec<OnNode> {
    let mut nodes = Vec::new();
    for name in ["first", "second"] {
        let volume = client.create(name).size(VOLUME).fs("ext4").done().await;
        let node = client.on_node(&volume, mount("ext4"));
        node.up().await;
        nodes.push(node);
    }
    nodes
}

fn ids(nodes: &[OnNode]) -> Vec<String> {
    nodes.iter().map(|node| node.id.clone()).collect()
}

async fn take_down(nodes: &[OnNode]) {
    for node in nodes {
        node.down().await;
    }
}

/// Killed when it is dropped.
struct Helper(Child);

impl Helper {
    #[expect(clippy::disallowed_methods, reason = "the binary under test is no host tool")]
    fn start(log: &UnreadLog) -> Self {
        let stderr = std::fs::File::options().write(true).open(log.path()).unwrap();
        let mut command = Command::new(binary());
        command.arg("thaw-helper").stdin(Stdio::piped()).stderr(stderr);
        Self(command.spawn().unwrap())
    }

    /// As its daemon does before each freeze.
    fn register(&mut self, node: &OnNode) {
        let message = format!("+{}\0", node.staging.display());
        self.0.stdin.as_mut().unwrap().write_all(message.as_bytes()).unwrap();
    }

    /// As if its daemon were killed.
    fn lose_daemon(&mut self) {
        drop(self.0.stdin.take());
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_helper_thaws_all_that_a_killed_daemon_left() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let nodes = two_in_use(&client).await;
    let log = UnreadLog::new(pool.scratch());
    let _full = log.fill();
    let mut helper = Helper::start(&log);
    let mut freezes = Vec::new();
    for node in &nodes {
        helper.register(node);
        freezes.push(RecordedFreeze::begin(daemon.launch(), &node.staging));
    }
    helper.lose_daemon();
    let deadline = Instant::now() + TIMEOUT;
    while freezes.iter().any(RecordedFreeze::lasts) {
        assert!(Instant::now() < deadline, "a filesystem stays frozen until the log is read");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(freezes);
    take_down(&nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_thaws_what_was_left_frozen() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let log = UnreadLog::new(pool.scratch());
    let mut daemon = log.of(Launch::on(&pool)).start().await;
    let client = daemon.client();
    let nodes = two_in_use(&client).await;
    daemon.terminate();
    let freezes: Vec<_> =
        nodes.iter().map(|node| RecordedFreeze::begin(daemon.launch(), &node.staging)).collect();
    let full = log.fill();
    daemon.start_again();
    let deadline = Instant::now() + TIMEOUT;
    while freezes.iter().any(RecordedFreeze::lasts) {
        assert!(Instant::now() < deadline, "a filesystem stays frozen until the log is read");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop((freezes, full));
    until("ready", || async {
        log.read();
        client.probe().await.is_ok_and(|ready| ready)
    })
    .await;
    take_down(&nodes).await;
}

fn frozen_markers(pool: &TestPool) -> usize {
    let directory = pool.scratch().join("run/csi.orlop.io/frozen");
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| !name.as_encoded_bytes().starts_with(b".")).count()
}

/// Only when all members are frozen.
fn is_copying(pool: &TestPool) -> bool {
    let copied = |name: &String| {
        let data = pool.path.join("staging").join(name).join("data");
        orlop_sys::file::allocated_bytes(&data).is_ok_and(|bytes| bytes > 0)
    };
    pool.entries("staging").iter().any(copied)
}

fn begin_group(client: &Client, nodes: &[OnNode]) -> JoinHandle<bool> {
    let (client, sources) = (client.clone(), ids(nodes));
    tokio::spawn(async move { client.group_snapshot("group", &sources).await.is_ok() })
}

/// Both freezes are late at the same time: the daemon is stopped until they are.
#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_thaws_all_that_is_late() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let log = UnreadLog::new(pool.scratch());
    let launch = Launch::on(&pool).env("ORLOP_FREEZE_LIMIT_SECONDS", "1");
    let daemon = log.of(launch.env("ORLOP_LOG", "info")).start().await;
    let client = daemon.client();
    let nodes = two_in_use(&client).await;
    for node in &nodes {
        Pattern::new(1).write(&node.target.join("data"), DATA);
    }
    let writers: Vec<_> = nodes.iter().map(|node| Workload::writing(&node.data_path())).collect();
    log.read();
    let group = begin_group(&client, &nodes);
    while !is_copying(&pool) {
        assert!(!group.is_finished(), "it was over before it was seen");
        tokio::task::yield_now().await;
    }
    daemon.signal(Signal::STOP);
    assert_eq!(frozen_markers(&pool), nodes.len(), "stopped too late");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let full = log.fill();
    daemon.signal(Signal::CONT);
    for writer in &writers {
        in_time("a workload", writer.goes_on()).await;
    }
    let made = in_time("CreateVolumeGroupSnapshot", group).await.unwrap();
    assert!(!made, "writers went on while the group was copied");
    drop(full);
    writers.into_iter().for_each(Workload::finish);
    log.read();
    take_down(&nodes).await;
}
