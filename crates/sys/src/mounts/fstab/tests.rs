use std::os::unix::fs::symlink;

use super::*;
use crate::testbed::{Silent, answered, root, scratch};

#[test]
fn missing_fstab_mount_is_found_at_and_above_the_path() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap();
    let disk = root.join("a disk");
    std::fs::create_dir(&disk).unwrap();
    let name = disk.to_str().unwrap().replace(' ', "\\040");
    let fstab = format!(
        "# {name} xfs\n/dev/sda1 / ext4 defaults 0 1\n/dev/sda2 none swap sw 0 0\n\n\
         proc /proc proc defaults 0 0\n  LABEL=pool\t{name}\txfs  nofail 0 2\n"
    );
    let missing = |path: &Path| unmounted_in(fstab.as_bytes(), path).unwrap();
    assert_eq!(missing(&disk), Some(disk.clone()));
    assert_eq!(missing(&disk.join("not/there/yet")), Some(disk.clone()));
    assert_eq!(missing(&root.join("a disk beside")), None);
    assert_eq!(missing(Path::new("/proc/self")), None);

    let link = root.join("link");
    symlink(&disk, &link).unwrap();
    assert_eq!(missing(&link.join("pool")), Some(disk));
}

#[test]
fn links_in_a_mount_point_of_fstab_are_followed() {
    let scratch = scratch();
    let root = scratch.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("disks/one")).unwrap();
    symlink("disks", root.join("beside")).unwrap();
    symlink(root.join("beside/../beside/one"), root.join("absolute")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let missing = |point: &str| {
        let fstab = format!("LABEL=pool {} xfs nofail 0 2\n", root.join(point).display());
        unmounted_in(fstab.as_bytes(), &root.join("disks/one/pool")).unwrap()
    };
    for point in ["disks/one", "beside/one", "absolute", "beside/./one/"] {
        assert_eq!(missing(point), Some(root.join("disks/one")), "{point}");
    }
    assert_eq!(missing("beside/two"), None);
    assert_eq!(missing("loop"), None);
}

#[test]
fn dead_server_in_fstab_is_not_contacted() {
    if !root() {
        return;
    }
    let scratch = scratch();
    let silent = Silent::new(scratch.path().canonicalize().unwrap().join("silent"));
    let link = scratch.path().join("link");
    symlink(silent.point.join("below"), &link).unwrap();
    let points = [silent.point.clone(), silent.point.join("below"), link.join("further")];
    let lines =
        points.map(|point| format!("server:/export {} nfs defaults 0 0\n", point.display()));
    let (fstab, pool) = (lines.concat(), scratch.path().join("pool"));
    let found = answered(move || unmounted_in(fstab.as_bytes(), &pool));
    assert_eq!(found.unwrap(), None);
}
