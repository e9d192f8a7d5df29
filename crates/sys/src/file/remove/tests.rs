#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::*;
use crate::mounts::{BindAccess, bind};
use crate::testbed::{Mounted, root, scratch};

#[test]
fn tree_is_removed_with_its_contents() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    for name in ["file", "a/file", "a/b/c/file"] {
        std::fs::write(tree.join(name), "x").unwrap();
    }
    remove_tree(&tree).unwrap();
    assert!(!tree.exists());
    remove_tree(&tree).unwrap();
    remove_tree(&tree.join("below/nothing")).unwrap();
}

#[test]
fn single_file_is_removed() {
    let dir = scratch();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    remove_tree(&dir.path().join("file")).unwrap();
    assert!(!dir.path().join("file").exists());
}

#[test]
fn link_targets_are_kept() {
    let dir = scratch();
    let outside = dir.path().join("outside");
    std::fs::create_dir_all(outside.join("kept")).unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    symlink(&outside, tree.join("link")).unwrap();
    remove_tree(&tree).unwrap();
    symlink(&outside, &tree).unwrap();
    remove_tree(&tree).unwrap();
    assert!(outside.join("kept").exists() && tree.symlink_metadata().is_err());
}

#[test]
fn mounts_below_are_kept() {
    if !root() {
        return;
    }
    let dir = scratch();
    let outside = dir.path().join("outside");
    let point = dir.path().join("tree/sub/point");
    std::fs::create_dir(&outside).unwrap();
    std::fs::create_dir_all(&point).unwrap();
    std::fs::write(outside.join("kept"), "x").unwrap();
    bind(&outside, &point, BindAccess::ReadWrite).unwrap();
    let mounted = Mounted::guard(&point);
    assert!(remove_tree(&dir.path().join("tree")).is_err());
    drop(mounted);
    assert!(outside.join("kept").exists());
}

#[test]
fn too_deep_tree_is_an_error() {
    let dir = scratch();
    let nested = |levels: usize| PathBuf::from(vec!["d"; levels].join("/"));
    std::fs::create_dir_all(dir.path().join("deep").join(nested(100))).unwrap();
    let error = remove_tree(&dir.path().join("deep")).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NAMETOOLONG));
    std::fs::create_dir_all(dir.path().join("fine").join(nested(60))).unwrap();
    remove_tree(&dir.path().join("fine")).unwrap();
}
