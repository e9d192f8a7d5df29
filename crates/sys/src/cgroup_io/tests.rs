#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::mounts::parse_mountinfo;
use crate::rand::random_bytes;
use crate::testbed::{Disk, MIB, root, scratch};

const SOME: Limits = Limits {
    read_iops: Some(100),
    write_iops: None,
    read_bytes_per_second: Some(1 << 20),
    write_bytes_per_second: Some(2 << 20),
};

/// A group of the host with one below it, removed in the end.
struct Groups {
    name: String,
    controller: IoController,
}

impl Groups {
    fn new() -> Self {
        let root = match IoController::detect("/").unwrap() {
            Some(IoController::V1 { group, .. } | IoController::V2 { group, .. }) => group,
            None => panic!("this host has no cgroup that limits I/O"),
        };
        let name = format!("orlop-test-{:08x}", u32::from_le_bytes(random_bytes().unwrap()));
        std::fs::create_dir_all(root.join(&name).join("below")).unwrap();
        let controller = IoController::detect(&name).unwrap().unwrap();
        Self { name, controller }
    }

    fn path(&self) -> &Path {
        match &self.controller {
            IoController::V1 { group, .. } | IoController::V2 { group, .. } => group,
        }
    }

    /// What the kernel says is set for the device.
    fn lines(&self, device: &str) -> Vec<String> {
        let files: Vec<PathBuf> = match &self.controller {
            IoController::V1 { group, .. } => [group.clone(), group.join("below")]
                .iter()
                .flat_map(|group| legacy_files(&SOME).map(|(file, _)| group.join(file)))
                .collect(),
            IoController::V2 { group, .. } => vec![group.join("io.max")],
        };
        let text: String =
            files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        text.lines().filter(|line| line.starts_with(device)).map(str::to_owned).collect()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(self.path().join("below"));
        let _ = std::fs::remove_dir(self.path());
    }
}

#[test]
fn limits_are_set_read_changed_and_removed() {
    if !root() {
        return;
    }
    let groups = Groups::new();
    let dir = scratch();
    let disk = Disk::new(dir.path(), MIB);
    let (major, minor) = disk.device.device_number().unwrap();
    let device = format!("{major}:{minor} ");
    let is_legacy = matches!(groups.controller, IoController::V1 { .. });

    for _ in 0..2 {
        groups.controller.apply(major, minor, &SOME).unwrap();
        let lines = groups.lines(&device);
        assert_eq!(lines.len(), if is_legacy { 6 } else { 1 }, "{lines:?}");
        for value in ["100", "1048576", "2097152"] {
            assert!(lines.iter().any(|line| line.contains(value)), "{value}: {lines:?}");
        }
    }
    let fewer = Limits { read_bytes_per_second: None, ..SOME };
    groups.controller.apply(major, minor, &fewer).unwrap();
    assert!(!groups.lines(&device).iter().any(|line| line.contains("1048576")));
    for _ in 0..2 {
        groups.controller.apply(major, minor, &Limits::default()).unwrap();
        assert_eq!(groups.lines(&device), [""; 0]);
    }
}

#[test]
fn missing_device_can_be_unlimited_but_not_limited() {
    if !root() {
        return;
    }
    // Not a loop device: a kernel with BLOCK_LEGACY_AUTOLOAD makes one when it is named.
    let (major, minor) = (259, 999_999);
    let groups = Groups::new();
    groups.controller.apply(major, minor, &Limits::default()).unwrap();
    let error = groups.controller.apply(major, minor, &SOME).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NODEV));
}

#[test]
fn vanished_cgroup_is_ignored() {
    if !root() {
        return;
    }
    let groups = Groups::new();
    let (controller, path) = (groups.controller.clone(), groups.path().to_owned());
    drop(groups);
    assert!(!path.exists());
    controller.apply(7, 0, &SOME).unwrap();
}

#[test]
fn cgroup_must_exist_below_the_root() {
    if !root() {
        return;
    }
    assert!(IoController::detect("no-such-group").unwrap_err().is_not_found());
    let groups = Groups::new();
    assert!(IoController::detect(&format!("../{}", groups.name)).is_err());
    assert_eq!(
        IoController::detect(&format!("/{}/", groups.name)).unwrap().unwrap(),
        groups.controller
    );
}

/// A cgroup2 tree as plain files: what is written to them is what the kernel would get.
struct Unified {
    dir: tempfile::TempDir,
}

impl Unified {
    fn new(controllers: &str) -> Self {
        let dir = scratch();
        for group in ["", "pods", "pods/one", "system"] {
            let path = dir.path().join(group);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("cgroup.controllers"), controllers).unwrap();
            std::fs::write(path.join("cgroup.subtree_control"), "").unwrap();
            if !group.is_empty() {
                std::fs::write(path.join("io.max"), "").unwrap();
            }
        }
        Self { dir }
    }

    fn detect(&self, group: &str) -> Result<Option<IoController>> {
        let at = self.dir.path().display();
        let text = format!("1 0 0:1 / {at} rw - cgroup2 none rw");
        IoController::detect_among(&parse_mountinfo(&text), group)
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(file)).unwrap()
    }
}

const LINE: &str = "7:3 rbps=1048576 wbps=2097152 riops=100 wiops=max";

#[test]
fn a_unified_group_is_limited_as_a_whole() {
    let tree = Unified::new("cpu io memory");
    let controller = tree.detect("pods").unwrap().unwrap();
    assert_eq!(tree.read("cgroup.subtree_control"), "+io");
    assert_eq!(tree.read("pods/cgroup.subtree_control"), "");
    controller.apply(7, 3, &SOME).unwrap();
    assert_eq!(tree.read("pods/io.max"), LINE);
    assert_eq!(tree.read("pods/one/io.max"), "");
    controller.apply(7, 4, &Limits::default()).unwrap();
    let free = "7:4 rbps=max wbps=max riops=max wiops=max";
    assert!(tree.read("pods/io.max").starts_with(free));
}

#[test]
fn at_the_unified_root_each_child_is_limited() {
    let tree = Unified::new("io");
    let controller = tree.detect("/").unwrap().unwrap();
    std::fs::create_dir(tree.dir.path().join("without-io")).unwrap();
    controller.apply(7, 3, &SOME).unwrap();
    assert_eq!(tree.read("pods/io.max"), LINE);
    assert_eq!(tree.read("system/io.max"), LINE);
    assert_eq!(tree.read("pods/one/io.max"), "");
}

#[test]
fn nested_cgroup_gets_the_controller_from_all_parents() {
    let tree = Unified::new("io");
    tree.detect("pods/one").unwrap().unwrap();
    assert_eq!(tree.read("cgroup.subtree_control"), "+io");
    assert_eq!(tree.read("pods/cgroup.subtree_control"), "+io");
    assert_eq!(tree.read("pods/one/cgroup.subtree_control"), "");
}

#[test]
fn unwritable_controller_counts_as_missing() {
    assert_eq!(Unified::new("cpu memory").detect("pods").unwrap(), None);
    assert_eq!(IoController::detect_among(&[], "/").unwrap(), None);
    let read_only = "1 0 0:1 / /nowhere ro - cgroup none rw,blkio";
    assert_eq!(IoController::detect_among(&parse_mountinfo(read_only), "/").unwrap(), None);
}
