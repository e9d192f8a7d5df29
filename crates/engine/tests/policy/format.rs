//! Never format by accident: which states of a volume and its device lead to mkfs, and which
//! to a refusal that touches nothing.

use orlop_engine::request::{CreateVolume, StageVolume};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{
    CapabilitySet, Device, DeviceAccess, DeviceSignature, Error, FormatState, FsType, FsUuid,
    HostFilesystems, Pool, VolumeId,
};

use crate::fixture::*;

fn filesystem(fs: FsType, uuid: FsUuid) -> DeviceSignature {
    DeviceSignature::Filesystem { fs, uuid, needs_check: false }
}

fn uuid(seed: u8) -> FsUuid {
    FsUuid::from_random([seed; 16])
}

/// Puts something on the volume's device while it is not in use.
fn write_behind_our_back(fixture: &Fixture, id: &VolumeId, signature: DeviceSignature) {
    let device = fixture.pool().devices().ensure_attached(id, DeviceAccess::ReadWrite).unwrap();
    fixture.host.set_signature(&device, signature);
    fixture.pool().devices().ensure_detached(id, DeviceAccess::ReadWrite).unwrap();
}

fn on_device(fixture: &Fixture, id: &VolumeId) -> DeviceSignature {
    let device: Device =
        fixture.pool().devices().ensure_attached(id, DeviceAccess::ReadWrite).unwrap();
    let signature = fixture.host.signature(&device).unwrap();
    fixture.pool().devices().ensure_detached(id, DeviceAccess::ReadWrite).unwrap();
    signature
}

fn formatted_uuid(fixture: &Fixture, id: &VolumeId) -> FsUuid {
    let FormatState::Formatted { uuid, .. } = fixture.format(id) else {
        panic!("{:?}", fixture.format(id));
    };
    uuid
}

fn usable_both_ways(name: &str, fs: FsType) -> CreateVolume {
    let ways = vec![mount(Some(fs), SingleNodeWriter), block(SingleNodeWriter)];
    CreateVolume { capabilities: CapabilitySet::new(ways).unwrap(), ..volume(name) }
}

#[test]
fn record_states_the_filesystem() {
    for fs in FsType::ALL {
        let fixture = Fixture::new();
        let id = fixture.create_as(volume_of("v", fs));
        assert_eq!(fixture.format(&id), FormatState::Blank);
        fixture.stage(&id);
        let uuid = formatted_uuid(&fixture, &id);
        fixture.unstage(&id).unwrap();
        assert_eq!(on_device(&fixture, &id), filesystem(fs, uuid));
    }
}

#[test]
fn crash_before_mkfs_resumes_with_the_recorded_uuid() {
    let mut fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.host.fail_next(Op::Format, Error::failed("mkfs", "killed"));
    fixture.engine.stage_volume(&stage(&id)).unwrap_err();
    let FormatState::Formatting { uuid, .. } = fixture.format(&id) else {
        panic!("{:?}", fixture.format(&id));
    };
    fixture.restart();
    fixture.stage(&id);
    assert_eq!(formatted_uuid(&fixture, &id), uuid);
}

#[test]
fn crash_after_mkfs_recreates_the_same_filesystem() {
    let mut fixture = Fixture::new();
    let id = fixture.create("v");
    // The first update announces the format, the second one says that it is done.
    fixture.pool().fail_after("update_volume", 1, Error::failed("write", "killed"));
    fixture.engine.stage_volume(&stage(&id)).unwrap_err();
    let FormatState::Formatting { fs, uuid } = fixture.format(&id) else {
        panic!("{:?}", fixture.format(&id));
    };
    assert_eq!(on_device(&fixture, &id), filesystem(fs, uuid));
    fixture.restart();
    fixture.stage(&id);
    assert_eq!(formatted_uuid(&fixture, &id), uuid);
    assert_eq!(fixture.host.count(Op::Format), 2, "it was never mounted, so mkfs may run again");
}

#[test]
fn unrecorded_filesystem_is_left_alone() {
    let intruders = [
        DeviceSignature::Blank,
        DeviceSignature::Foreign,
        filesystem(FsType::Xfs, uuid(9)),
        filesystem(FsType::Ext4, uuid(9)),
    ];
    for intruder in intruders {
        let fixture = Fixture::new();
        let id = fixture.create("v");
        fixture.stage(&id);
        let before = fixture.format(&id);
        fixture.unstage(&id).unwrap();
        write_behind_our_back(&fixture, &id, intruder);

        refused!(fixture.engine.stage_volume(&stage(&id)), Error::Damaged { .. });
        assert_eq!(on_device(&fixture, &id), intruder);
        assert_eq!(fixture.format(&id), before);
        assert_eq!(fixture.host.count(Op::Format), 1);
        fixture.assert_node_is_clean();
    }
}

#[test]
fn data_on_a_blank_volume_is_left_alone() {
    for intruder in [DeviceSignature::Foreign, filesystem(FsType::Xfs, uuid(9))] {
        let fixture = Fixture::new();
        let id = fixture.create("v");
        write_behind_our_back(&fixture, &id, intruder);
        refused!(fixture.engine.stage_volume(&stage(&id)), Error::Damaged { .. });
        assert_eq!(on_device(&fixture, &id), intruder);
        assert_eq!(fixture.format(&id), FormatState::Blank);
        assert_eq!(fixture.host.count(Op::Format), 0);
    }
}

#[test]
fn filesystem_that_needs_a_check_is_checked() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    let uuid = formatted_uuid(&fixture, &id);
    fixture.unstage(&id).unwrap();
    let dirty = DeviceSignature::Filesystem { fs: FsType::Xfs, uuid, needs_check: true };
    write_behind_our_back(&fixture, &id, dirty);
    fixture.stage(&id);
    assert_eq!(fixture.host.count(Op::CheckFilesystem), 1);
    fixture.unstage(&id).unwrap();
    fixture.stage(&id);
    assert_eq!(fixture.host.count(Op::CheckFilesystem), 1);
}

#[test]
fn device_published_raw_is_never_formatted() {
    let fixture = Fixture::new();
    let id = fixture.create_as(usable_both_ways("v", FsType::Xfs));
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    assert_eq!(fixture.format(&id), FormatState::Raw);
    fixture.unstage(&id).unwrap();
    for contents in
        [DeviceSignature::Blank, DeviceSignature::Foreign, filesystem(FsType::Ext4, uuid(9))]
    {
        write_behind_our_back(&fixture, &id, contents);
        refused!(fixture.engine.stage_volume(&stage(&id)), Error::Precondition(_));
        assert_eq!(on_device(&fixture, &id), contents);
    }
    assert_eq!(fixture.host.count(Op::Format), 0);
}

#[test]
fn filesystem_made_by_the_workload_is_adopted() {
    let fixture = Fixture::new();
    let id = fixture.create_as(usable_both_ways("v", FsType::Xfs));
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    fixture.unstage(&id).unwrap();
    write_behind_our_back(&fixture, &id, filesystem(FsType::Xfs, uuid(9)));
    fixture.stage(&id);
    assert_eq!(formatted_uuid(&fixture, &id), uuid(9));
    assert_eq!(fixture.host.count(Op::Format), 0);
}

/// Whatever it held before.
#[test]
fn filesystem_remade_by_the_workload_is_adopted() {
    for fs in [FsType::Xfs, FsType::Ext4, FsType::Btrfs] {
        let fixture = Fixture::new();
        let id = fixture.create_as(usable_both_ways("v", fs));
        fixture.stage(&id);
        fixture.unstage(&id).unwrap();
        fixture.engine.stage_volume(&stage_block(&id)).unwrap();
        assert_eq!(fixture.format(&id), FormatState::Raw, "{fs}");
        fixture.unstage(&id).unwrap();
        let dirty = DeviceSignature::Filesystem { fs, uuid: uuid(9), needs_check: true };
        write_behind_our_back(&fixture, &id, dirty);
        fixture.stage(&id);
        let counts = (fixture.host.count(Op::Format), fixture.host.count(Op::CheckFilesystem));
        assert_eq!(counts, (1, 1), "{fs}");
        fixture.unstage(&id).unwrap();
        fixture.engine.stage_volume(&stage_block(&id)).unwrap();
        fixture.unstage(&id).unwrap();
        write_behind_our_back(&fixture, &id, DeviceSignature::Foreign);
        refused!(fixture.engine.stage_volume(&stage(&id)), Error::Precondition(_));
    }
}

#[test]
fn device_is_marked_raw_before_it_is_writable() {
    let fixture = Fixture::new();
    let id = fixture.create_as(block_volume("v"));
    fixture.pool().fail_next("ensure_attached", Error::failed("attach", "killed"));
    fixture.engine.stage_volume(&stage_block(&id)).unwrap_err();
    assert_eq!(fixture.format(&id), FormatState::Raw);
}

#[test]
fn read_only_stage_does_not_mark_a_device_raw() {
    let fixture = Fixture::new();
    let id = fixture.create_as(block_volume("v"));
    let reading = StageVolume { capability: block(SingleNodeReaderOnly), ..stage(&id) };
    fixture.engine.stage_volume(&reading).unwrap();
    assert_eq!(fixture.format(&id), FormatState::Blank);
}

/// A volume of which the device holds a copy of `origin`'s filesystem.
fn copy_of(fixture: &Fixture, name: &str, origin: &VolumeId) -> VolumeId {
    let copy = fixture.create_as(cloned(name, origin));
    write_behind_our_back(
        fixture,
        &copy,
        filesystem(fixture.format(origin).fs().unwrap(), formatted_uuid(fixture, origin)),
    );
    copy
}

#[test]
fn copied_btrfs_gets_a_new_uuid() {
    let fixture = Fixture::new();
    let origin = fixture.create_as(volume_of("origin", FsType::Btrfs));
    fixture.stage(&origin);
    let original = formatted_uuid(&fixture, &origin);
    fixture.unstage(&origin).unwrap();
    let copy = copy_of(&fixture, "copy", &origin);
    assert_eq!(fixture.format(&copy), FormatState::Copied { fs: FsType::Btrfs, uuid: original });
    fixture.stage(&copy);
    let own = formatted_uuid(&fixture, &copy);
    assert_ne!(own, original);
    fixture.unstage(&copy).unwrap();
    assert_eq!(on_device(&fixture, &copy), filesystem(FsType::Btrfs, own));
    fixture.stage(&copy);
    assert_eq!(formatted_uuid(&fixture, &copy), own, "renewed once");
    assert_eq!(fixture.host.count(Op::Format), 1);
}

#[test]
fn other_copied_filesystems_keep_their_uuid() {
    for fs in [FsType::Xfs, FsType::Ext4] {
        let fixture = Fixture::new();
        let origin = fixture.create_as(volume_of("origin", fs));
        fixture.stage(&origin);
        fixture.unstage(&origin).unwrap();
        let copy = copy_of(&fixture, "copy", &origin);
        fixture.stage(&copy);
        assert_eq!(fixture.format(&copy), fixture.format(&origin));
        assert_eq!(fixture.host.count(Op::Format), 1);
    }
}

#[test]
fn interrupted_uuid_change_is_finished() {
    // Killed before the tool ran, and killed before its success was on record.
    for after_the_tool in [false, true] {
        let mut fixture = Fixture::new();
        let origin = fixture.create_as(volume_of("origin", FsType::Btrfs));
        fixture.stage(&origin);
        fixture.unstage(&origin).unwrap();
        let copy = copy_of(&fixture, "copy", &origin);
        let killed = Error::failed("renew", "killed");
        match after_the_tool {
            false => fixture.host.fail_next(Op::RenewUuid, killed),
            true => fixture.pool().fail_after("update_volume", 1, killed),
        }
        fixture.engine.stage_volume(&stage(&copy)).unwrap_err();
        let FormatState::Renewing { new, .. } = fixture.format(&copy) else {
            panic!("{:?}", fixture.format(&copy));
        };
        refused!(fixture.engine.create_snapshot(&snapshot("s", &copy)), Error::Precondition(_));

        fixture.restart();
        fixture.stage(&copy);
        assert_eq!(formatted_uuid(&fixture, &copy), new, "after the tool: {after_the_tool}");
        assert_eq!(fixture.host.count(Op::RenewUuid), 1, "after the tool: {after_the_tool}");
        fixture.unstage(&copy).unwrap();
        assert_eq!(on_device(&fixture, &copy), filesystem(FsType::Btrfs, new));
    }
}

#[test]
fn copy_without_the_source_filesystem_is_damaged() {
    let fixture = Fixture::new();
    let origin = fixture.create("origin");
    fixture.stage(&origin);
    let copy = fixture.create_as(cloned("copy", &origin));
    write_behind_our_back(&fixture, &copy, DeviceSignature::Blank);
    fixture.unstage(&origin).unwrap();
    refused!(fixture.engine.stage_volume(&stage(&copy)), Error::Damaged { .. });
    assert_eq!(on_device(&fixture, &copy), DeviceSignature::Blank);
}

#[test]
fn a_copy_of_a_blank_volume_is_blank() {
    let fixture = Fixture::new();
    let copy = fixture.create_as(cloned("copy", &fixture.create("origin")));
    assert_eq!(fixture.format(&copy), FormatState::Blank);
    fixture.stage(&copy);
    assert_eq!(fixture.host.count(Op::Format), 1);
}

#[test]
fn data_inside_a_blank_volume_prevents_formatting() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let middle = orlop_model::ByteRange { start: 400 * MIB, length: 4096 };
    fixture.pool().write_blocks(&id, middle).unwrap();
    refused!(fixture.engine.stage_volume(&stage(&id)), Error::Damaged { .. });
    assert_eq!(fixture.format(&id), FormatState::Blank);
    fixture.assert_node_is_clean();
}
