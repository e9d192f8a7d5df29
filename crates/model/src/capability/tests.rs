#![allow(clippy::unwrap_used)]

use super::*;

fn mount(fs: Option<FsType>, mode: AccessMode) -> VolumeCapability {
    let access = MountAccess { fs, flags: MountFlags::default(), group: None };
    VolumeCapability { access: AccessType::Mount(access), mode }
}

fn block(mode: AccessMode) -> VolumeCapability {
    VolumeCapability { access: AccessType::Block, mode }
}

fn set(capabilities: &[VolumeCapability]) -> CapabilitySet {
    CapabilitySet::new(capabilities.to_vec()).unwrap()
}

use AccessMode::{
    MultiNodeMultiWriter, MultiNodeReaderOnly, SingleNodeMultiWriter, SingleNodeReaderOnly,
    SingleNodeSingleWriter, SingleNodeWriter,
};

#[test]
fn an_empty_set_and_two_filesystems_are_refused() {
    assert!(CapabilitySet::new(vec![]).is_err());
    let two = vec![
        mount(Some(FsType::Xfs), SingleNodeWriter),
        mount(Some(FsType::Ext4), SingleNodeWriter),
    ];
    assert!(CapabilitySet::new(two).is_err());
}

#[test]
fn single_writer_modes_are_equivalent() {
    for made in [SingleNodeWriter, SingleNodeSingleWriter, SingleNodeMultiWriter] {
        for wanted in [SingleNodeWriter, SingleNodeSingleWriter, SingleNodeMultiWriter] {
            assert!(made.grants(wanted), "{made:?} {wanted:?}");
        }
        assert!(made.grants(SingleNodeReaderOnly));
        assert!(!made.grants(MultiNodeReaderOnly));
        assert!(!made.grants(MultiNodeMultiWriter));
    }
    assert!(!SingleNodeReaderOnly.grants(SingleNodeWriter));
}

#[test]
fn capability_sets_compare_in_any_order() {
    let a = set(&[block(SingleNodeWriter), mount(None, SingleNodeWriter)]);
    let b = set(&[mount(None, SingleNodeWriter), block(SingleNodeWriter)]);
    assert!(a.same_uses(&b));
    assert!(!a.same_uses(&set(&[block(SingleNodeWriter)])));
    assert!(!a.same_uses(&set(&[block(SingleNodeWriter), mount(None, SingleNodeReaderOnly)])));
}

#[test]
fn volume_grants_its_own_capabilities() {
    let made = set(&[mount(Some(FsType::Xfs), SingleNodeWriter)]);
    assert!(made.check_grants(&mount(None, SingleNodeWriter)).is_ok());
    assert!(made.check_grants(&mount(Some(FsType::Xfs), SingleNodeReaderOnly)).is_ok());
    assert!(made.check_grants(&mount(Some(FsType::Ext4), SingleNodeWriter)).is_err());
    assert!(made.check_grants(&block(SingleNodeWriter)).is_err());
    assert!(made.check_grants(&mount(None, MultiNodeMultiWriter)).is_err());
}

#[test]
fn default_filesystem_is_recorded() {
    let named = set(&[mount(None, SingleNodeWriter)]).with_default_fs(FsType::Ext4);
    assert_eq!(named.fs(), Some(FsType::Ext4));
    let kept = set(&[mount(Some(FsType::Btrfs), SingleNodeWriter)]).with_default_fs(FsType::Ext4);
    assert_eq!(kept.fs(), Some(FsType::Btrfs));
}
