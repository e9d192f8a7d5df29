#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::mounts::{self, BindAccess};
use crate::testbed::{Disk, MIB, Mounted, answered, root, scratch};
use crate::tool;

fn file_in(dir: &Path) -> PathBuf {
    let path = dir.join("file");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    path
}

/// A program that another test starts has all files of this process open for a moment.
fn truncated_soon(path: &Path) -> bool {
    (0..600).any(|_| try_truncate_unused(path).unwrap())
}

#[track_caller]
fn assert_kept(path: &Path, file: &Path) {
    let path = path.to_owned();
    assert!(!answered(move || try_truncate_unused(&path)).unwrap());
    assert_eq!(fs::metadata(file).unwrap().len(), MIB);
}

#[test]
fn a_file_that_nothing_else_has_is_cut() {
    let dir = scratch();
    let path = file_in(dir.path());
    assert!(truncated_soon(&path));
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    fs::remove_file(&path).unwrap();
    assert!(!try_truncate_unused(&path).unwrap());
    assert!(!try_truncate_unused(&path.join("file")).unwrap());
}

#[test]
fn a_file_that_is_open_is_kept() {
    let dir = scratch();
    let path = file_in(dir.path());
    let reader = File::open(&path).unwrap();
    assert_kept(&path, &path);
    take_lease(&reader, Lease::Write).unwrap();
    assert_kept(&path, &path);
    drop(reader);
    let writer = File::options().append(true).open(&path).unwrap();
    assert_kept(&path, &path);
    drop(writer);
    assert!(truncated_soon(&path));
}

#[test]
fn a_file_of_another_name_is_kept() {
    let dir = scratch();
    let path = file_in(dir.path());
    let [hard, link, pipe] = ["hard", "link", "pipe"].map(|name| dir.path().join(name));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_kept(&link, &path);
    tool::run("mkfifo", [&pipe]).unwrap();
    assert_kept(&pipe, &path);
    assert_kept(dir.path(), &path);
    fs::hard_link(&path, &hard).unwrap();
    assert_kept(&path, &path);
    fs::remove_file(&hard).unwrap();
    assert!(truncated_soon(&path));
}

#[test]
fn a_file_of_a_device_or_a_mount_is_kept() {
    if !root() {
        return;
    }
    let dir = scratch();
    let path = file_in(dir.path());
    let disk = Disk::attach(&path, true);
    assert_kept(&path, &path);
    drop(disk);
    let point = dir.path().join("point");
    File::create(&point).unwrap();
    mounts::bind(&path, &point, BindAccess::ReadWrite).unwrap();
    let mounted = Mounted::guard(&point);
    assert_kept(&point, &path);
    drop(mounted);
    assert!(truncated_soon(&path));
}
