use orlop_model::{AccessMode, AccessType, FsType};

use super::super::*;
use super::*;
use crate::proto::csi::v1::VolumeCapability;
use crate::proto::csi::v1::volume_capability::access_mode::Mode;
use crate::proto::csi::v1::volume_capability::{
    AccessMode as WireMode, AccessType as WireAccess, BlockVolume, MountVolume,
};

fn block() -> WireAccess {
    WireAccess::Block(BlockVolume {})
}

fn mount(fs_type: &str) -> WireAccess {
    WireAccess::Mount(MountVolume { fs_type: fs_type.to_owned(), ..Default::default() })
}

fn wire(access: WireAccess, mode: i32) -> VolumeCapability {
    VolumeCapability { access_type: Some(access), access_mode: Some(WireMode { mode }) }
}

fn writer(access: WireAccess) -> VolumeCapability {
    wire(access, Mode::SingleNodeWriter.into())
}

#[test]
fn every_mode_of_the_protocol_is_known() {
    let modes = (1..=7).map(|mode| capability(wire(block(), mode)).unwrap().mode);
    assert_eq!(
        modes.collect::<Vec<_>>(),
        [
            AccessMode::SingleNodeWriter,
            AccessMode::SingleNodeReaderOnly,
            AccessMode::MultiNodeReaderOnly,
            AccessMode::MultiNodeSingleWriter,
            AccessMode::MultiNodeMultiWriter,
            AccessMode::SingleNodeSingleWriter,
            AccessMode::SingleNodeMultiWriter,
        ]
    );
}

#[test]
fn incomplete_capability_is_invalid_everywhere() {
    let without_type = VolumeCapability { access_type: None, ..writer(block()) };
    let without_mode = VolumeCapability { access_mode: None, ..writer(block()) };
    let unknown_mode = wire(block(), Mode::Unknown.into());
    for bad in [without_type, without_mode, unknown_mode] {
        assert!(is_invalid(&capability(bad.clone())));
        assert!(is_invalid(&capability_in_use(bad.clone())));
        assert!(is_invalid(&capability_set(vec![writer(block()), bad.clone()])));
        assert!(capability_set_to_validate(vec![bad]).is_err());
    }
}

/// AM-04, AM-18: the code depends on the call.
#[test]
fn unsupported_capability_has_the_code_of_its_call() {
    for unsupported in [writer(mount("nosuchfs")), wire(block(), 99), wire(block(), -1)] {
        assert!(is_invalid(&capability(unsupported.clone())));
        assert!(is_precondition(&capability_in_use(unsupported.clone())));
        let verdict = capability_set_to_validate(vec![writer(block()), unsupported]).unwrap();
        assert!(!verdict.unwrap_err().is_empty());
    }
}

#[test]
fn an_empty_filesystem_is_the_default() {
    let parsed = capability(writer(mount(""))).unwrap();
    assert_eq!(parsed.fs(), None);
    assert!(!parsed.is_block());
    assert_eq!(capability(writer(mount("btrfs"))).unwrap().fs(), Some(FsType::Btrfs));
}

fn with_group(group: &str) -> VolumeCapability {
    writer(WireAccess::Mount(MountVolume {
        volume_mount_group: group.to_owned(),
        ..Default::default()
    }))
}

#[test]
fn a_group_is_a_decimal_number() {
    let group = |text: &str| match capability(with_group(text)).unwrap().access {
        AccessType::Mount(mount) => mount.group,
        AccessType::Block => None,
    };
    assert_eq!(group(""), None);
    assert_eq!(group("0"), Some(0));
    assert_eq!(group("2000"), Some(2000));
    assert_eq!(group("4294967294"), Some(u32::MAX - 1));
    for bad in ["staff", "-1", "+1", "0x10", " 1", "4294967295", "4294967296"] {
        assert!(is_invalid(&capability_in_use(with_group(bad))), "{bad}");
    }
}

#[test]
fn mount_flags_are_vetted_and_not_shown() {
    let with_flags = |flags: &[&str]| {
        writer(WireAccess::Mount(MountVolume {
            mount_flags: flags.iter().map(ToString::to_string).collect(),
            ..Default::default()
        }))
    };
    assert!(capability(with_flags(&["noatime", "ro"])).is_ok());
    let error = capability(with_flags(&["password=hunter2"])).unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let many = vec!["noatime"; 700];
    assert!(is_invalid(&capability_in_use(with_flags(&many))));
}

#[test]
fn two_filesystem_types_are_refused() {
    let both = vec![writer(mount("xfs")), writer(mount("ext4"))];
    assert!(is_invalid(&capability_set(both.clone())));
    assert!(capability_set_to_validate(both).unwrap().is_err());
}
