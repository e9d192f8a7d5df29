//! Whatever surroundings a supervisor starts the daemon in: it serves as always, or says what it lacks.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use orlop_sys::file;
use orlop_tests::*;

const VOLUME: u64 = 32 * MIB;

/// The shell makes the surroundings and becomes the daemon.
fn inside(launch: Launch, script: &str) -> Launch {
    launch.run_by(&["/bin/sh", "-c", &format!("{script}\nexec \"$@\""), "sh"])
}

/// As [`inside`], with mounts that only the daemon sees.
fn among_mounts(launch: Launch, script: &str) -> Launch {
    inside(launch, script).run_by(&["/usr/bin/unshare", "--mount"])
}

/// With mkfs options a volume is not created from a template: mkfs has to run.
async fn create(client: &Client) -> OnNode {
    let create = client.create("v").size(VOLUME).fs("ext4").parameter("mkfsOptions", "-L odd");
    client.on_node(&create.done().await, mount("ext4"))
}

async fn assert_serves(client: &Client) {
    let node = create(client).await;
    node.up().await;
    node.stats().await.unwrap();
    let snapshot = client.snapshot("s", &node.id).await.unwrap();
    node.down().await;
    client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    client.delete(&node.id).await.unwrap();
}

async fn starts_and_serves(launch: Launch) {
    let mut daemon = launch.start().await;
    assert_serves(&daemon.client()).await;
    daemon.terminate();
    assert_eq!(daemon.leaks(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_environment_variables_are_ignored() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    // There is no HOME in any of these tests.
    let odd = Launch::on(&pool)
        .env("TMPDIR", "/nowhere/at/all")
        .env("TZ", ":/no/such/zone")
        .env("LC_ALL", "xx_XX.none")
        .env("PATH", "");
    starts_and_serves(odd).await;
}

/// It works until the machine is restarted, and then all volumes are gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_a_reboot_removes_is_warned_of() {
    needs_root!();
    const GONE: &str = "is on a tmpfs, so all its volumes are gone after a reboot";
    let pool = TestPool::new(PoolFs::Directory, 0);
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let launch = Launch::on(&pool).env("ORLOP_POOL", memory.path().join("pool"));
    let checked = launch.run(&["serve", "--check"]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(checked.stdout.contains(GONE), "{checked:?}");
    let mut daemon = launch.start().await;
    assert_eq!(daemon.log().matches(GONE).count(), 1, "{}", daemon.log_end());
    daemon.terminate();
    let looked = daemon.launch().run(&["doctor"]);
    assert_eq!(looked.status.code(), Some(0), "{looked:?}");
    assert!(looked.stdout.contains(GONE), "{looked:?}");
    let checked = Launch::on(&pool).run(&["serve", "--check"]);
    assert!(!checked.stdout.contains(GONE), "{checked:?}");
}

/// Bytes that are not UTF-8, as a Latin-1 locale makes them.
fn latin_1() -> OsString {
    OsString::from_vec(b"/srv/caf\xe9".to_vec())
}

#[test]
fn variables_that_are_not_utf_8_matter_only_if_they_are_ours() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let foreign = Launch::on(&pool).env("CITY", latin_1());
    for words in [&["serve", "--check"][..], &["pool", "list"]] {
        let ran = foreign.run(words);
        assert_eq!(ran.status.code(), Some(0), "{words:?}: {ran:?}");
    }
    let looked = foreign.run(&["doctor"]);
    assert!(looked.stdout.contains("no-pool"), "{looked:?}");
    for ours in ["ORLOP_POOL", "ORLOP_NODE_ID", "CSI_ENDPOINT"] {
        let launch = Launch::on(&pool).env(ours, latin_1());
        for words in [&["serve", "--check"][..], &["serve"], &["doctor"], &["pool", "list"]] {
            let ran = launch.run(words);
            assert_eq!(ran.status.code(), Some(2), "{ours} {words:?}: {ran:?}");
            assert!(ran.stderr.contains(ours), "{ours} {words:?}: {ran:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_working_directory_does_not_matter() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let gone = pool.scratch().ensure_dir("gone");
    let script = format!("cd {0} && rmdir {0}", gone.display());
    starts_and_serves(inside(Launch::on(&pool), &script)).await;
}

/// What is opened next would get their numbers, and what is printed would end up in it.
#[tokio::test(flavor = "multi_thread")]
async fn standard_streams_may_be_closed() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    starts_and_serves(inside(Launch::on(&pool), "exec <&- >&- 2>&-")).await;
}

/// While SIGCHLD is ignored, the kernel tells no parent how a child ended.
#[tokio::test(flavor = "multi_thread")]
async fn signals_work_if_inherited_as_ignored_or_blocked() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    for odd in ["--ignore-signal=CHLD,PIPE,TERM", "--block-signal=CHLD,PIPE,TERM"] {
        starts_and_serves(Launch::on(&pool).run_by(&["/usr/bin/env", odd])).await;
    }
}

/// The kernel ends a process that exceeds it, unless the process ignores the signal.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_file_sizes_does_not_end_the_daemon() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let limited = |limit| Launch::on(&pool).run_by(&["/usr/bin/prlimit", limit]);
    starts_and_serves(limited("--fsize=16777216:unlimited")).await;
    let mut daemon = limited("--fsize=16777216").start().await;
    let client = daemon.client();
    let refused = client.create("v").size(VOLUME).block().send().await;
    let status = expect_code(refused, Code::ResourceExhausted);
    assert!(status.message().contains("limit of file sizes"), "{status}");
    let small = client.create("v").size(8 * MIB).block().done().await;
    client.delete(&small.volume_id).await.unwrap();
    daemon.terminate();
    assert_eq!(daemon.leaks(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_sys_is_enough() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let script = "mount -o remount,bind,ro /sys || exit 9";
    starts_and_serves(among_mounts(Launch::on(&pool), script)).await;
}

/// Without the node of the kernel's loop driver a controller works, and staging says what is missing.
#[tokio::test(flavor = "multi_thread")]
async fn stage_reports_missing_loop_devices() {
    needs_root!();
    const OWN_DEV: &str = "cp -a /dev/null /dev/zero /dev/urandom nodes && \
         mount -t tmpfs none /dev && cp -a nodes/* /dev/ || exit 9";
    let pool = TestPool::new(PoolFs::Directory, 0);
    pool.scratch().ensure_dir("nodes");
    let script = format!("cd {} && {OWN_DEV}", pool.scratch().path().display());
    let daemon = among_mounts(Launch::on(&pool), &script).start().await;
    let client = daemon.client();
    let node = create(&client).await;
    let refused = node.stage().await.unwrap_err();
    assert!(refused.message().contains("/dev/loop-control"), "{refused}");
    assert_eq!(daemon.leaks(), [""; 0]);
    node.unstage().await.unwrap();
    client.delete(&node.id).await.unwrap();
}

/// All files and directories below, but for those that are links.
fn everything_in(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            found.extend(everything_in(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_are_independent_of_the_umask() {
    needs_root!();
    for umask in ["0", "777"] {
        let pool = TestPool::new(PoolFs::Directory, 0);
        let launch = inside(Launch::on(&pool), &format!("umask {umask}"));
        let mut daemon = launch.start().await;
        let client = daemon.client();
        let node = create(&client).await;
        node.up().await;
        let own = [pool.path.clone(), pool.scratch().join("run"), daemon.launch().socket()];
        for path in own.iter().filter(|path| path.is_dir()).flat_map(|path| everything_in(path)) {
            let mode = path.symlink_metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o022, 0, "umask {umask}: {} is {mode:o}", path.display());
        }
        let socket = own[2].symlink_metadata().unwrap().permissions().mode();
        assert_eq!(socket & 0o777, 0o600, "umask {umask}");
        node.down().await;
        client.delete(&node.id).await.unwrap();
        // What was made before can be used.
        daemon.restart().await;
        assert_serves(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn few_descriptors_suffice_or_end_the_start() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    starts_and_serves(inside(Launch::on(&pool), "ulimit -n 64")).await;
    // With 7 to 9 there are too few for signals.
    for few in [20, 12, 9, 8, 7, 6] {
        let launch = inside(Launch::on(&pool), &format!("ulimit -n {few}"));
        let mut daemon = launch.idle();
        match daemon.try_restart().await {
            // Some calls may need more than is left, but all can be repeated with more.
            None => assert_answers(&daemon.client()).await,
            Some(status) => {
                assert_eq!(status.code(), Some(1), "{few}: {}", daemon.log_end());
                let log = daemon.log();
                let reason = log.lines().last().unwrap_or_default();
                assert!(reason.contains("Too many open files"), "{few}: {reason}");
                assert!(!daemon.launch().socket().exists(), "the socket was left");
            }
        }
        drop(daemon);
        file::remove_tree(&pool.scratch().join("daemon.log")).unwrap();
    }
    // Nothing is left half-made.
    starts_and_serves(Launch::on(&pool)).await;
    for directory in ["volumes", "snapshots", "staging", "trash"] {
        assert_eq!(pool.entries(directory), [""; 0], "{directory}");
    }
}

/// With success, or for lack of descriptors.
async fn assert_answers(client: &Client) {
    let made = client.create("v").size(VOLUME).fs("ext4").send().await;
    if let Err(status) = &made {
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
    let Ok(volume) = made else { return };
    let node = client.on_node(&volume, mount("ext4"));
    if let Err(status) = node.stage().await {
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
    node.unstage().await.unwrap();
    client.delete(&volume.volume_id).await.unwrap();
}
