#![allow(clippy::unwrap_used)]

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;
use crate::filesystem::FsKind;
use crate::mounts::{BindAccess, bind};
use crate::testbed::{Mounted, Volume, root, scratch};
use crate::tool;

const GROUP: u32 = 4711;

fn gid_and_mode(path: &Path) -> (u32, u32) {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    (metadata.gid(), metadata.mode() & 0o7777)
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn new_files_are_group_writable_under_any_umask() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let volume = Volume::new(kind);
        std::fs::create_dir(volume.root().join("old")).unwrap();
        apply_group(volume.root(), GROUP).unwrap();
        let script = "umask 077; cd \"$0\"; mkdir -p dir/sub; echo x > file; \
                      echo x > dir/sub/file; \
                      echo x > old/file";
        let arguments = ["-c".as_ref(), script.as_ref(), volume.root().as_os_str()];
        tool::run("sh", arguments).unwrap();
        for file in ["file", "dir/sub/file", "old/file"] {
            let (gid, mode) = gid_and_mode(&volume.root().join(file));
            assert_eq!((gid, mode & 0o060), (GROUP, 0o060), "{kind} {file} {mode:o}");
        }
        for directory in ["", "dir", "dir/sub", "old"] {
            let (gid, mode) = gid_and_mode(&volume.root().join(directory));
            assert_eq!((gid, mode & 0o2070), (GROUP, 0o2070), "{kind} {directory} {mode:o}");
        }
    }
}

#[test]
fn existing_files_get_the_minimal_permissions() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Ext4);
    let at = |name: &str| volume.root().join(name);
    std::fs::create_dir_all(at("dir/sub")).unwrap();
    for (name, mode) in [("data", 0o600), ("dir/program", 0o4711), ("dir/sub/sgid", 0o2755)] {
        std::fs::write(at(name), "x").unwrap();
        set_mode(&at(name), mode);
    }
    set_mode(&at("dir"), 0o700);
    apply_group(volume.root(), GROUP).unwrap();
    assert_eq!(gid_and_mode(&at("data")), (GROUP, 0o660));
    assert_eq!(gid_and_mode(&at("dir/program")), (GROUP, 0o4771));
    assert_eq!(gid_and_mode(&at("dir/sub/sgid")), (GROUP, 0o775));
    assert_eq!(gid_and_mode(&at("dir")), (GROUP, 0o2770));
}

#[test]
fn links_and_submounts_are_not_entered() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let outside = scratch();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "x").unwrap();
    set_mode(&secret, 0o600);
    symlink(outside.path(), volume.root().join("link")).unwrap();
    symlink(&secret, volume.root().join("file-link")).unwrap();
    let point = volume.root().join("point");
    std::fs::create_dir(&point).unwrap();
    bind(outside.path(), &point, BindAccess::ReadWrite).unwrap();
    let _mounted = Mounted::guard(&point);

    apply_group(volume.root(), GROUP).unwrap();
    assert_eq!(gid_and_mode(&secret), (0, 0o600));
    assert_eq!(gid_and_mode(outside.path()).0, 0);
    assert_eq!(gid_and_mode(&volume.root().join("file-link")).0, GROUP);
}

#[test]
fn finished_tree_is_not_walked_again() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Ext4);
    let file = volume.root().join("file");
    std::fs::write(&file, "x").unwrap();
    apply_group(volume.root(), GROUP).unwrap();
    set_mode(&file, 0o600);
    apply_group(volume.root(), GROUP).unwrap();
    assert_eq!(gid_and_mode(&file), (GROUP, 0o600));

    apply_group(volume.root(), GROUP + 1).unwrap();
    assert_eq!(gid_and_mode(&file), (GROUP + 1, 0o660));
    set_mode(volume.root(), 0o755);
    set_mode(&file, 0o600);
    apply_group(volume.root(), GROUP + 1).unwrap();
    assert_eq!(gid_and_mode(&file), (GROUP + 1, 0o660));
}

#[test]
fn a_deep_tree_is_walked_to_its_end() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Ext4);
    let deep = volume.root().join(vec!["d"; 1500].join("/"));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("file"), "x").unwrap();
    apply_group(volume.root(), GROUP).unwrap();
    assert_eq!(gid_and_mode(&deep.join("file")).0, GROUP);
}

/// No path leads to its end: only a walk by descriptors does.
#[test]
fn a_tree_deeper_than_a_path_is_long_is_walked() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Ext4);
    let script = "cd \"$0\"; n=$(printf %0200d 7); i=0; \
                  while [ $i -lt 60 ]; do mkdir $n && cd -P $n || exit 1; i=$((i + 1)); done; echo x > file";
    let walk = "cd \"$0\"; n=$(printf %0200d 7); i=0; \
                while [ $i -lt 60 ]; do cd -P $n || exit 1; i=$((i + 1)); done; stat -c '%g %a' . file";
    let arguments = |script| ["-c".as_ref(), OsStr::new(script), volume.root().as_os_str()];
    tool::run("bash", arguments(script)).unwrap();
    apply_group(volume.root(), GROUP).unwrap();
    let found = tool::run("bash", arguments(walk)).unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found, format!("{GROUP} 2775\n{GROUP} 664\n"));
}

#[test]
fn group_writable_acl_is_kept() {
    let mut acl = acl_for_group(0o755);
    assert!(DefaultAcl::Present(acl.clone()).lets_group_write());
    acl.extend(ACL_MASK.to_le_bytes());
    acl.extend([5, 0, 255, 255, 255, 255]);
    assert!(!DefaultAcl::Present(acl).lets_group_write());
    assert!(!DefaultAcl::Present(Vec::new()).lets_group_write());
    assert!(!DefaultAcl::Present(vec![2, 0, 0, 0, 4]).lets_group_write());
}

#[test]
fn the_root_may_not_be_a_link() {
    let dir = scratch();
    symlink(dir.path(), dir.path().join("link")).unwrap();
    let error = apply_group(&dir.path().join("link"), GROUP).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::LOOP));
}
