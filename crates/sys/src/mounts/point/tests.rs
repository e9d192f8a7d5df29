#![allow(clippy::unwrap_used)]

use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;
use crate::mounts::{BindAccess, bind};
use crate::testbed::{Mounted, root, scratch};

#[test]
fn directories_are_created_with_missing_parents() {
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
fn only_empty_mount_points_are_removed() {
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

#[test]
fn replaced_mount_point_keeps_its_attributes() {
    let dir = scratch();
    let (directory, file) = (dir.path().join("directory"), dir.path().join("file"));
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(&file, "").unwrap();
    for path in [&directory, &file] {
        std::fs::set_permissions(path, Permissions::from_mode(0o2751)).unwrap();
        let before = path.metadata().unwrap();
        // What a crash left of an earlier attempt.
        let orphan = dir.path().join(format!(".orlop-{}", before.ino()));
        match path == &file {
            true => drop(File::create_new(orphan).unwrap()),
            false => std::fs::create_dir(orphan).unwrap(),
        }
        replace_mount_point(path).unwrap();
        let after = path.metadata().unwrap();
        assert_ne!(after.ino(), before.ino(), "it is another one");
        assert_eq!(
            (after.uid(), after.gid(), after.mode()),
            (before.uid(), before.gid(), before.mode())
        );
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "something was left");
    replace_mount_point(&dir.path().join("missing")).unwrap();
    replace_mount_point(&dir.path().join("missing/below")).unwrap();
}

#[test]
fn nonempty_mount_point_is_not_replaced() {
    let dir = scratch();
    let (directory, file) = (dir.path().join("directory"), dir.path().join("file"));
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("inside"), "kept").unwrap();
    std::fs::write(&file, "kept").unwrap();
    symlink(&directory, dir.path().join("link")).unwrap();
    let refused = replace_mount_point(&directory).unwrap_err();
    assert_eq!(refused.errno(), Some(Errno::NOTEMPTY));
    replace_mount_point(&file).unwrap_err();
    replace_mount_point(&dir.path().join("link")).unwrap_err();
    assert_eq!(std::fs::read_to_string(directory.join("inside")).unwrap(), "kept");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "something was left");
}
