#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;
use crate::testbed::{root, scratch};

const USER: u32 = 4711;

fn entry(kind: EntryKind) -> EmptyEntry {
    EmptyEntry { kind, mode: 0o1751, user: USER, group: USER + 1 }
}

fn attributes(path: &Path) -> (u32, u32, u32) {
    let found = std::fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid(), found.mode() & 0o7777)
}

#[test]
fn an_empty_entry_is_as_it_was() {
    if !root() {
        return;
    }
    let dir = scratch();
    for kind in [EntryKind::Directory, EntryKind::File] {
        let path = dir.path().join(format!("{kind:?}"));
        restore_empty(&path, entry(kind)).unwrap();
        assert_eq!(attributes(&path), (USER, USER + 1, 0o1751), "{kind:?}");
        assert_eq!(path.is_dir(), kind == EntryKind::Directory);
    }
}

#[test]
fn what_is_there_by_now_is_left_alone() {
    let dir = scratch();
    let (secret, link) = (dir.path().join("secret"), dir.path().join("link"));
    std::fs::write(&secret, "x").unwrap();
    symlink(&secret, &link).unwrap();
    let before = attributes(&secret);
    for path in [&secret, &link] {
        for kind in [EntryKind::Directory, EntryKind::File] {
            restore_empty(path, entry(kind)).unwrap();
        }
    }
    assert_eq!(attributes(&secret), before);
}

/// The user who owns the directory above could lead it to any other one.
#[test]
fn no_link_on_the_way_is_followed() {
    let dir = scratch();
    std::fs::create_dir(dir.path().join("other")).unwrap();
    symlink("other", dir.path().join("home")).unwrap();
    for kind in [EntryKind::Directory, EntryKind::File] {
        let error = restore_empty(&dir.path().join("home/mnt"), entry(kind)).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::LOOP));
    }
    assert!(!dir.path().join("other/mnt").exists());
}

/// As it is after the new directory was exchanged, before it is opened.
#[test]
fn another_directory_in_its_place_is_not_taken() {
    let dir = scratch();
    let parent = OwnedFd::from(File::open(dir.path()).unwrap());
    let make = |name: &str, mode| {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    };
    make("new", 0o700);
    std::fs::write(make("full", 0o700).join("file"), "").unwrap();
    make("open", 0o755);
    symlink("full", dir.path().join("link")).unwrap();
    assert!(open_new(&parent, OsStr::new("new")).unwrap().is_some());
    assert!(open_new(&parent, OsStr::new("full")).unwrap().is_none());
    assert!(open_new(&parent, OsStr::new("open")).unwrap().is_none());
    assert_eq!(open_new(&parent, OsStr::new("link")).unwrap_err(), Errno::NOTDIR);
}
