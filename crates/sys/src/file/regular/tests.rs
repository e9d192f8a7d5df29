#![allow(clippy::unwrap_used)]

use std::io::Write;

use super::*;
use crate::abi::{Lease, take_lease};
use crate::testbed::{answered, scratch};
use crate::tool;

#[test]
fn only_a_regular_file_is_opened_by_its_name() {
    let dir = scratch();
    let [file, link, pipe] = ["file", "link", "pipe"].map(|name| dir.path().join(name));
    std::fs::write(&file, "before").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    tool::run("mkfifo", [&pipe]).unwrap();
    open_regular(&file, FileAccess::ReadWrite).unwrap().write_all(b"after").unwrap();
    for access in [FileAccess::Read, FileAccess::ReadWrite] {
        open_regular(&link, access).unwrap_err();
        let pipe = pipe.clone();
        assert!(answered(move || open_regular(&pipe, access)).unwrap_err().is_refusal());
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"aftere");
}

#[test]
fn a_lease_is_not_waited_for() {
    let dir = scratch();
    let path = dir.path().join("file");
    std::fs::write(&path, "contents").unwrap();
    let holder = File::open(&path).unwrap();
    take_lease(&holder, Lease::Read).unwrap();
    open_regular(&path, FileAccess::Read).unwrap();
    let leased = path.clone();
    let refused = answered(move || open_regular(&leased, FileAccess::ReadWrite)).unwrap_err();
    assert_eq!(refused.leased_file(), Some(path.as_path()));
    drop(holder);
    open_regular(&path, FileAccess::ReadWrite).unwrap();
}
