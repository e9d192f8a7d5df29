#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;
use crate::file::{CloneOutcome, try_clone_file};
use crate::filesystem::FsKind;
use crate::testbed::{Volume, pattern, root};

fn file_in(dir: &Path, name: &str) -> File {
    File::options().read(true).write(true).create_new(true).open(dir.join(name)).unwrap()
}

#[test]
fn files_with_and_without_checksums_are_cloned_alike() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Btrfs);
    for from_in_place in [false, true] {
        for to_in_place in [false, true] {
            let file = |name: &str, in_place: bool| {
                let name = format!("{name}-{from_in_place}-{to_in_place}");
                let file = file_in(volume.root(), &name);
                set(&file, in_place).unwrap();
                file
            };
            let source = file("source", from_in_place);
            source.write_all_at(&pattern(1, 1 << 20), 0).unwrap();
            let target = file("target", to_in_place);
            assert_eq!(try_clone_file(&source, &target).unwrap(), CloneOutcome::Shared);
            assert_eq!(is_overwritten_in_place(&target).unwrap(), from_in_place);
        }
    }
}

/// As `chattr +c` makes a directory, so that new files in it are compressed.
#[test]
fn compressed_directory_does_not_prevent_in_place_mode() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Btrfs);
    let directory = File::open(volume.root()).unwrap();
    ioctl_setflags(&directory, flags(&directory).unwrap() | IFlags::COMPRESSED).unwrap();
    for in_place in [true, false] {
        let file = file_in(volume.root(), &format!("file-{in_place}"));
        assert!(flags(&file).unwrap().contains(IFlags::COMPRESSED));
        assert!(try_set(&file, in_place).unwrap());
        assert_eq!(is_overwritten_in_place(&file).unwrap(), in_place);
        assert!(!flags(&file).unwrap().contains(IFlags::COMPRESSED));
    }
}

#[test]
fn file_with_data_keeps_its_in_place_mode() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Btrfs);
    let file = file_in(volume.root(), "file");
    assert!(try_set(&file, true).unwrap());
    file.write_all_at(b"something", 0).unwrap();
    assert!(!try_set(&file, false).unwrap());
    assert!(is_overwritten_in_place(&file).unwrap());
}
