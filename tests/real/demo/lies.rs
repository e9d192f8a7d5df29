//! The demo fails if what it says is not so.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::play::{Demo, Play, SIZE};
use orlop_sys::extents::extents;
use orlop_tests::*;
use rustix::process::{Pid, Signal, kill_process};

/// Stopped after this line, and before the next.
fn stopped_after(play: &Play, text: &str) -> (Demo, PathBuf) {
    let mut demo = play.begin(&["--size", SIZE]);
    demo.until(text);
    demo.send(Signal::STOP);
    let [directory] = play.directories().try_into().unwrap();
    (demo, directory)
}

#[track_caller]
fn must_fail(play: &Play, demo: Demo, why: &str) {
    demo.send(Signal::CONT);
    let ended = demo.wait_for_end();
    assert_eq!(ended.code, 1, "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains(why), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.trim_end().ends_with("is removed"), "{}", ended.stdout);
    play.assert_nothing_is_left();
}

/// Where the first bytes of the demo's file lie in its volume.
fn place_of_data(directory: &Path) -> u64 {
    let file = File::open(directory.join("volumes/data/data")).unwrap();
    extents(file, 0).next().unwrap().unwrap().physical
}

fn data_files(directory: &Path, kind: &str) -> Vec<PathBuf> {
    let pool = mounts_in(directory);
    let objects = std::fs::read_dir(pool.join(kind)).unwrap();
    objects.map(|entry| entry.unwrap().path().join("data")).collect()
}

fn mounts_in(directory: &Path) -> PathBuf {
    let all = orlop_sys::mounts::all_mounts().unwrap();
    let mut points = all.into_iter().map(|entry| entry.mount_point);
    points.find(|point| point.starts_with(directory.join("pool"))).unwrap()
}

#[test]
fn snapshots_that_change() {
    needs_root!();
    let play = Play::new();
    let (demo, directory) = stopped_after(&play, " snapshot ");
    let place = place_of_data(&directory);
    for snapshot in data_files(&directory, "snapshots") {
        let file = File::options().write(true).open(snapshot).unwrap();
        file.write_all_at(&[0xa5; 4096], place).unwrap();
        file.sync_all().unwrap();
    }
    must_fail(&play, demo, "the restored volume holds other data than was written");
}

#[test]
fn data_that_is_lost_while_the_daemon_is_down() {
    needs_root!();
    let play = Play::new();
    let (demo, directory) = stopped_after(&play, " limit ");
    let file = File::options().write(true).open(directory.join("volumes/data/data")).unwrap();
    file.write_all_at(&[0xa5], 5 << 20).unwrap();
    file.sync_all().unwrap();
    drop(file);
    must_fail(&play, demo, "the volume after the restart holds other data");
}

#[test]
fn snapshots_that_are_not_there() {
    needs_root!();
    let play = Play::new();
    let (demo, directory) = stopped_after(&play, " write ");
    // The daemon counts what is on its pool when it starts; here it does so in the middle.
    let mut demo = demo;
    demo.send(Signal::CONT);
    demo.until(" limit ");
    demo.send(Signal::STOP);
    let snapshot = data_files(&directory, "snapshots").swap_remove(0);
    orlop_sys::file::remove_tree(snapshot.parent().unwrap()).unwrap();
    must_fail(&play, demo, "are there after the restart");
}

#[test]
fn daemon_that_ends() {
    needs_root!();
    let play = Play::new();
    let mut demo = play.begin(&["--size", SIZE]);
    let line = demo.until(" start ");
    let pid = line.split_once("daemon ").unwrap().1.split_whitespace().next().unwrap();
    demo.until(" mount ");
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    must_fail(&play, demo, "failed");
}
