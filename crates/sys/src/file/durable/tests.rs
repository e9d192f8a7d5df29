#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::filesystem::FsKind;
use crate::testbed::{Disk, MIB, Volume, root, scratch};

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

type Replace = fn(&Path, &str, &[u8]) -> Result<()>;
const BOTH: [Replace; 2] = [replace_file, replace_file_until_reboot];

#[test]
fn replace_creates_or_replaces_and_leaves_nothing_else() {
    for replace in BOTH {
        let dir = scratch();
        replace(dir.path(), "record", b"first, and long").unwrap();
        replace(dir.path(), "record", b"second").unwrap();
        assert_eq!(std::fs::read(dir.path().join("record")).unwrap(), b"second");
        assert_eq!(names(dir.path()), ["record"]);
        let mode = std::fs::metadata(dir.path().join("record")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn temporary_file_of_a_crash_is_reused() {
    for replace in BOTH {
        let dir = scratch();
        std::fs::write(dir.path().join(".record.new"), "half of something much longer").unwrap();
        replace(dir.path(), "record", b"whole").unwrap();
        assert_eq!(std::fs::read(dir.path().join("record")).unwrap(), b"whole");
        assert_eq!(names(dir.path()), ["record"]);
    }
}

#[test]
fn writers_of_one_name_do_not_mix() {
    let dir = scratch();
    std::thread::scope(|scope| {
        for writer in 0_u8..8 {
            let path = dir.path();
            scope.spawn(move || {
                let contents = vec![writer; 1000 + usize::from(writer) * 5000];
                for _ in 0..10 {
                    replace_file(path, "record", &contents).unwrap();
                    let read = std::fs::read(path.join("record")).unwrap();
                    let length = 1000 + usize::from(read[0]) * 5000;
                    assert!(read.len() == length && read.iter().all(|byte| *byte == read[0]));
                }
            });
        }
    });
    assert_eq!(names(dir.path()), ["record"]);
}

#[test]
fn creating_never_overwrites() {
    let dir = scratch();
    for (name, create) in [
        ("durable", create_file_durable as fn(&Path, &[u8]) -> Result<()>),
        ("written out", create_file_written_out),
    ] {
        let path = dir.path().join(name);
        create(&path, b"mine").unwrap();
        sync_dir(dir.path()).unwrap();
        let error = create(&path, b"yours").unwrap_err();
        assert_eq!(error.errno(), Some(Errno::EXIST));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}

#[test]
fn renaming_never_replaces() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    for name in ["staging", "volumes", "staging/a", "staging/b"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    std::fs::write(at("staging/a/data"), "a").unwrap();
    let renamed = rename_new(&at("staging/a"), &at("volumes/v")).unwrap();
    assert_eq!(renamed, RenameOutcome::Renamed);
    assert_eq!(std::fs::read(at("volumes/v/data")).unwrap(), b"a");

    let refused = rename_new(&at("staging/b"), &at("volumes/v")).unwrap();
    assert_eq!(refused, RenameOutcome::TargetExists);
    assert!(at("staging/b").exists() && at("volumes/v/data").exists());
    assert!(rename_new(&at("staging/c"), &at("volumes/w")).unwrap_err().is_not_found());
}

#[test]
fn sync_failure_is_reported() {
    let dir = scratch();
    assert!(sync_dir(&dir.path().join("missing")).unwrap_err().is_not_found());
    std::fs::write(dir.path().join("file"), "x").unwrap();
    let error = sync_dir(&dir.path().join("file")).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NOTDIR));
}

#[test]
fn a_synced_device_has_written_to_its_image() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), 8 * MIB);
    std::fs::write(disk.path(), vec![9; 8192]).unwrap();
    sync_device(&disk.path()).unwrap();
    assert_eq!(std::fs::read(&disk.image).unwrap()[..8192], [9; 8192]);
}

#[test]
fn a_synced_filesystem_has_allocated_what_was_written() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let path = volume.root().join("file");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    sync_filesystem(volume.root()).unwrap();
    let on_device = File::open(&path).unwrap();
    assert!(super::super::extent_count(&on_device).unwrap() > 0);
}
