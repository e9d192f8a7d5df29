#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::BufReader;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getsid, kill_process};

use super::*;
use crate::filesystem::{self, FsKind, ThawOutcome, ensure_thawed};
use crate::testbed::{Volume, root};

/// An argument that no test is named like: its presence makes this program the helper.
const PLAY: &str = "play-the-thaw-helper";

fn this_test_program() -> HelperCommand {
    let arguments =
        ["--exact", "thaw_helper::tests::thaw_helper_process", PLAY].map(OsString::from);
    HelperCommand { arguments: arguments.into(), ..HelperCommand::this_program("") }
}

#[test]
fn thaw_helper_process() {
    if std::env::args().any(|argument| argument == PLAY) {
        run(std::io::stdin().lock());
    }
}

fn helper() -> ThawHelper {
    let helper = ThawHelper::new(this_test_program());
    helper.ensure_running().unwrap();
    helper
}

/// A mounted filesystem; a failed test must not leave it frozen.
struct Freezable(Volume);

impl Freezable {
    fn new(kind: FsKind) -> Self {
        Self(Volume::new(kind))
    }

    fn root(&self) -> &Path {
        self.0.root()
    }

    fn freeze(&self) {
        filesystem::freeze(self.root()).unwrap();
    }

    /// Thaws it, too.
    fn was_frozen(&self) -> bool {
        ensure_thawed(self.root()).unwrap() == ThawOutcome::Thawed
    }
}

impl Drop for Freezable {
    fn drop(&mut self) {
        let _ = ensure_thawed(self.root());
    }
}

fn pid(process: u32) -> Pid {
    Pid::from_raw(i32::try_from(process).unwrap()).unwrap()
}

fn states(process: u32) -> Vec<char> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    // One that cannot be read has ended since it was listed.
    let stats = threads
        .filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")).ok());
    stats.map(|stat| stat.rsplit(") ").next().unwrap().chars().next().unwrap()).collect()
}

/// Of all its threads: each test runs on its own thread, and the last to end closes the pipe.
fn wait_for_state(process: u32, wanted: char) {
    let generous = Instant::now() + Duration::from_secs(60);
    while states(process).iter().any(|state| *state != wanted) {
        assert!(Instant::now() < generous, "process {process} is in state {:?}", states(process));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn thaw_helper_thaws_only_recorded_filesystems() {
    if !root() {
        return;
    }
    let (registered, thawed, strange) =
        (Freezable::new(FsKind::Ext4), Freezable::new(FsKind::Xfs), Freezable::new(FsKind::Btrfs));
    let helper = helper();
    for volume in [&registered, &thawed] {
        helper.register(volume.root()).unwrap();
        volume.freeze();
    }
    assert!(thawed.was_frozen());
    helper.unregister(thawed.root()).unwrap();
    helper.unregister(strange.root()).unwrap();
    // Freezes of another process.
    thawed.freeze();
    strange.freeze();

    drop(helper);
    assert!(!registered.was_frozen());
    assert!(thawed.was_frozen() && strange.was_frozen());
}

#[test]
fn dead_thaw_helper_is_replaced_with_all_records() {
    if !root() {
        return;
    }
    let (first, second) = (Freezable::new(FsKind::Ext4), Freezable::new(FsKind::Xfs));
    let helper = helper();
    helper.register(first.root()).unwrap();
    first.freeze();
    let dead = helper.process_id().unwrap();
    kill_process(pid(dead), Signal::KILL).unwrap();
    wait_for_state(dead, 'Z');

    helper.register(second.root()).unwrap();
    second.freeze();
    assert_ne!(helper.process_id().unwrap(), dead);
    assert!(!Path::new(&format!("/proc/{dead}")).exists(), "it was waited for");
    drop(helper);
    assert!(!first.was_frozen() && !second.was_frozen());
}

#[test]
fn hung_thaw_helper_is_replaced_without_thawing() {
    if !root() {
        return;
    }
    let volume = Freezable::new(FsKind::Ext4);
    let helper = helper();
    helper.register(volume.root()).unwrap();
    volume.freeze();
    let stopped = helper.process_id().unwrap();
    kill_process(pid(stopped), Signal::STOP).unwrap();
    wait_for_state(stopped, 'T');

    // More than any pipe holds.
    let elsewhere = PathBuf::from(format!("/{}", "long/".repeat(800)));
    for _ in 0..300 {
        helper.register(&elsewhere).unwrap();
    }
    helper.unregister(&elsewhere).unwrap();
    assert_ne!(helper.process_id().unwrap(), stopped);
    assert!(filesystem::freeze(volume.root()).unwrap_err().is_busy(), "still frozen");
    drop(helper);
    assert!(!volume.was_frozen());
}

#[test]
fn thaw_helper_is_detached_from_its_daemon() {
    if !root() {
        return;
    }
    let volume = Freezable::new(FsKind::Ext4);
    let helper = helper();
    let process = helper.process_id().unwrap();
    assert_eq!(getsid(Some(pid(process))).unwrap(), pid(process));
    assert_eq!(std::fs::read_link(format!("/proc/{process}/cwd")).unwrap(), Path::new("/"));

    helper.register(volume.root()).unwrap();
    volume.freeze();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(pid(process), signal).unwrap();
    }
    helper.register(Path::new("/missing")).unwrap();
    assert_eq!(helper.process_id(), Some(process));
    drop(helper);
    assert!(!volume.was_frozen());
}

#[test]
fn thaw_helper_start_failure_is_an_error_each_time() {
    let command = HelperCommand { program: "/missing/program".into(), arguments: Vec::new() };
    let helper = ThawHelper::new(command);
    assert!(helper.ensure_running().unwrap_err().is_not_found());
    for _ in 0..2 {
        assert!(helper.register(Path::new("/a")).unwrap_err().is_not_found());
        helper.unregister(Path::new("/a")).unwrap();
    }
}

#[test]
fn truncated_thaw_request_is_ignored() {
    if !root() {
        return;
    }
    let volume = Freezable::new(FsKind::Xfs);
    let whole = Message::Frozen(volume.root()).encoded();
    volume.freeze();
    run(BufReader::new(&whole[..whole.len() - 1]));
    run(BufReader::new(&[b"?".as_slice(), &whole].concat()[..]));
    run(BufReader::new(&b"\0\0+\0+/missing\0-/never registered\0"[..]));
    assert!(volume.was_frozen());
    volume.freeze();
    run(BufReader::new(&[&whole[..], b"-/somewhere"].concat()[..]));
    assert!(!volume.was_frozen());
}
