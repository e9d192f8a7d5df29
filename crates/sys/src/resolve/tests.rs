#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use rustix::io::Errno;

use super::*;
use crate::testbed::scratch;

fn open_errno(path: &Path) -> Option<Errno> {
    open_existing("open", path, OFlags::PATH).unwrap_err().errno()
}

#[test]
fn final_symlink_is_refused_parent_symlink_followed() {
    let dir = scratch();
    std::fs::create_dir(dir.path().join("real")).unwrap();
    std::fs::write(dir.path().join("real/file"), "x").unwrap();
    symlink("real", dir.path().join("link")).unwrap();

    assert_eq!(open_errno(&dir.path().join("link")), Some(Errno::LOOP));
    let through = open_existing("open", &dir.path().join("link/file"), OFlags::PATH).unwrap();
    assert_eq!(path_of(&through), dir.path().canonicalize().unwrap().join("real/file"));
}

/// As udev makes it for a device.
#[test]
fn name_of_a_device_may_be_a_link() {
    let dir = scratch();
    let name = dir.path().join("name");
    symlink("/dev/null", &name).unwrap();
    let node = open_device("open", &name, OFlags::PATH).unwrap();
    assert_eq!(path_of(&node), Path::new("/dev/null"));
}

#[test]
fn magic_links_of_proc_are_refused() {
    let dir = scratch();
    let opened = std::fs::File::open(dir.path()).unwrap();
    let magic = descriptor_path(opened.as_fd()).join("file");
    assert_eq!(open_errno(&magic), Some(Errno::LOOP));
}

#[test]
fn a_path_must_end_in_a_name() {
    for path in ["/", "..", "/tmp/.."] {
        assert!(ResolvedPath::of("open", Path::new(path)).is_err(), "{path}");
    }
}

#[test]
fn bare_name_is_relative_to_the_working_directory() {
    assert_eq!(parent_of(Path::new("name")), Path::new("."));
    assert_eq!(parent_of(Path::new("/name")), Path::new("/"));
}
