#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use super::*;

#[derive(Default)]
struct Found {
    lines: Vec<String>,
    visited: usize,
}

impl Visitor for Found {
    fn found(&mut self, it: Difference) -> Result<()> {
        let path = escaped(&it.path);
        self.lines.push(format!("{:?} {:?} {path} {}", it.what, it.kind, it.respects.join(",")));
        Ok(())
    }

    fn visited(&mut self) {
        self.visited += 1;
    }
}

fn compared(old: &Path, new: &Path) -> Vec<String> {
    let mut found = Found::default();
    compare(old, new, &mut found, &StopFlag::default()).unwrap();
    assert!(found.visited > 0);
    found.lines
}

fn set_time(path: &Path, seconds: u64) {
    let file = fs::File::open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

/// Two directories with one file each in which nothing differs.
fn pair() -> (tempfile::TempDir, [std::path::PathBuf; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let sides = ["old", "new"].map(|name| directory.path().join(name));
    for side in &sides {
        fs::create_dir(side).unwrap();
        fs::write(side.join("same"), "as it was").unwrap();
        set_time(&side.join("same"), 1);
    }
    (directory, sides)
}

#[test]
fn files_that_are_equal_are_not_listed() {
    let (_directory, [old, new]) = pair();
    assert_eq!(compared(&old, &new), Vec::<String>::new());
    // An inode that was not touched is not even read.
    assert_eq!(compared(&old, &old), Vec::<String>::new());
}

#[test]
fn each_respect_is_named() {
    let (_directory, [old, new]) = pair();
    for side in [&old, &new] {
        for name in ["contents", "longer", "mode", "time"] {
            fs::write(side.join(name), "12345").unwrap();
            set_time(&side.join(name), 7);
        }
        symlink("here", side.join("unchanged-link")).unwrap();
    }
    // The time says that nothing was written.
    fs::write(new.join("contents"), "54321").unwrap();
    set_time(&new.join("contents"), 7);
    fs::write(new.join("longer"), "123456").unwrap();
    set_time(&new.join("longer"), 7);
    fs::set_permissions(new.join("mode"), fs::Permissions::from_mode(0o4755)).unwrap();
    set_time(&new.join("time"), 8);
    let found: Vec<String> =
        compared(&old, &new).into_iter().filter(|line| !line.contains("-link")).collect();
    assert_eq!(
        found,
        [
            "Changed File contents contents",
            "Changed File longer size,contents",
            "Changed File mode mode",
            "Changed File time mtime",
        ]
    );
}

#[test]
fn trees_are_listed_in_order_and_links_are_not_followed() {
    let (_directory, [old, new]) = pair();
    fs::create_dir_all(old.join("gone/deep")).unwrap();
    fs::write(old.join("gone/deep/file"), "x").unwrap();
    fs::create_dir(new.join("added")).unwrap();
    symlink("/etc", new.join("added/link")).unwrap();
    fs::write(old.join("replaced"), "x").unwrap();
    fs::create_dir(new.join("replaced")).unwrap();
    fs::write(new.join("replaced/inner"), "x").unwrap();
    assert_eq!(
        compared(&old, &new),
        [
            "Added Directory added ",
            "Added Link added/link ",
            "Removed Directory gone ",
            "Removed Directory gone/deep ",
            "Removed File gone/deep/file ",
            "Removed File replaced ",
            "Added Directory replaced ",
            "Added File replaced/inner ",
        ]
    );
}

#[test]
fn a_tree_that_is_too_deep_is_refused() {
    let (_directory, [old, new]) = pair();
    let deep = vec!["d"; MAX_DEPTH + 1].join("/");
    fs::create_dir_all(new.join(deep)).unwrap();
    let failure = compare(&old, &new, &mut Found::default(), &StopFlag::default()).unwrap_err();
    assert!(failure.to_string().contains("nested deeper"), "{failure}");
}
