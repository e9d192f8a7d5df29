use super::*;

#[test]
fn a_missing_mount_is_found_at_and_above_the_path() {
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
    std::os::unix::fs::symlink(&disk, &link).unwrap();
    assert_eq!(missing(&link.join("pool")), Some(disk));
}
