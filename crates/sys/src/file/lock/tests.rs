#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use super::*;
use crate::mounts::{self, BindAccess};
use crate::testbed::{Mounted, root, scratch};

#[test]
fn a_lock_is_held_once_and_ends_with_its_value() {
    let dir = scratch();
    let path = dir.path().join("lock");
    let held = try_lock(&path).unwrap();
    assert!(held.is_some());
    assert!(try_lock(&path).unwrap().is_none());
    drop(held);
    assert!(try_lock(&path).unwrap().is_some());
}

#[test]
fn lock_does_not_follow_a_symlink() {
    let dir = scratch();
    symlink(dir.path().join("elsewhere"), dir.path().join("lock")).unwrap();
    assert_eq!(try_lock(&dir.path().join("lock")).unwrap_err().errno(), Some(Errno::LOOP));
    assert!(!dir.path().join("elsewhere").exists());
}

#[test]
fn read_only_file_can_be_locked() {
    if !root() {
        return;
    }
    let dir = scratch();
    let path = dir.path().join("lock");
    File::create_new(&path).unwrap();
    mounts::bind(dir.path(), dir.path(), BindAccess::ReadOnly).unwrap();
    let _mounted = Mounted::guard(dir.path());
    let held = try_lock(&path).unwrap().unwrap();
    assert!(try_lock(&path).unwrap().is_none());
    drop(held);
    assert!(try_lock(&dir.path().join("missing")).unwrap_err().is_not_found());
}

/// What another thread has open ends when it is closed there, not with the lock.
#[test]
fn lock_keeps_no_other_descriptor_open() {
    let dir = scratch();
    let other = dir.path().join("other");
    let open_before = take(&other).unwrap().unwrap();
    let _held = try_lock(&dir.path().join("lock")).unwrap().unwrap();
    // Without an unlock: the lock ends with the last descriptor of the file.
    drop(open_before);
    assert!(take(&other).unwrap().is_some(), "the keeper of the lock has a copy");
}

/// The table of open files that the threads of this process share has no trace of it.
#[test]
fn a_lock_is_not_in_the_table_of_open_files() {
    let dir = scratch();
    let path = dir.path().join("lock");
    let _held = try_lock(&path).unwrap().unwrap();
    let open: Vec<_> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .collect();
    assert!(!open.contains(&path), "{open:?}");
}
