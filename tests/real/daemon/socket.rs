//! One daemon for a socket, a pool, a run directory; nothing but the socket in its directory.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_sys::mounts::{BindAccess, bind, ensure_unmounted};
use orlop_tests::*;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// What a daemon that ended said last; the first one of the test writes to the same log.
fn reason(ended: &Ended) -> &str {
    let reason = ended.output.lines().rev().find(|line| line.starts_with("orlop: "));
    reason.unwrap_or_else(|| panic!("no reason is given: {}", ended.output))
}

/// The second daemon of a test: nothing in common with the first but what the test names.
fn another(pool: &TestPool) -> Launch {
    let scratch = pool.scratch();
    Launch::on(pool)
        .env("CSI_ENDPOINT", format!("unix://{}", scratch.join("other.sock").display()))
        .env("ORLOP_POOL", scratch.join("other-pool"))
        .env("ORLOP_RUN_DIR", scratch.join("other-run"))
}

#[tokio::test(flavor = "multi_thread")]
async fn socket_is_private_and_alone_in_its_directory() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let directory = pool.scratch().join("plugins/orlop");
    let endpoint = format!("unix://{}/csi.sock", directory.display());
    let mut daemon = Launch::on(&pool).env("CSI_ENDPOINT", endpoint).start().await;
    let found = directory.join("csi.sock").symlink_metadata().unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    // OP-06, with some work done.
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    assert_eq!(names_in(&directory), ["csi.sock"]);
    client.delete(&volume.volume_id).await.unwrap();
    daemon.terminate();
    assert_eq!(names_in(&directory), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_socket_is_not_stolen() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let socket = daemon.launch().socket();
    let before = socket.symlink_metadata().unwrap().ino();
    let endpoint = format!("unix://{}", socket.display());
    let ended = another(&pool).env("CSI_ENDPOINT", endpoint).run_to_end();
    assert!(!ended.status.success());
    let reason = reason(&ended);
    assert!(reason.contains(socket.to_str().unwrap()), "{reason}");
    assert_eq!(socket.symlink_metadata().unwrap().ino(), before);
    assert!(daemon.client().probe().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_socket_is_replaced() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let socket = daemon.launch().socket();
    daemon.kill9();
    assert!(socket.exists(), "kill -9 leaves it");
    daemon.restart().await;
    assert!(daemon.client().probe().await.unwrap());
}

#[test]
fn file_that_is_no_socket_is_refused_and_kept() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool);
    let path = launch.socket();
    std::fs::write(&path, "another program's file").unwrap();
    let ended = launch.run_to_end();
    assert!(!ended.status.success());
    assert!(reason(&ended).contains(path.to_str().unwrap()));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "another program's file");

    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(!launch.run_to_end().status.success());
    assert!(path.is_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_has_one_daemon() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let second = another(&pool).env("ORLOP_POOL", &pool.path);
    let ended = second.run_to_end();
    assert!(!ended.status.success());
    let reason = reason(&ended);
    assert!(reason.contains("another"), "{reason}");
    assert!(reason.contains(pool.path.to_str().unwrap()), "{reason}");
    assert!(!second.socket().exists());
    assert!(daemon.client().probe().await.unwrap());
    // The pool is free again once the first has ended, however it ended.
    daemon.kill9();
    second.start().await.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_has_one_daemon_by_any_path() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(1).write(&node.target, MIB);
    let link = pool.scratch().join("link");
    symlink(&pool.path, &link).unwrap();
    let bound = pool.scratch().ensure_dir("bound");
    bind(&pool.path, &bound, BindAccess::ReadWrite).unwrap();
    let seconds = [&link, &bound].map(|path| another(&pool).env("ORLOP_POOL", path));
    let ended = seconds.each_ref().map(Launch::run_to_end);
    ensure_unmounted(&bound).unwrap();
    for (second, ended) in seconds.iter().zip(&ended) {
        assert!(!ended.status.success());
        let reason = reason(ended);
        assert!(reason.contains("another"), "{reason}");
        assert!(!second.socket().exists());
    }
    Pattern::new(1).check(&node.target, MIB);
    node.down().await;
    daemon.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_directory_has_one_daemon() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    let freeze = RecordedFreeze::begin(daemon.launch(), &node.staging);
    let second = another(&pool).env("ORLOP_RUN_DIR", pool.scratch().join("run"));
    let ended = second.run_to_end();
    assert_eq!(ended.status.code(), Some(1));
    let reason = reason(&ended);
    assert!(reason.contains("another process uses the run directory"), "{reason}");
    assert!(freeze.lasts(), "what the first has frozen is none of the second's business");
    drop(freeze);
    node.down().await;
    daemon.kill9();
    second.start().await.terminate();
}

/// As a program does that was asked to lock it.
fn lock(directory: &Path) -> File {
    let directory = File::open(directory).unwrap();
    flock(&directory, FlockOperation::NonBlockingLockExclusive).unwrap();
    directory
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_on_the_socket_directory_does_not_block_start() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let directory = pool.scratch().join("plugins");
    std::fs::create_dir(&directory).unwrap();
    let endpoint = format!("unix://{}/csi.sock", directory.display());
    let launch = Launch::on(&pool).env("CSI_ENDPOINT", endpoint);
    let locked = lock(&directory);
    let ended = launch.run_to_end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.output);
    let named = format!("holds a lock on its directory {};", directory.display());
    assert!(reason(&ended).contains(&named), "{}", ended.output);
    drop(locked);
    launch.start().await.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waits_for_a_lock_can_be_stopped() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let directory = pool.scratch().join("plugins");
    std::fs::create_dir(&directory).unwrap();
    let endpoint = format!("unix://{}/csi.sock", directory.display());
    let mut daemon = Launch::on(&pool).env("CSI_ENDPOINT", endpoint).idle();
    let _locked = lock(&directory);
    daemon.start_again();
    // It has the directory open while it waits for the lock.
    while !opened(daemon.pid()).contains(&directory) {
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    daemon.signal(Signal::TERM);
    assert!(daemon.wait_for_end().success(), "{}", daemon.log_end());
    assert_eq!(names_in(&directory), [""; 0]);
}

fn opened(daemon: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{daemon}/fd")).unwrap();
    entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).collect()
}

/// A supervisor may start it with fewer than it allows.
#[tokio::test(flavor = "multi_thread")]
async fn descriptor_limit_is_raised_to_the_maximum() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let low = ["/bin/sh", "-c", "ulimit -Sn 200 && ulimit -Hn 3000 && exec \"$@\"", "sh"];
    let mut daemon = Launch::on(&pool).run_by(&low).start().await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let values: Vec<_> = files.split_whitespace().collect();
    assert_eq!(values[3..5], ["3000", "3000"], "{files}");
    daemon.terminate();
}

/// Far more than anything here takes; reached only by a daemon that accepts no connection.
const TIMEOUT: Duration = Duration::from_secs(60);

/// `None`: there is no room in the queue of those who are not accepted yet, for as long as that.
async fn connect(socket: &Path) -> Option<tokio::net::UnixStream> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match tokio::net::UnixStream::connect(socket).await {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            connected => return Some(connected.unwrap()),
        }
        if Instant::now() >= deadline {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Connections that say nothing, on both sockets of a daemon that may open few files.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_exhaust_descriptors() {
    const FILES: usize = 400;
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let addons = pool.scratch().join("addons.sock");
    let few = format!("ulimit -n {FILES} && exec \"$@\"");
    let launch = Launch::on(&pool).run_by(&["/bin/sh", "-c", &few, "sh"]);
    let launch = launch.env("ORLOP_ADDONS_ENDPOINT", format!("unix://{}", addons.display()));
    let mut daemon = launch.start().await;
    let mut silent = Vec::new();
    for socket in [daemon.launch().socket(), addons] {
        for number in 0..300 {
            let connected = connect(&socket).await;
            let log = || daemon.log();
            silent.push(connected.unwrap_or_else(|| panic!("{number} is not accepted: {}", log())));
        }
    }
    // Half of them are for connections; those who were just sent away count for a moment.
    let deadline = Instant::now() + TIMEOUT;
    while descriptors(daemon.pid()) > FILES * 3 / 4 {
        let open = descriptors(daemon.pid());
        assert!(Instant::now() < deadline, "{open} of {FILES} descriptors are in use");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let client = daemon.client();
    let using = async {
        let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
        client.delete(&volume.volume_id).await.unwrap();
    };
    tokio::time::timeout(TIMEOUT, using).await.expect("a client that speaks is not served");
    daemon.terminate();
    assert!(!daemon.log().contains("cannot accept"), "{}", daemon.log_end());
}

/// By a clean-up of the directory that callers and plugin share.
#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_is_removed_is_made_again() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let directory = pool.scratch().join("plugins/orlop");
    let socket = directory.join("csi.sock");
    let endpoint = format!("unix://{}", socket.display());
    let mut daemon = Launch::on(&pool).env("CSI_ENDPOINT", endpoint).start().await;
    let early = daemon.client();
    assert!(early.probe().await.unwrap());
    for (round, removes_directory) in [false, true].into_iter().enumerate() {
        std::fs::remove_file(&socket).unwrap();
        if removes_directory {
            std::fs::remove_dir(&directory).unwrap();
        }
        until("reachable again", || async { daemon.client().probe().await.is_ok() }).await;
        assert!(early.probe().await.unwrap(), "an open connection was ended");
        let mode = socket.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let log = daemon.log();
        let reports = log.lines().filter(|line| line.contains("was removed or replaced"));
        let reports: Vec<_> = reports.collect();
        assert_eq!(reports.len(), round + 1, "{reports:?}");
        assert!(reports.iter().all(|line| line.contains(" ERROR ")), "{reports:?}");
    }
    daemon.terminate();
    assert_eq!(names_in(&directory), [""; 0]);
}

/// What is at the path belongs to another process.
#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_was_replaced_is_not_taken_back() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let socket = daemon.launch().socket();
    std::fs::remove_file(&socket).unwrap();
    let other = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let inode = socket.symlink_metadata().unwrap().ino();
    until("logged", || async { daemon.log().contains("another daemon answers there") }).await;
    assert_eq!(socket.symlink_metadata().unwrap().ino(), inode);
    // Its process has ended.
    drop(other);
    until("reachable again", || async { daemon.client().probe().await.is_ok() }).await;
}

async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
