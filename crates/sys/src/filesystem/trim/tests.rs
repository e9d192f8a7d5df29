#![allow(clippy::unwrap_used)]

use std::fs::File;

use rustix::io::Errno;

use super::*;
use crate::file::{allocated_bytes, set_length, sync_filesystem};
use crate::filesystem::FsKind;
use crate::loopdev::disable_discard;
use crate::testbed::{Disk, MIB, Mounted, SMALL, Volume, root, scratch};

/// Cut off, not removed: XFS takes its time to free what a removed file had.
#[test]
fn trim_shrinks_the_image_before_it_returns() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let volume = Volume::new(kind);
        let path = volume.root().join("file");
        for round in 0..3 {
            std::fs::write(&path, vec![7; 64 << 20]).unwrap();
            sync_filesystem(volume.root()).unwrap();
            let full = allocated_bytes(&volume.disk.image).unwrap();
            set_length(&File::options().write(true).open(&path).unwrap(), 0).unwrap();
            sync_filesystem(volume.root()).unwrap();

            assert!(trim(volume.root()).unwrap() >= 64 * MIB, "{kind}");
            let trimmed = allocated_bytes(&volume.disk.image).unwrap();
            assert!(trimmed + 60 * MIB < full, "{kind}, round {round}: {full} {trimmed}");
        }
    }
}

#[test]
fn a_device_without_discards_cannot_be_trimmed() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let dir = scratch();
        let disk = Disk::formatted(dir.path(), SMALL, kind);
        disable_discard(&disk.device).unwrap();
        let mounted = Mounted::new(&disk, kind, dir.path().join("mnt"), &[]);
        let refused = trim(&mounted.point).unwrap_err();
        assert_eq!(refused.errno(), Some(Errno::OPNOTSUPP), "{kind}");
    }
}
