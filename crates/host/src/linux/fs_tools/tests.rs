use super::*;

use FsType::{Btrfs, Ext4, Xfs};

#[test]
fn default_filesystem_first_then_by_preference() {
    let all = [Btrfs, Ext4, Xfs];
    assert_eq!(default_first(&all, None).unwrap(), [Xfs, Ext4, Btrfs]);
    assert_eq!(default_first(&all, Some(Btrfs)).unwrap(), [Btrfs, Xfs, Ext4]);
    assert_eq!(default_first(&[Btrfs, Ext4, Ext4], None).unwrap(), [Ext4, Btrfs]);
    assert_eq!(default_first(&[], None).unwrap(), []);
}

#[test]
fn default_filesystem_must_be_offered() {
    let error = default_first(&[Ext4], Some(Xfs)).unwrap_err().to_string();
    assert!(error.contains("xfs") && error.contains("ORLOP_FILESYSTEMS"), "{error}");
}

#[test]
fn empty_filesystem_list_is_allowed() {
    let tools = FsTools::choose(Some(Vec::new()), None).unwrap();
    assert!(tools.filesystems().is_empty());
    tools.check_tools().unwrap();
}

#[test]
fn installed_filesystems_are_offered() {
    let tools = FsTools::choose(None, None).unwrap();
    let installed: Vec<FsType> = FsType::ALL.into_iter().filter(|fs| is_installed(*fs)).collect();
    assert_eq!(tools.filesystems(), installed);
    tools.check_tools().unwrap();
}
