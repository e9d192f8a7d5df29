//! A daemon of our own is killed while it holds a filesystem frozen. This test program plays
//! both the daemon and its helper, each with an argument that no test is named like.

#![allow(clippy::disallowed_methods, reason = "the daemon to be killed is this program itself")]

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orlop_model::{FsType, HostFreezing, TargetPath};
use orlop_sys::file;
use orlop_sys::thaw_helper::{self, HelperCommand};

use super::super::super::LinuxHost;
use super::super::super::testbed::{Testbed, config_in};
use super::{is_frozen, markers};

const PLAY_DAEMON: &str = "play-the-daemon";
const PLAY_HELPER: &str = "play-the-thaw-helper";
const STAGED: &str = "ORLOP_TEST_STAGED";

fn is_asked_to(play: &str) -> bool {
    std::env::args().any(|argument| argument == play)
}

#[test]
fn thaw_helper_process() {
    if is_asked_to(PLAY_HELPER) {
        thaw_helper::run(std::io::stdin().lock());
    }
}

/// Takes the pool's lock, freezes, says so, and does nothing more.
#[test]
fn daemon_process() {
    if !is_asked_to(PLAY_DAEMON) {
        return;
    }
    let staged = TargetPath::parse("test", &std::env::var(STAGED).unwrap()).unwrap();
    let directory = staged.as_path().parent().unwrap();
    let _lock = file::try_lock(&directory.join("lock")).unwrap().unwrap();
    let mut config = config_in(directory);
    config.thaw_helper = Some(helper_command());
    let host = LinuxHost::new(config).unwrap();
    host.freeze(&staged).unwrap();
    println!("\nfrozen");
    loop {
        std::thread::park();
    }
}

fn helper_command() -> HelperCommand {
    let test = format!("{}::thaw_helper_process", module());
    let arguments = ["--exact", &test, PLAY_HELPER].map(OsString::from);
    HelperCommand { arguments: arguments.into(), ..HelperCommand::this_program("") }
}

/// As the test program names it, without the crate.
fn module() -> &'static str {
    module_path!().split_once("::").unwrap().1
}

/// Killed and waited for when it goes out of scope.
struct Daemon(Child);

impl Daemon {
    /// Returns when it holds the filesystem frozen.
    fn freezing(staged: &TargetPath) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", PLAY_DAEMON])
            .arg(format!("{}::daemon_process", module()))
            .env(STAGED, staged.as_path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut daemon = Self(child);
        let output = BufReader::new(daemon.0.stdout.take().unwrap());
        let said = output.lines().map_while(Result::ok).any(|line| line == "frozen");
        assert!(said, "the daemon ended before it froze anything");
        daemon
    }

    fn helper(&self) -> PathBuf {
        let parent = format!("PPid:\t{}", self.0.id());
        let is_child = |process: &PathBuf| {
            std::fs::read_to_string(process.join("status"))
                .is_ok_and(|status| status.lines().any(|line| line == parent))
        };
        let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let children: Vec<PathBuf> = processes.filter(is_child).collect();
        assert_eq!(children.len(), 1, "{children:?}");
        children.into_iter().next().unwrap()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that was not waited for yet is still there, without a command line.
fn has_ended(process: &Path) -> bool {
    std::fs::read(process.join("cmdline")).map_or(true, |command| command.is_empty())
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let generous = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < generous, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn killed_daemon_leaves_nothing_frozen_or_locked() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    for fs in FsType::ALL {
        let staged = testbed.mounted(&host, fs, fs.as_str());
        let mut daemon = Daemon::freezing(&staged.path);
        assert!(is_frozen(&staged.path), "{fs}");
        assert!(file::try_lock(&testbed.file("lock")).unwrap().is_none(), "the daemon has it");
        let helper = daemon.helper();
        let open = std::fs::read_dir(helper.join("fd")).unwrap().count();
        assert_eq!(open, 3, "the helper keeps nothing open but its standard streams");

        daemon.kill();
        assert!(file::try_lock(&testbed.file("lock")).unwrap().is_some(), "the lock is free");
        wait_until("the filesystem is thawed", || !is_frozen(&staged.path));
        wait_until("the helper has ended", || has_ended(&helper));

        // What the helper did leaves a marker, which the next start finds and takes away.
        assert_eq!(markers(&testbed.file("run")), 1);
        host.begin_to_thaw_left_frozen().unwrap().wait();
        assert_eq!(markers(&testbed.file("run")), 0);
    }
}

#[test]
fn freeze_works_without_the_thaw_helper() {
    let Some(testbed) = Testbed::new() else { return };
    let mut config = testbed.config();
    config.thaw_helper = Some(HelperCommand { program: "/missing".into(), arguments: Vec::new() });
    let host = LinuxHost::new(config).unwrap();
    let staged = testbed.mounted(&host, FsType::Ext4, "stage");
    host.freeze(&staged.path).unwrap();
    assert!(is_frozen(&staged.path));
    assert!(host.ensure_thawed(&staged.path).unwrap());
}

#[test]
fn thaw_helper_ignores_thawed_filesystems() {
    let Some(testbed) = Testbed::new() else { return };
    let mut config = testbed.config();
    config.thaw_helper = Some(helper_command());
    let host = LinuxHost::new(config).unwrap();
    let staged = testbed.mounted(&host, FsType::Xfs, "stage");
    for _ in 0..3 {
        host.freeze(&staged.path).unwrap();
        assert!(host.ensure_thawed(&staged.path).unwrap());
    }
    orlop_sys::filesystem::freeze(staged.path.as_path()).unwrap();
    drop(host);
    assert!(is_frozen(&staged.path));
}
