#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;
use crate::testbed::scratch;

/// In any filesystem. That of cgroups differs in one thing: a watch on what is removed stays, and says
/// nothing. tests/real/limits has tests with real groups.
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

/// What is waited for in vain fails the test rather than hang it.
fn stop_in_time() -> Arc<Stop> {
    let stop = Arc::new(Stop::new().unwrap());
    let later = Arc::clone(&stop);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(60));
        later.stop()
    });
    stop
}

#[test]
fn a_top_that_is_made_again_is_followed_as_before() {
    let dir = scratch();
    let top = dir.path().join("above/top");
    let pod = top.join("pod");
    std::fs::create_dir_all(&pod).unwrap();
    let (mut groups, found) = NewGroups::below(&top).unwrap();
    assert_eq!(found, [top.as_path(), &pod]);
    let stop = stop_in_time();
    // The group alone, and together with the one above it.
    for removed in [&[&pod, &top][..], &[&pod, &top, &dir.path().join("above")]] {
        removed.iter().for_each(|group| std::fs::remove_dir(group).unwrap());
        std::fs::create_dir_all(&pod).unwrap();
        next_of(&mut groups, &stop, &[top.clone(), pod.clone()]);
        let later = top.join("later");
        std::fs::create_dir(&later).unwrap();
        next_of(&mut groups, &stop, std::slice::from_ref(&later));
        std::fs::remove_dir(&later).unwrap();
    }
}

#[test]
fn a_top_that_is_gone_for_a_while_is_waited_for() {
    let dir = scratch();
    let top = dir.path().join("top");
    std::fs::create_dir(&top).unwrap();
    let (mut groups, _) = NewGroups::below(&top).unwrap();
    let stop = stop_in_time();
    std::fs::remove_dir(&top).unwrap();
    for _ in 0..2 {
        assert_eq!(groups.wait(&stop).unwrap(), Some(vec![]));
    }
    std::fs::create_dir(&top).unwrap();
    // A group beside it is not below it.
    std::fs::create_dir(dir.path().join("beside")).unwrap();
    let found = groups.wait(&stop).unwrap().unwrap();
    assert!(!found.contains(&dir.path().join("beside")), "{found:?}");
    if !found.contains(&top) {
        next_of(&mut groups, &stop, &[top]);
    }
}

#[test]
fn groups_below_a_renamed_one_are_reported() {
    let dir = scratch();
    let [before, after] = ["before", "after"].map(|name| dir.path().join(name));
    std::fs::create_dir_all(before.join("inner")).unwrap();
    let (mut groups, _) = NewGroups::below(dir.path()).unwrap();
    let stop = stop_in_time();
    std::fs::rename(&before, &after).unwrap();
    let inner = after.join("inner");
    next_of(&mut groups, &stop, &[after.clone(), inner.clone()]);
    let [one, two] = [after.join("one"), inner.join("two")];
    std::fs::create_dir(&one).unwrap();
    std::fs::create_dir(&two).unwrap();
    next_of(&mut groups, &stop, &[one, two]);
}

#[test]
fn a_group_that_is_gone_is_watched_no_longer() {
    let dir = scratch();
    let (mut groups, _) = NewGroups::below(dir.path()).unwrap();
    let stop = stop_in_time();
    for _ in 0..10 {
        let group = dir.path().join("group");
        std::fs::create_dir_all(group.join("inner")).unwrap();
        next_of(&mut groups, &stop, &[group.join("inner")]);
        std::fs::remove_dir(group.join("inner")).unwrap();
        std::fs::remove_dir(&group).unwrap();
    }
    let last = dir.path().join("last");
    std::fs::create_dir(&last).unwrap();
    next_of(&mut groups, &stop, &[last]);
    // The group above the top, the top, and the last.
    assert_eq!((groups.watched.len(), groups.watches.len()), (3, 3));
}
