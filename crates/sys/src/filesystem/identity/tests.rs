#![allow(clippy::unwrap_used)]

use super::super::{Signature, fits_device, probe};
use super::*;
use crate::file::{copy_sparse, sync_file};
use crate::testbed::{Disk, Mounted, SMALL, root, scratch};
use crate::tool;

fn check(kind: FsKind, image: &Path) {
    let (program, arguments): (_, &[&str]) = match kind {
        FsKind::Ext4 => ("e2fsck", &["-f", "-n"]),
        FsKind::Xfs => ("xfs_repair", &["-n", "-f"]),
        FsKind::Btrfs => ("btrfs", &["check"]),
    };
    let arguments = arguments.iter().map(Path::new).chain([image]);
    tool::run(program, arguments).unwrap();
}

/// Two copies of one template are used beside each other, as two volumes are.
#[test]
fn copies_are_whole_and_live_side_by_side() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let dir = scratch();
        let template = dir.path().join("template");
        File::create_new(&template).unwrap().set_len(SMALL).unwrap();
        format_template(&template, kind).unwrap();
        let template = File::open(&template).unwrap();

        let copies = ["one", "two"].map(|name| {
            let image = dir.path().join(name);
            let copy = File::options().read(true).write(true).create_new(true).open(&image);
            let copy = copy.unwrap();
            copy_sparse(&template, &copy).unwrap();
            let uuid = random_bytes().unwrap();
            renew_identity(&copy, kind, uuid).unwrap();
            sync_file(&copy).unwrap();
            let expected = Signature::Filesystem { kind, uuid, needs_check: false };
            assert_eq!(probe(&image).unwrap(), expected, "{kind}");
            check(kind, &image);
            Disk::attach(&image, false)
        });
        // XFS without nouuid: the kernel itself sees two filesystems.
        let mounted = [("a", &copies[0]), ("b", &copies[1])]
            .map(|(at, disk)| Mounted::new(disk, kind, dir.path().join(at), &[]));
        for (mounted, disk) in mounted.iter().zip(&copies) {
            let own = disk.path().to_string_lossy().into_owned();
            std::fs::write(mounted.point.join("name"), &own).unwrap();
            assert!(fits_device(&mounted.point, &disk.path(), kind).unwrap(), "{kind}");
        }
        for (mounted, disk) in mounted.iter().zip(&copies) {
            let own = std::fs::read_to_string(mounted.point.join("name")).unwrap();
            assert_eq!(own, disk.path().to_string_lossy(), "{kind}");
        }
        drop(mounted);
        for disk in copies {
            let image = disk.image.clone();
            drop(disk);
            check(kind, &image);
        }
    }
}

#[test]
fn refused_mkfs_option_is_dropped_but_a_hang_is_not_retried() {
    let after = |errno| {
        let mut failures =
            vec![crate::Error::Call { operation: "run", path: "mkfs".into(), errno }];
        let mut attempts = 0;
        let outcome = format_ext4(|_| {
            attempts += 1;
            failures.pop().map_or(Ok(()), Err)
        });
        (attempts, outcome.is_ok())
    };
    assert_eq!(after(Errno::IO), (2, true));
    assert_eq!(after(Errno::TIMEDOUT), (1, false));
}

#[test]
fn another_kind_is_refused() {
    if !root() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("image");
    File::create_new(&image).unwrap().set_len(SMALL).unwrap();
    format_template(&image, FsKind::Ext4).unwrap();
    let before = std::fs::read(&image).unwrap();
    let copy = File::options().read(true).write(true).open(&image).unwrap();
    for kind in [FsKind::Xfs, FsKind::Btrfs] {
        assert!(renew_identity(&copy, kind, [1; 16]).is_err(), "{kind}");
    }
    assert!(std::fs::read(&image).unwrap() == before);
}
