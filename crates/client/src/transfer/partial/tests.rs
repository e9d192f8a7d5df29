#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};

use super::*;

fn entries(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        names.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn two_exports_to_one_file_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("backup");
    let mut first = Partial::create(&target).unwrap();
    assert!(Partial::create(&target).unwrap_err().contains("another export"));
    first.file.write_all(b"first").unwrap();
    first.finish(false).unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), b"first");
    assert_eq!(target.metadata().unwrap().mode() & 0o777, 0o600);
    let second = Partial::create(&target).unwrap();
    assert!(second.finish(false).unwrap_err().contains("--overwrite"));
    assert_eq!(entries(dir.path()), ["backup"]);
}

#[test]
fn what_an_interrupted_export_left_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("backup");
    let left = dir.path().join(".backup.partial");
    std::fs::write(&left, "torn").unwrap();
    let old = File::open(&left).unwrap();
    let new = Partial::create(&target).unwrap();
    // Another program that has the old one open sees nothing of the new one.
    assert!(!file::is_still_at(&left, &old).unwrap());
    assert_eq!(new.file.metadata().unwrap().len(), 0);
    drop(new);
    assert!(entries(dir.path()).is_empty());
}

/// As a program does that cleans up what it takes for temporary.
#[test]
fn a_file_that_took_its_place_does_not_become_the_export() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("backup");
    std::fs::write(&target, "older").unwrap();
    let first = Partial::create(&target).unwrap();
    std::fs::remove_file(&first.path).unwrap();
    let mut second = Partial::create(&target).unwrap();
    second.file.write_all(b"half").unwrap();
    assert!(first.finish(true).unwrap_err().contains("export it again"));
    assert_eq!(std::fs::read(&target).unwrap(), b"older");
    assert_eq!(entries(dir.path()), [".backup.partial", "backup"]);
    second.finish(true).unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), b"half");
}

#[test]
fn what_is_not_a_file_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    symlink("nowhere", &link).unwrap();
    for target in [Path::new("/dev/null"), dir.path(), &link] {
        assert!(refuse_other_than_file(target).is_err(), "{}", target.display());
    }
    assert!(refuse_other_than_file(&dir.path().join("new")).is_ok());
}
