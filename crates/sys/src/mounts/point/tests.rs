#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::mounts::{BindAccess, bind};
use crate::testbed::{Mounted, root, scratch};

#[test]
fn directories_are_made_with_what_is_missing_above() {
    let dir = scratch();
    let path = dir.path().join("a/b/c");
    assert!(ensure_directory(&path).unwrap());
    assert!(!ensure_directory(&path).unwrap());
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o027, 0o000, "{mode:o}");
}

#[test]
fn files_are_made_in_existing_directories_only() {
    let dir = scratch();
    assert!(ensure_file(&dir.path().join("file")).unwrap());
    assert!(!ensure_file(&dir.path().join("file")).unwrap());
    assert!(ensure_file(&dir.path().join("missing/file")).unwrap_err().is_not_found());
}

#[test]
fn links_and_the_wrong_kind_are_refused() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("directory")).unwrap();
    std::fs::write(at("file"), "").unwrap();
    symlink("directory", at("to-directory")).unwrap();
    symlink("nowhere", at("to-nothing")).unwrap();

    assert!(ensure_directory(&at("file")).is_err());
    assert!(ensure_directory(&at("to-directory")).is_err());
    assert!(ensure_directory(&at("to-nothing")).is_err());
    assert_eq!(ensure_file(&at("directory")).unwrap_err().errno(), Some(Errno::ISDIR));
    assert!(ensure_file(&at("to-nothing")).is_err());
    assert!(!at("nowhere").exists());
    assert!(ensure_directory(&at("to-directory/below")).unwrap());
}

#[test]
fn only_what_is_empty_is_removed() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    for name in ["empty", "full", "full/kept"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    std::fs::write(at("file"), "").unwrap();
    std::fs::write(at("data"), "kept").unwrap();
    symlink("empty", at("link")).unwrap();

    assert!(remove_mount_point(&at("link")).is_err());
    for name in ["empty", "file", "missing", "missing/below"] {
        remove_mount_point(&at(name)).unwrap();
        assert!(!at(name).exists());
    }
    assert_eq!(remove_mount_point(&at("full")).unwrap_err().errno(), Some(Errno::NOTEMPTY));
    assert!(remove_mount_point(&at("data")).is_err());
    assert!(at("full/kept").exists() && at("data").exists());
}

#[test]
fn a_point_in_use_is_busy() {
    if !root() {
        return;
    }
    let dir = scratch();
    let (source, point) = (dir.path().join("source"), dir.path().join("point"));
    ensure_directory(&source).unwrap();
    ensure_directory(&point).unwrap();
    bind(&source, &point, BindAccess::ReadWrite).unwrap();
    let mounted = Mounted::guard(&point);
    assert!(!ensure_directory(&point).unwrap());
    assert!(remove_mount_point(&point).unwrap_err().is_busy());
    drop(mounted);
    remove_mount_point(&point).unwrap();
}
