//! `make clean-run` beside a daemon.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use orlop_sys::tool;
use orlop_tests::*;

#[tokio::test(flavor = "multi_thread")]
async fn clean_run_refuses_while_a_daemon_uses_the_pool() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    daemon.client().create("kept").size(MIB).block().done().await;
    let refused = clean_run(pool.scratch().path()).unwrap_err().to_string();
    assert!(refused.contains("a daemon uses"), "{refused}");
    assert_eq!(pool.entries("volumes").len(), 1, "the pool was deleted under the daemon");
    daemon.terminate();
}

/// It is not below the directory that is to be removed, so only the client's notes name it.
#[tokio::test(flavor = "multi_thread")]
async fn clean_run_names_what_is_mounted_by_hand() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let elsewhere = Scratch::new();
    let target = elsewhere.join("by hand");
    let launch = daemon.launch().clone();
    let mount = ["volume", "mount", "kept", target.to_str().unwrap()];
    for words in [&["volume", "create", "kept", "--size", "16MiB", "--fs", "ext4"][..], &mount] {
        assert!(launch.run(words).status.success(), "{words:?}");
    }
    daemon.terminate();
    let refused = clean_run(pool.scratch().path()).unwrap_err().to_string();
    assert!(refused.contains(&format!("mounted by hand: {}", target.display())), "{refused}");
    assert!(refused.contains("orlop volume unmount"), "{refused}");
    daemon.restart().await;
    assert!(launch.run(&["volume", "unmount", "kept"]).status.success());
    daemon.terminate();
}

/// As a suite whose temporary directory could not be made would, of all mounts and devices of the machine.
#[test]
fn nothing_is_looked_for_below_the_root_directory() {
    let shown = |functions: &str| {
        let text = format!("set -euo pipefail; source {SCRIPTS}/loops; {functions}");
        let ran = tool::run_accepting("bash", ["-c", &text], &[0, 1]).unwrap();
        (ran.status.code(), String::from_utf8(ran.stdout).unwrap())
    };
    for function in ["mounts_under", "loops_backed_under"] {
        for directory in ["''", "/", "//", ".", "tmp"] {
            let (status, listed) = shown(&format!("{function} {directory}"));
            assert_eq!((status, listed.as_str()), (Some(1), ""), "{function} {directory}");
        }
    }
    assert_eq!(shown("mounts_under /proc").1.lines().last(), Some("/proc"));
}

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts");

/// `scripts/run` in the background, as in a terminal. Killed when dropped.
struct Script {
    process: std::process::Child,
    said: PathBuf,
}

impl Script {
    #[expect(clippy::disallowed_methods, reason = "a script of the repository is no host tool")]
    fn run(home: &Path, variables: &[(&str, &Path)]) -> Self {
        let said = home.join("said");
        let output = std::fs::File::create(&said).unwrap();
        let process = std::process::Command::new(format!("{SCRIPTS}/run"))
            .env("ORLOP_TEST_HOME", home)
            .env("ORLOP_TEST_BINARY", binary())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn();
        Self { process: process.unwrap(), said }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap()
    }

    /// What it says once the daemon is ready.
    async fn hint(&mut self) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let text = self.said();
            if text.contains("make clean-run") {
                return text;
            }
            let has_ended = self.process.try_wait().unwrap().is_some();
            assert!(!has_ended && Instant::now() < deadline, "{text}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn press_ctrl_c(mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert!(self.process.wait().unwrap().success(), "{}", self.said());
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn clean_run(home: &Path) -> orlop_sys::Result<std::process::Output> {
    let home = format!("ORLOP_TEST_HOME={}", home.display());
    tool::run("env", [home.as_str(), &format!("{SCRIPTS}/clean-run")])
}

#[tokio::test(flavor = "multi_thread")]
async fn run_serves_a_managed_pool_and_says_what_to_type_next() {
    needs_root!();
    let ground = Launch::without_pool().idle();
    let home = ground.launch().scratch().path().to_owned();
    // As in a terminal where the client was used before.
    let mut run = Script::run(&home, &[("ORLOP_POOL", &home.join("pool"))]);
    let text = run.hint().await;
    let socket = home.join("csi.sock");
    assert!(text.contains(&format!("socket   {}", socket.display())), "{text}");
    assert!(text.contains("a sparse XFS image"), "{text}");
    // The lines to type are those of a shell.
    let export = text.lines().find_map(|line| line.trim().strip_prefix("export ")).unwrap();
    let probe = text.lines().find(|line| line.ends_with(" probe --ready")).unwrap();
    tool::run("sh", ["-c", &format!("export {export}; {probe}")]).unwrap();
    // A second one ends at once, and does not pretend to be the first.
    let words = [
        format!("ORLOP_TEST_HOME={}", home.display()),
        format!("ORLOP_TEST_BINARY={}", binary().display()),
        format!("{SCRIPTS}/run"),
    ];
    let refused = tool::run("env", &words).unwrap_err().to_string();
    assert!(refused.contains("a daemon runs here already"), "{refused}");
    assert!(!refused.contains("The daemon is ready"), "{refused}");
    run.press_ctrl_c();
    assert_eq!(ground.leaks(), [""; 0]);
    clean_run(&home).unwrap();
    assert!(!home.exists(), "clean-run left something");
    // Its directory is what the fixture looks at when it ends.
    std::fs::create_dir(&home).unwrap();
}

/// As without root, or without xfsprogs, at first.
#[tokio::test(flavor = "multi_thread")]
async fn run_serves_a_plain_pool_that_is_there_already() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let kept = daemon.client().create("kept").size(MIB).block().done().await;
    daemon.terminate();
    let mut run = Script::run(pool.scratch().path(), &[]);
    let text = run.hint().await;
    assert!(!text.contains("a sparse XFS image"), "{text}");
    let listed = daemon.client().list_volumes().await.unwrap();
    assert_eq!(listed[0].volume.as_ref().unwrap().volume_id, kept.volume_id);
    run.press_ctrl_c();
}
