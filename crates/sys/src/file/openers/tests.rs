#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::time::Duration;

use super::*;
use crate::testbed::{Disk, MIB, answered, root, scratch};

/// A program that another test starts has all files of this process open for a moment.
#[track_caller]
fn soon(path: &Path, wanted: Openers) {
    let seen = (0..60_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        openers(path).unwrap() == wanted
    });
    assert!(seen, "{:?}", openers(path));
}

#[test]
fn processes_that_have_a_file_open_are_seen() {
    let dir = scratch();
    let path = dir.path().join("file");
    drop(File::create(&path).unwrap());
    soon(&path, Openers::None);
    let reader = File::open(&path).unwrap();
    assert_eq!(openers(&path).unwrap(), Openers::Readers);
    assert_eq!(writer(&path).unwrap(), None);
    let writing = OpenOptions::new().append(true).open(&path).unwrap();
    assert_eq!(openers(&path).unwrap(), Openers::Writers);
    let named = writer(&path).unwrap().unwrap();
    assert!(named.contains(&format!("process {} ", std::process::id())), "{named}");
    drop((reader, writing));
    soon(&path, Openers::None);
}

#[test]
fn devices_are_seen_by_whatever_name_they_were_attached() {
    if !root() {
        return;
    }
    let dir = scratch();
    let path = dir.path().join("file");
    File::create(&path).unwrap().set_len(MIB).unwrap();
    let other_name = dir.path().join("other");
    fs::hard_link(&path, &other_name).unwrap();
    let reading = Disk::attach(&other_name, true);
    assert_eq!(openers(&path).unwrap(), Openers::Readers);
    let writing = Disk::attach(&other_name, false);
    fs::remove_file(&other_name).unwrap();
    assert_eq!(openers(&path).unwrap(), Openers::Writers);
    drop((reading, writing));
    soon(&path, Openers::None);
}

/// The kernel sends a signal to the holder of a lease, which by default would end this process.
#[test]
fn files_may_be_opened_at_the_same_moment() {
    let dir = scratch();
    let path = dir.path().join("file");
    drop(File::create(&path).unwrap());
    let opened = path.clone();
    answered(move || {
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| {
                for _ in 0..20_000 {
                    drop(OpenOptions::new().append(true).open(&opened).unwrap());
                }
            });
            while !opening.is_finished() {
                openers(&opened).unwrap();
            }
        });
    });
    soon(&path, Openers::None);
}

/// As an SMB server does for its clients.
#[test]
fn who_holds_a_lease_to_write_is_a_writer() {
    let dir = scratch();
    let path = dir.path().join("file");
    drop(File::create(&path).unwrap());
    let holder = File::open(&path).unwrap();
    let taken = (0..60_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        take_lease(&holder, Lease::Write).is_ok()
    });
    assert!(taken);
    assert_eq!(openers(&path).unwrap(), Openers::Writers);
    let named = writer(&path).unwrap().unwrap();
    assert!(named.contains(&format!("process {} ", std::process::id())), "{named}");
    drop(holder);
    soon(&path, Openers::None);
}

#[test]
fn a_filesystem_that_has_leases_tells_and_nothing_is_left() {
    let dir = scratch();
    let trial = dir.path().join("trial");
    assert!(reports_openers(&trial).unwrap());
    assert!(!trial.exists());
    fs::write(&trial, "taken").unwrap();
    assert!(reports_openers(&trial).unwrap_err().is_taken());
    assert_eq!(fs::read(&trial).unwrap(), b"taken");
    // As where the kernel takes every new file for one that is open.
    let opened = File::open(&trial).unwrap();
    assert!(!is_unopened(&trial).unwrap());
    drop(opened);
    assert!(is_unopened(&trial).unwrap());
}

#[test]
fn the_holder_of_a_lease_is_found_among_locks() {
    let locks = "1: FLOCK  ADVISORY  WRITE 7 08:01:42 0 EOF\n\
                 2: LEASE  ACTIVE    READ 8 08:01:42 0 EOF\n\
                 3: LEASE  ACTIVE    WRITE 9 08:01:43 0 EOF\n\
                 4: LEASE  BREAKING  READ 10 08:01:42 0 EOF\n";
    assert_eq!(lease_holder(locks, (8, 1), 42).as_deref(), Some("10"));
    assert_eq!(lease_holder(locks, (8, 2), 42), None);
}

#[test]
fn a_file_that_is_missing_is_an_error() {
    let dir = scratch();
    assert!(openers(&dir.path().join("file")).unwrap_err().is_not_found());
}
