#![allow(clippy::unwrap_used)]

mod lookup;
mod options;

use std::fs::File;
use std::os::unix::fs::symlink;

use super::*;
use crate::filesystem::FsKind;
use crate::testbed::{Disk, MIB, Mounted, SMALL, Volume, root, scratch};
use crate::tool;

fn mount(disk: &Disk, fs_type: &str, options: &[&str], read_only: bool, at: &Path) -> Result<()> {
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    let device = disk.path();
    mount_filesystem(&FsMount { device: &device, fs_type, options: &options, read_only }, at)
}

#[test]
fn a_filesystem_is_mounted_with_its_options() {
    if !root() {
        return;
    }
    for (kind, option) in [
        (FsKind::Ext4, "errors=remount-ro"),
        (FsKind::Xfs, "logbufs=4"),
        (FsKind::Btrfs, "compress=zstd"),
    ] {
        let dir = scratch();
        let disk = Disk::formatted(dir.path(), SMALL, kind);
        let options = ["noatime", "nosuid", "lazytime", option];
        let mounted = Mounted::new(&disk, kind, dir.path().join("mnt"), &options);

        let entry = mount_at(&mounted.point).unwrap().unwrap();
        assert_eq!(entry.fs_type, kind.as_str());
        assert_eq!(entry.source, disk.path().to_string_lossy());
        assert!(!entry.read_only() && !entry.superblock_read_only());
        for wanted in ["noatime", "nosuid"] {
            assert!(entry.options.iter().any(|option| option == wanted), "{entry:?}");
        }
        let key = option.split_once('=').unwrap().0;
        for wanted in ["lazytime", key] {
            let has = entry.super_options.iter().any(|option| option.starts_with(wanted));
            assert!(has, "{wanted}: {entry:?}");
        }
        std::fs::write(mounted.point.join("file"), "data").unwrap();
        ensure_unmounted(&mounted.point).unwrap();
        assert_eq!(mount_at(&mounted.point).unwrap(), None);
    }
}

#[test]
fn read_only_holds_for_mount_and_filesystem() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::formatted(dir.path(), SMALL, FsKind::Ext4);
    let image = disk.image.clone();
    drop(disk);
    let disk = Disk::attach(&image, true);
    let point = dir.path().join("mnt");
    ensure_directory(&point).unwrap();
    let _mounted = Mounted::guard(&point);
    mount(&disk, "ext4", &[], true, &point).unwrap();
    let entry = mount_at(&point).unwrap().unwrap();
    assert!(entry.read_only() && entry.superblock_read_only());
    let written = File::create(point.join("file")).effect_on("create", &point);
    assert!(written.unwrap_err().is_read_only());
}

#[test]
fn mount_failure_includes_the_kernels_reason() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::formatted(dir.path(), SMALL, FsKind::Ext4);
    let point = dir.path().join("mnt");
    ensure_directory(&point).unwrap();
    let _mounted = Mounted::guard(&point);

    let error = mount(&disk, "ext4", &["no_such_option"], false, &point).unwrap_err();
    assert!(error.to_string().contains("no_such_option"), "{error}");
    assert_eq!(error.errno(), Some(Errno::INVAL));
    let error = mount(&disk, "xfs", &[], false, &point).unwrap_err();
    assert!(error.to_string().contains(&*disk.path().to_string_lossy()), "{error}");
    let error = mount(&disk, "nosuchfs", &[], false, &point).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NODEV));
    assert_eq!(mount_at(&point).unwrap(), None);
}

#[test]
fn a_read_only_bind_cannot_be_written_while_its_source_can() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let dir = scratch();
    let target = dir.path().join("target");
    ensure_directory(&target).unwrap();
    let _mounted = Mounted::guard(&target);
    bind(volume.root(), &target, BindAccess::ReadOnly).unwrap();

    std::fs::write(volume.root().join("file"), "data").unwrap();
    assert_eq!(std::fs::read(target.join("file")).unwrap(), b"data");
    for path in ["file", "new"] {
        let written = std::fs::write(target.join(path), "x").effect_on("write", &target);
        assert!(written.unwrap_err().is_read_only(), "{path}");
    }
    let entry = mount_at(&target).unwrap().unwrap();
    assert!(entry.read_only() && !entry.superblock_read_only());
    assert!(!mount_at(volume.root()).unwrap().unwrap().read_only());
}

#[test]
fn a_device_node_is_bound_on_a_file() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), 4 * MIB);
    let target = dir.path().join("target");
    ensure_file(&target).unwrap();
    let mounted = Mounted::guard(&target);
    bind(&disk.path(), &target, BindAccess::ReadWrite).unwrap();
    assert!(!ensure_file(&target).unwrap());
    std::fs::write(&target, vec![3; 8192]).unwrap();
    crate::file::sync_device(&target).unwrap();
    assert_eq!(std::fs::read(&disk.image).unwrap()[..8192], [3; 8192]);
    assert!(mount_at(&target).unwrap().is_some());
    ensure_unmounted(&target).unwrap();
    drop(mounted);
    remove_mount_point(&target).unwrap();
}

#[test]
fn bind_does_not_include_submounts() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Ext4);
    let inner = volume.root().join("inner");
    ensure_directory(&inner).unwrap();
    std::fs::write(inner.join("below"), "x").unwrap();
    let dir = scratch();
    bind(dir.path(), &inner, BindAccess::ReadWrite).unwrap();
    let _inner = Mounted::guard(&inner);
    let target = dir.path().join("target");
    ensure_directory(&target).unwrap();
    let _target = Mounted::guard(&target);
    bind(volume.root(), &target, BindAccess::ReadWrite).unwrap();
    assert!(target.join("inner/below").exists());
}

#[test]
fn stacked_mounts_show_the_topmost_and_go_together() {
    if !root() {
        return;
    }
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    for name in ["one", "two", "target"] {
        ensure_directory(&at(name)).unwrap();
    }
    let _mounted = Mounted::guard(&at("target"));
    for name in ["one", "two"] {
        bind(&at(name), &at("target"), BindAccess::ReadWrite).unwrap();
        let entry = mount_at(&at("target")).unwrap().unwrap();
        assert!(entry.root.ends_with(name), "{entry:?}");
    }
    ensure_unmounted(&at("target")).unwrap();
    assert_eq!(mount_at(&at("target")).unwrap(), None);
    ensure_unmounted(&at("target")).unwrap();
    ensure_unmounted(&at("missing")).unwrap();
    ensure_unmounted(&at("missing/below")).unwrap();
}

#[test]
fn hidden_mount_is_not_reported() {
    if !root() {
        return;
    }
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    for name in ["a", "a/b", "empty", "empty/b"] {
        ensure_directory(&at(name)).unwrap();
    }
    let _hidden = Mounted::guard(&at("a/b"));
    bind(&at("empty"), &at("a/b"), BindAccess::ReadWrite).unwrap();
    let _hiding = Mounted::guard(&at("a"));
    bind(&at("empty"), &at("a"), BindAccess::ReadWrite).unwrap();
    assert_eq!(mount_at(&at("a/b")).unwrap(), None);
    ensure_unmounted(&at("a/b")).unwrap();
    ensure_unmounted(&at("a")).unwrap();
    assert!(mount_at(&at("a/b")).unwrap().is_some());
}

#[test]
fn a_link_as_last_component_is_refused() {
    if !root() {
        return;
    }
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    for name in ["real", "source", "other"] {
        ensure_directory(&at(name)).unwrap();
    }
    symlink("real", at("link")).unwrap();
    let _guards = [Mounted::guard(&at("real")), Mounted::guard(&at("other"))];

    let is_link = |outcome: Result<()>| outcome.unwrap_err().errno() == Some(Errno::LOOP);
    assert!(is_link(bind(&at("source"), &at("link"), BindAccess::ReadWrite)));
    assert!(is_link(bind(&at("link"), &at("other"), BindAccess::ReadWrite)));
    let disk = Disk::formatted(dir.path(), SMALL, FsKind::Ext4);
    assert!(is_link(mount(&disk, "ext4", &[], false, &at("link"))));

    bind(&at("source"), &at("real"), BindAccess::ReadWrite).unwrap();
    assert_eq!(mount_at(&at("link")).unwrap(), None);
    ensure_unmounted(&at("link")).unwrap();
    assert!(mount_at(&at("real")).unwrap().is_some());
}

#[test]
fn parent_symlinks_and_spaces_are_handled() {
    if !root() {
        return;
    }
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    ensure_directory(&at("real dir/target\\040 x")).unwrap();
    ensure_directory(&at("source")).unwrap();
    symlink("real dir", at("link")).unwrap();
    let target = at("link/target\\040 x");
    let _mounted = Mounted::guard(&target);
    bind(&at("source"), &target, BindAccess::ReadWrite).unwrap();
    let entry = mount_at(&target).unwrap().unwrap();
    assert_eq!(entry.mount_point, at("real dir/target\\040 x"));
    ensure_unmounted(&target).unwrap();
}

#[test]
fn a_mount_in_use_is_busy() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Ext4);
    let user = File::create(volume.root().join("file")).unwrap();
    assert!(ensure_unmounted(volume.root()).unwrap_err().is_busy());
    drop(user);
    ensure_unmounted(volume.root()).unwrap();
}

#[test]
fn mount_waits_for_what_was_unmounted_a_moment_ago() {
    if !root() {
        return;
    }
    // btrfs takes both at once since Linux 6.8.
    for kind in [FsKind::Ext4, FsKind::Xfs] {
        let volume = Volume::new(kind);
        let user = File::create(volume.root().join("file")).unwrap();
        // It is no longer mounted anywhere, and writable for as long as the file is open.
        unmount(volume.root(), UnmountFlags::DETACH).unwrap();
        let closing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(60));
            drop(user);
        });
        mount(&volume.disk, kind.as_str(), &[], true, volume.root()).unwrap();
        closing.join().unwrap();
        assert!(mount_at(volume.root()).unwrap().unwrap().superblock_read_only());
        ensure_unmounted(volume.root()).unwrap();
    }
}

#[test]
fn shut_down_filesystem_is_listed_and_unmounted() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let point = volume.root().as_os_str();
    let shutdown = ["-x", "-c", "shutdown"].map(std::ffi::OsStr::new);
    tool::run("xfs_io", shutdown.into_iter().chain([point])).unwrap();
    assert!(std::fs::metadata(volume.root()).is_err());
    assert!(mount_at(volume.root()).unwrap().is_some());
    ensure_unmounted(volume.root()).unwrap();
    assert_eq!(mount_at(volume.root()).unwrap(), None);
}
