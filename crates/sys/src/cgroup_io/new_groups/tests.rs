#![allow(clippy::unwrap_used)]

use super::*;
use crate::testbed::scratch;

/// Directories are watched alike, wherever they are.
fn next_of(groups: &mut NewGroups, stop: &Stop, wanted: &[PathBuf]) {
    let mut missing: Vec<_> = wanted.to_vec();
    while !missing.is_empty() {
        let found = groups.wait(stop).unwrap().expect("not stopped");
        missing.retain(|group| !found.contains(group));
    }
}

#[test]
fn new_cgroups_are_reported() {
    let dir = scratch();
    let [first, second, third] = ["a", "a/b", "a/b/c"].map(|name| dir.path().join(name));
    std::fs::create_dir(&first).unwrap();
    let (mut groups, found) = NewGroups::below(dir.path()).unwrap();
    assert_eq!(found, [dir.path(), &first]);
    let stop = Stop::new().unwrap();
    // The last is made before anything watches the one above it.
    std::fs::create_dir_all(&third).unwrap();
    next_of(&mut groups, &stop, &[second.clone(), third.clone()]);

    std::fs::remove_dir(&third).unwrap();
    std::fs::remove_dir(&second).unwrap();
    std::fs::create_dir(&second).unwrap();
    next_of(&mut groups, &stop, &[second]);
    stop.stop().unwrap();
    assert_eq!(groups.wait(&stop).unwrap(), None);
    assert_eq!(groups.wait(&stop).unwrap(), None);
}

#[test]
fn inotify_overflow_is_recovered() {
    let dir = scratch();
    let (mut groups, _) = NewGroups::below(dir.path()).unwrap();
    let stop = Stop::new().unwrap();
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let count = limit.trim().parse::<u32>().unwrap() + 10;
    let group = dir.path().join("group");
    for _ in 0..count {
        std::fs::create_dir(&group).unwrap();
        std::fs::remove_dir(&group).unwrap();
    }
    let last = dir.path().join("last");
    std::fs::create_dir(&last).unwrap();
    next_of(&mut groups, &stop, &[last]);
}
