#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::*;
use crate::file::{CloneOutcome, remove_tree, try_clone_file};
use crate::filesystem::FsKind;
use crate::testbed::{Volume, pattern, root, scratch};

#[test]
fn a_subvolume_is_made_snapshotted_and_deleted() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Btrfs);
    let (live, kept) = (volume.root().join("live"), volume.root().join("kept"));
    create_subvolume(&live).unwrap();
    assert!(is_subvolume(&live).unwrap());
    assert_eq!(create_subvolume(&live).unwrap_err().errno(), Some(Errno::EXIST));

    let contents = pattern(1, 1 << 20);
    std::fs::write(live.join("data"), &contents).unwrap();
    std::fs::create_dir(live.join("directory")).unwrap();
    snapshot_subvolume(&live, &kept).unwrap();
    assert!(is_subvolume(&kept).unwrap());
    assert_eq!(snapshot_subvolume(&live, &kept).unwrap_err().errno(), Some(Errno::EXIST));
    std::fs::write(live.join("data"), "other").unwrap();
    assert!(std::fs::read(kept.join("data")).unwrap() == contents);

    let refused = std::fs::write(kept.join("data"), "no").unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::ROFS));
    let clone = File::create(volume.root().join("clone")).unwrap();
    let kept_data = File::open(kept.join("data")).unwrap();
    assert_eq!(try_clone_file(&kept_data, &clone).unwrap(), CloneOutcome::Shared);

    // Also with a file of it still open.
    for _ in 0..2 {
        delete_subvolume(&kept).unwrap();
        assert!(!kept.exists());
    }
    let mut head = [0; 4];
    kept_data.read_exact_at(&mut head, 0).unwrap();
    assert_eq!(head, contents[..4]);
    delete_subvolume(&live).unwrap();
    assert!(!live.exists());
}

#[test]
fn plain_directory_is_not_a_subvolume() {
    if !root() {
        return;
    }
    let btrfs = Volume::new(FsKind::Btrfs);
    assert!(is_subvolume(btrfs.root()).unwrap(), "the top level is one");
    let directory = btrfs.root().join("directory");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(btrfs.root().join("file"), "").unwrap();
    assert!(!is_subvolume(&directory).unwrap());
    assert!(!is_subvolume(&btrfs.root().join("file")).unwrap());
    assert!(is_subvolume(&btrfs.root().join("missing")).unwrap_err().is_not_found());
    assert!(snapshot_subvolume(&directory, &btrfs.root().join("copy")).is_err());
    assert!(delete_subvolume(&directory).is_err());
    assert!(directory.exists());
    delete_subvolume(&btrfs.root().join("missing/deeper")).unwrap();

    let xfs = Volume::new(FsKind::Xfs);
    assert!(!is_subvolume(xfs.root()).unwrap());
    let refused = create_subvolume(&xfs.root().join("subvolume")).unwrap_err();
    assert_eq!(refused.errno(), Some(Errno::NOTTY));
}

#[test]
fn subvolume_with_a_child_is_not_deleted() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Btrfs);
    let (outer, inner) = (volume.root().join("outer"), volume.root().join("outer/inner"));
    create_subvolume(&outer).unwrap();
    create_subvolume(&inner).unwrap();
    assert_eq!(delete_subvolume(&outer).unwrap_err().errno(), Some(Errno::NOTEMPTY));
    delete_subvolume(&inner).unwrap();
    delete_subvolume(&outer).unwrap();
}

#[test]
fn final_symlink_is_not_followed() {
    if !root() {
        return;
    }
    let (volume, dir) = (Volume::new(FsKind::Btrfs), scratch());
    let (live, link) = (volume.root().join("live"), dir.path().join("link"));
    create_subvolume(&live).unwrap();
    std::os::unix::fs::symlink(&live, &link).unwrap();
    assert_eq!(is_subvolume(&link).unwrap_err().errno(), Some(Errno::LOOP));
    assert!(snapshot_subvolume(&link, &volume.root().join("copy")).is_err());
    assert!(delete_subvolume(&link).is_err());
    assert!(live.exists());
    let too_long = volume.root().join("n".repeat(256));
    assert_eq!(create_subvolume(&too_long).unwrap_err().errno(), Some(Errno::NAMETOOLONG));
    remove_tree(&link).unwrap();
}
