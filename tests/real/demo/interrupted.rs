//! Signals at different moments, and output that is closed.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::time::{Duration, SystemTime};

use super::play::{Play, SIZE};
use orlop_tests::*;
use rustix::process::Signal;

#[track_caller]
fn interrupted_after(text: &str, (signal, name, code): (Signal, &str, i32)) {
    let play = Play::new();
    let mut demo = play.begin(&["--size", SIZE]);
    demo.until(text);
    demo.send(signal);
    let ended = demo.wait_for_end();
    assert_eq!(ended.code, code, "{}\n{}", ended.stdout, ended.stderr);
    let said = ended.stdout.lines().last().unwrap();
    assert!(said.starts_with(&format!("interrupted by {name}: ")), "{}", ended.stdout);
    assert!(said.ends_with("is removed"), "{said}");
    assert!(!ended.stdout.contains("Every line"), "{}", ended.stdout);
    play.assert_nothing_is_left();
}

const CTRL_C: (Signal, &str, i32) = (Signal::INT, "Ctrl-C", 130);
const TERMINATE: (Signal, &str, i32) = (Signal::TERM, "SIGTERM", 143);
const HANG_UP: (Signal, &str, i32) = (Signal::HUP, "SIGHUP", 129);

#[test]
fn while_the_daemon_starts() {
    needs_root!();
    interrupted_after("throw-away pool", CTRL_C);
}

#[test]
fn while_data_is_written() {
    needs_root!();
    interrupted_after(" mount ", TERMINATE);
}

#[test]
fn while_snapshots_are_taken() {
    needs_root!();
    interrupted_after(" write ", HANG_UP);
}

#[test]
fn while_copies_are_mounted() {
    needs_root!();
    interrupted_after(" restore ", CTRL_C);
}

#[test]
fn while_a_group_is_frozen() {
    needs_root!();
    interrupted_after(" changed ", TERMINATE);
}

#[test]
fn while_a_writer_is_limited() {
    needs_root!();
    interrupted_after(" grow ", CTRL_C);
}

#[test]
fn while_the_daemon_is_killed() {
    needs_root!();
    interrupted_after(" limit ", TERMINATE);
}

/// `orlop demo | head -n 4`
#[test]
fn output_that_is_closed_ends_the_demo() {
    needs_root!();
    let play = Play::new();
    let mut demo =
        play.begin_by(&["/bin/sh", "-c", "exec \"$0\" \"$@\" | head -n 4"], &["--size", SIZE]);
    demo.until(" create ");
    let ended = demo.wait_for_end();
    assert!(ended.stderr.contains("cannot print"), "{}", ended.stderr);
    play.assert_nothing_is_left();
}

#[test]
fn next_demo_removes_what_a_killed_one_left() {
    needs_root!();
    for moment in [" write ", " restore ", " grow "] {
        let play = Play::new();
        let mut demo = play.begin(&["--size", SIZE]);
        demo.until(moment);
        demo.kill();
        let [left] = play.directories().try_into().unwrap();
        assert!(!play.devices_and_mounts().is_empty(), "there is nothing to remove");
        // As `mktemp -d` makes it, for another purpose.
        let other = play.path().join("orlop-demo.0123abcd");
        std::fs::DirBuilder::new().mode(0o700).create(&other).unwrap();
        std::fs::write(other.join("notes"), "").unwrap();
        let old = SystemTime::now() - Duration::from_secs(3600);
        File::open(&other).unwrap().set_modified(old).unwrap();
        let ended = play.begin(&["--size", SIZE]).wait_for_end();
        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
        assert!(other.join("notes").exists(), "{}", ended.stdout);
        orlop_sys::file::remove_tree(&other).unwrap();
        let said = format!("removed {}, which a killed demo had left", left.display());
        assert!(ended.stdout.contains(&said), "{}", ended.stdout);
        play.assert_nothing_is_left();
    }
}
