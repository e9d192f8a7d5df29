#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Write;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};

use super::*;
use crate::file::{preallocate, space};
use crate::filesystem::{FsKind, ensure_thawed, freeze};
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
        let unmounted = || unmount(&mounted.point, UnmountFlags::empty());
        let file = open(&mounted.point, READ, Mode::empty()).unwrap();
        assert_eq!(unmounted(), Err(Errno::BUSY), "{kind}");
        let file = without_mount(file).unwrap();
        unmounted().unwrap();
        syncfs(file).unwrap();
    }
}

/// Its filesystem takes no writes as long as this lives.
struct FrozenVolume<'a>(&'a Volume);

impl<'a> FrozenVolume<'a> {
    fn of(volume: &'a Volume) -> Self {
        freeze(volume.root()).unwrap();
        Self(volume)
    }
}

impl Drop for FrozenVolume<'_> {
    fn drop(&mut self) {
        ensure_thawed(self.0.root()).unwrap();
    }
}

#[test]
fn sync_that_hangs_keeps_no_path_busy() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let (home, dir) = (Volume::new(FsKind::Xfs), scratch());
        let disk = Disk::formatted(home.root(), SMALL, kind);
        let mounted = Mounted::new(&disk, kind, dir.path().join("mnt"), &[]);
        let mut file = File::create_new(mounted.point.join("file")).unwrap();
        file.write_all(&pattern(1, 8 << 20)).unwrap();
        drop(file);
        let frozen = FrozenVolume::of(&home);
        std::thread::scope(|scope| {
            let (opened, is_open) = channel();
            let point = &mounted.point;
            let syncing = scope.spawn(move || lost_writes_at(point, || opened.send(()).is_ok()));
            is_open.recv().unwrap();
            let deadline = Instant::now() + Duration::from_secs(20);
            let left = loop {
                match unmount(point, UnmountFlags::empty()) {
                    Err(Errno::BUSY) if Instant::now() < deadline => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    left => break left,
                }
            };
            let was_hung = !syncing.is_finished();
            drop(frozen);
            assert_eq!(left, Ok(()), "{kind}");
            assert!(was_hung, "{kind}");
            assert_eq!(syncing.join().unwrap().unwrap(), None, "{kind}");
        });
    }
}
