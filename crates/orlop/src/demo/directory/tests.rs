#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::time::SystemTime;

use super::*;

/// A directory as `mktemp -d` makes it, some hours ago.
fn make(parent: &Path, name: &str, files: &[&str]) -> PathBuf {
    let path = parent.join(name);
    std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
    for file in files {
        std::fs::write(path.join(file), "").unwrap();
    }
    let old = SystemTime::now() - 100 * TIME_TO_LOCK;
    File::open(&path).unwrap().set_modified(old).unwrap();
    path
}

#[test]
fn only_what_a_demo_made_is_abandoned() {
    let parent = tempfile::tempdir().unwrap();
    let found = |name: &str, files: &[&str]| abandoned(&make(parent.path(), name, files));
    assert_eq!(found("orlop-demo.0123abcd", &[LOCK, "pool"]), Some(Abandoned::Locked));
    assert_eq!(found("orlop-demo.0123abce", &[]), Some(Abandoned::Empty));
    assert_eq!(found("orlop-demo.0123abcf", &[LOCK, KEPT]), None);
    // Of other programs, or of a person.
    assert_eq!(found("orlop-demo.01234567", &["notes"]), None);
    for name in ["orlop-demo.XyZ1", "orlop-demo.0123ABCD", "orlop-demo.0123abcd.bak", "other"] {
        assert_eq!(found(name, &[LOCK, "notes"]), None, "{name}");
    }
}

/// A demo that has just made its directory has not locked it yet.
#[test]
fn a_new_empty_directory_is_not_abandoned() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("orlop-demo.0123abcd");
    std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
    assert_eq!(abandoned(&path), None);
}
