#![allow(clippy::unwrap_used)]

use super::*;
use crate::Error;
use crate::file::allocated_bytes;
use crate::testbed::{Disk, MIB, Mounted, SMALL, Silent, answered, root, scratch};

#[test]
fn a_uuid_is_written_the_usual_way() {
    let uuid = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xFF];
    assert_eq!(hyphenated(uuid), "00010203-0405-0607-0809-0a0b0c0d0eff");
}

#[test]
fn extended_options_are_gathered_in_one() {
    let extra = ["-E", "stride=4", "-i", "65536", "-Eresize=1g"].map(str::to_owned);
    let arguments = ext4_arguments("U", &extra);
    let text: Vec<_> = arguments.iter().map(|argument| argument.to_str().unwrap()).collect();
    assert_eq!(text.iter().filter(|argument| argument.starts_with("-E")).count(), 1);
    assert!(text.iter().any(|argument| argument.ends_with(",stride=4,resize=1g")), "{text:?}");
    assert!(text.ends_with(&["-i", "65536"]), "{text:?}");
}

/// With -U it would read all block devices of the machine.
#[test]
fn mkfs_btrfs_does_not_scan_other_devices() {
    let arguments = btrfs_arguments(&["-L".to_owned(), "label".to_owned()]);
    let text: Vec<_> = arguments.iter().map(|argument| argument.to_str().unwrap()).collect();
    assert_eq!(text, ["-f", "-q", "-K", "-L", "label"]);
}

#[test]
fn a_fresh_filesystem_takes_little_space_and_mounts() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let dir = scratch();
        let disk = Disk::formatted(dir.path(), 8 << 30, kind);
        let taken = allocated_bytes(&disk.image).unwrap();
        assert!(taken < 80 * MIB, "{kind} takes {taken}");
        let mounted = Mounted::new(&disk, kind, dir.path().join("mnt"), &[]);
        std::fs::write(mounted.point.join("file"), "x").unwrap();
    }
}

#[test]
fn a_preallocated_image_keeps_its_blocks() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let dir = scratch();
        let disk = Disk::new(dir.path(), SMALL);
        let image = std::fs::File::options().write(true).open(&disk.image).unwrap();
        crate::file::preallocate(&image, 0, SMALL).unwrap();
        format(&disk.path(), &Format { kind, uuid: [1; 16], extra_options: &[] }).unwrap();
        assert!(allocated_bytes(&disk.image).unwrap() >= SMALL, "{kind}");
    }
}

#[test]
fn extra_options_reach_mkfs_and_errors_the_caller() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), SMALL);
    for (kind, options) in [
        (FsKind::Ext4, ["-L", "label"]),
        (FsKind::Xfs, ["-L", "label"]),
        (FsKind::Btrfs, ["-L", "label"]),
    ] {
        let extra_options = options.map(str::to_owned);
        let uuid = crate::rand::random_bytes().unwrap();
        format(&disk.path(), &Format { kind, uuid, extra_options: &extra_options }).unwrap();
        let head = std::fs::read(disk.path()).unwrap();
        assert!(head[..128 << 10].windows(5).any(|bytes| bytes == b"label"), "{kind}");

        let extra_options = ["--no-such-option".to_owned()];
        let refused = format(&disk.path(), &Format { kind, uuid, extra_options: &extra_options });
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Tool { .. }), "{error}");
        assert!(error.to_string().contains(kind.mkfs()), "{error}");
    }
}

#[test]
fn formatting_may_be_repeated_and_replaces_any_other_kind() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), SMALL);
    let uuid = crate::rand::random_bytes().unwrap();
    for kind in [FsKind::ALL, FsKind::ALL].concat() {
        for _ in 0..2 {
            format(&disk.path(), &Format { kind, uuid, extra_options: &[] }).unwrap();
            let expected = Signature::Filesystem { kind, uuid, needs_check: false };
            assert_eq!(probe(&disk.path()).unwrap(), expected);
        }
    }
    let mounted = Mounted::new(&disk, FsKind::Btrfs, dir.path().join("mnt"), &[]);
    let again = Format { kind: FsKind::Ext4, uuid, extra_options: &[] };
    assert!(format(&disk.path(), &again).unwrap_err().is_busy());
    std::fs::write(mounted.point.join("file"), "x").unwrap();
}

/// mkfs.btrfs asks for the file behind each loop device in the list of mounts, and mkfs.xfs for each mount point whose
/// source begins with a slash.
#[test]
fn formatting_waits_for_no_other_mounted_disk() {
    if !root() {
        return;
    }
    let dir = scratch();
    let hung = dir.path().join("hung");
    std::fs::create_dir(&hung).unwrap();
    let other = Disk::formatted(&hung, SMALL, FsKind::Ext4);
    let _mounted = Mounted::new(&other, FsKind::Ext4, dir.path().join("mnt"), &[]);
    let disk = Disk::new(dir.path(), SMALL);
    let _silent = Silent::new(hung);
    for kind in FsKind::ALL {
        let device = disk.path();
        let uuid = crate::rand::random_bytes().unwrap();
        let formatted =
            answered(move || super::format(&device, &Format { kind, uuid, extra_options: &[] }));
        formatted.unwrap();
    }
}

/// As the image of a managed pool, and templates in it, are.
#[test]
fn image_on_a_loop_device_can_be_formatted() {
    if !root() {
        return;
    }
    let dir = scratch();
    let outer = Disk::formatted(dir.path(), 4 * SMALL, FsKind::Ext4);
    let mounted = Mounted::new(&outer, FsKind::Ext4, dir.path().join("mnt"), &[]);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&mounted.point, &link).unwrap();
    for kind in FsKind::ALL {
        let image = link.join(kind.mkfs());
        std::fs::File::create_new(&image).unwrap().set_len(SMALL).unwrap();
        let uuid = crate::rand::random_bytes().unwrap();
        format_within(Duration::from_secs(600), &image, &Format { kind, uuid, extra_options: &[] })
            .unwrap();
        assert_eq!(
            probe(&image).unwrap(),
            Signature::Filesystem { kind, uuid, needs_check: false }
        );
    }
}
