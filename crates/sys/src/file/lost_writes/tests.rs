#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Write;

use super::*;
use crate::file::{preallocate, space};
use crate::filesystem::FsKind;
use crate::testbed::{Disk, MIB, Mounted, SMALL, Volume, pattern, root, scratch};

/// A filesystem in a sparse file, on one that becomes full: what a volume of an overcommitted pool is.
#[test]
fn writes_that_a_full_disk_did_not_take_are_found_once() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let pool = Volume::new(FsKind::Xfs);
        let dir = scratch();
        let disk = Disk::formatted(pool.root(), SMALL, kind);
        let mounted = Mounted::new(&disk, kind, dir.path().join("mnt"), &[]);
        assert_eq!(lost_writes_at(&mounted.point, || true).unwrap(), None, "{kind}");

        let hog = File::create_new(pool.root().join("hog")).unwrap();
        preallocate(&hog, 0, space(pool.root()).unwrap().free - 8 * MIB).unwrap();
        // The page cache takes them all.
        let mut file = File::create_new(mounted.point.join("file")).unwrap();
        file.write_all(&pattern(1, 48 << 20)).unwrap();
        drop(file);
        assert_eq!(lost_writes_at(&mounted.point, || false).unwrap(), None, "{kind}: not asked");
        assert!(lost_writes_at(&mounted.point, || true).unwrap().is_some(), "{kind}");
        if kind != FsKind::Btrfs {
            assert_eq!(lost_writes_at(&mounted.point, || true).unwrap(), None, "{kind}");
        }
        // What is still to be written can be, so that it can be unmounted.
        hog.set_len(0).unwrap();
    }
}

/// A sync may wait for its device without end.
#[test]
fn what_is_synced_can_be_unmounted() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let (home, dir) = (Volume::new(FsKind::Xfs), scratch());
        let disk = Disk::formatted(home.root(), SMALL, kind);
        let mounted = Mounted::new(&disk, kind, dir.path().join("mnt"), &[]);
        let unmounted =
            || rustix::mount::unmount(&mounted.point, rustix::mount::UnmountFlags::empty());
        let file = open(&mounted.point, READ, Mode::empty()).unwrap();
        assert_eq!(unmounted(), Err(Errno::BUSY), "{kind}");
        let file = without_mount(file).unwrap();
        unmounted().unwrap();
        syncfs(file).unwrap();
    }
}
