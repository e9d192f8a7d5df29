use super::*;

use FsType::{Btrfs, Ext4, Xfs};

#[test]
fn the_default_comes_first_and_the_rest_in_order_of_preference() {
    let all = [Btrfs, Ext4, Xfs];
    assert_eq!(default_first(&all, None).unwrap(), [Xfs, Ext4, Btrfs]);
    assert_eq!(default_first(&all, Some(Btrfs)).unwrap(), [Btrfs, Xfs, Ext4]);
    assert_eq!(default_first(&[Btrfs, Ext4, Ext4], None).unwrap(), [Ext4, Btrfs]);
    assert_eq!(default_first(&[], None).unwrap(), []);
}

#[test]
fn a_default_that_is_not_offered_is_a_mistake() {
    let error = default_first(&[Ext4], Some(Xfs)).unwrap_err().to_string();
    assert!(error.contains("xfs") && error.contains("ORLOP_FILESYSTEMS"), "{error}");
}

#[test]
fn none_is_a_choice() {
    let tools = FsTools::choose(Some(Vec::new()), None).unwrap();
    assert!(tools.filesystems().is_empty());
    tools.check_tools().unwrap();
}

#[test]
fn what_is_installed_is_offered() {
    let tools = FsTools::choose(None, None).unwrap();
    let installed: Vec<FsType> = FsType::ALL.into_iter().filter(|fs| is_installed(*fs)).collect();
    assert_eq!(tools.filesystems(), installed);
    tools.check_tools().unwrap();
}
