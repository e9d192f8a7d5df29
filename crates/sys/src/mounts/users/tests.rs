#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::symlink;

use super::*;
use crate::filesystem::FsKind;
use crate::mounts::ensure_unmounted;
use crate::testbed::{Disk, Mounted, SMALL, root, scratch};

#[test]
fn process_that_keeps_a_mount_busy_is_named() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::formatted(dir.path(), SMALL, FsKind::Ext4);
    let mounted = Mounted::new(&disk, FsKind::Ext4, dir.path().join("mnt"), &[]);
    assert_eq!(user_of(&mounted.point), None);

    let open = File::create(mounted.point.join("open")).unwrap();
    // Also by another path.
    let link = dir.path().join("link");
    symlink(dir.path(), &link).unwrap();
    for path in [&mounted.point, &link.join("mnt")] {
        let user = user_of(path).unwrap();
        let own = format!("process {} (", std::process::id());
        assert!(user.starts_with(&own) && user.ends_with(") has files of it open"), "{user}");
    }
    drop(open);

    let inner = mounted.point.join("inner");
    let second = Disk::formatted(dir.path(), SMALL, FsKind::Xfs);
    let within = Mounted::new(&second, FsKind::Xfs, inner.clone(), &[]);
    let user = user_of(&mounted.point).unwrap();
    assert!(user.contains(inner.to_str().unwrap()), "{user}");
    assert_eq!(user_of(&inner), None);
    ensure_unmounted(&within.point).unwrap();
    assert_eq!(user_of(&mounted.point), None);
}
