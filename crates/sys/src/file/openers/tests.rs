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

#[test]
fn a_file_that_is_missing_is_an_error() {
    let dir = scratch();
    assert!(openers(&dir.path().join("file")).unwrap_err().is_not_found());
}
