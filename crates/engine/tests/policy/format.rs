//! Never format by accident: which states of a volume and its device lead to mkfs, and which
//! to a refusal that touches nothing.

use orlop_engine::request::{CreateVolume, StageVolume};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{
    CapabilitySet, Device, DeviceAccess, DeviceSignature, Error, FormatState, FsType, FsUuid, Host,
    Pool, VolumeId,
};

use crate::bench::*;

fn filesystem(fs: FsType, uuid: FsUuid) -> DeviceSignature {
    DeviceSignature::Filesystem { fs, uuid, needs_check: false }
}

fn uuid(seed: u8) -> FsUuid {
    FsUuid::from_random([seed; 16])
}

/// Puts something on the volume's device while nothing uses it.
fn write_behind_our_back(bench: &Bench, id: &VolumeId, signature: DeviceSignature) {
    let device = bench.pool().devices().ensure_attached(id, DeviceAccess::ReadWrite).unwrap();
    bench.host.set_signature(&device, signature);
    bench.pool().devices().ensure_detached(id, DeviceAccess::ReadWrite).unwrap();
}

fn on_device(bench: &Bench, id: &VolumeId) -> DeviceSignature {
    let device: Device =
        bench.pool().devices().ensure_attached(id, DeviceAccess::ReadWrite).unwrap();
    let signature = bench.host.signature(&device).unwrap();
    bench.pool().devices().ensure_detached(id, DeviceAccess::ReadWrite).unwrap();
    signature
}

fn formatted_uuid(bench: &Bench, id: &VolumeId) -> FsUuid {
    let FormatState::Formatted { uuid, .. } = bench.format(id) else {
        panic!("{:?}", bench.format(id));
    };
    uuid
}

fn usable_both_ways(name: &str, fs: FsType) -> CreateVolume {
    let ways = vec![mount(Some(fs), SingleNodeWriter), block(SingleNodeWriter)];
    CreateVolume { capabilities: CapabilitySet::new(ways).unwrap(), ..volume(name) }
}

#[test]
fn the_record_says_what_is_on_the_device() {
    for fs in FsType::ALL {
        let bench = Bench::new();
        let id = bench.create_as(volume_of("v", fs));
        assert_eq!(bench.format(&id), FormatState::Blank);
        bench.stage(&id);
        let uuid = formatted_uuid(&bench, &id);
        bench.unstage(&id).unwrap();
        assert_eq!(on_device(&bench, &id), filesystem(fs, uuid));
    }
}

#[test]
fn a_crash_before_mkfs_is_continued_with_the_uuid_on_record() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    bench.host.fail_next(Op::Format, Error::failed("mkfs", "killed"));
    bench.engine.stage_volume(&stage(&id)).unwrap_err();
    let FormatState::Formatting { uuid, .. } = bench.format(&id) else {
        panic!("{:?}", bench.format(&id));
    };
    bench.restart();
    bench.stage(&id);
    assert_eq!(formatted_uuid(&bench, &id), uuid);
}

#[test]
fn a_crash_after_mkfs_makes_the_same_filesystem_again() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    // The first update announces the format, the second one says that it is done.
    bench.pool().fail_after("update_volume", 1, Error::failed("write", "killed"));
    bench.engine.stage_volume(&stage(&id)).unwrap_err();
    let FormatState::Formatting { fs, uuid } = bench.format(&id) else {
        panic!("{:?}", bench.format(&id));
    };
    assert_eq!(on_device(&bench, &id), filesystem(fs, uuid));
    bench.restart();
    bench.stage(&id);
    assert_eq!(formatted_uuid(&bench, &id), uuid);
    assert_eq!(bench.host.count(Op::Format), 2, "it was never mounted, so mkfs may run again");
}

#[test]
fn a_volume_whose_filesystem_is_not_the_recorded_one_is_left_alone() {
    let intruders = [
        DeviceSignature::Blank,
        DeviceSignature::Foreign,
        filesystem(FsType::Xfs, uuid(9)),
        filesystem(FsType::Ext4, uuid(9)),
    ];
    for intruder in intruders {
        let bench = Bench::new();
        let id = bench.create("v");
        bench.stage(&id);
        let before = bench.format(&id);
        bench.unstage(&id).unwrap();
        write_behind_our_back(&bench, &id, intruder);

        refused!(bench.engine.stage_volume(&stage(&id)), Error::Damaged { .. });
        assert_eq!(on_device(&bench, &id), intruder);
        assert_eq!(bench.format(&id), before);
        assert_eq!(bench.host.count(Op::Format), 1);
        bench.assert_node_is_clean();
    }
}

#[test]
fn data_on_a_volume_that_is_recorded_as_blank_is_left_alone() {
    for intruder in [DeviceSignature::Foreign, filesystem(FsType::Xfs, uuid(9))] {
        let bench = Bench::new();
        let id = bench.create("v");
        write_behind_our_back(&bench, &id, intruder);
        refused!(bench.engine.stage_volume(&stage(&id)), Error::Damaged { .. });
        assert_eq!(on_device(&bench, &id), intruder);
        assert_eq!(bench.format(&id), FormatState::Blank);
        assert_eq!(bench.host.count(Op::Format), 0);
    }
}

#[test]
fn a_filesystem_that_asks_for_a_check_gets_one() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    let uuid = formatted_uuid(&bench, &id);
    bench.unstage(&id).unwrap();
    let dirty = DeviceSignature::Filesystem { fs: FsType::Xfs, uuid, needs_check: true };
    write_behind_our_back(&bench, &id, dirty);
    bench.stage(&id);
    assert_eq!(bench.host.count(Op::CheckFilesystem), 1);
    bench.unstage(&id).unwrap();
    bench.stage(&id);
    assert_eq!(bench.host.count(Op::CheckFilesystem), 1);
}

#[test]
fn a_device_that_was_handed_out_raw_is_never_formatted() {
    let bench = Bench::new();
    let id = bench.create_as(usable_both_ways("v", FsType::Xfs));
    bench.engine.stage_volume(&stage_block(&id)).unwrap();
    assert_eq!(bench.format(&id), FormatState::Raw);
    bench.unstage(&id).unwrap();
    for contents in
        [DeviceSignature::Blank, DeviceSignature::Foreign, filesystem(FsType::Ext4, uuid(9))]
    {
        write_behind_our_back(&bench, &id, contents);
        refused!(bench.engine.stage_volume(&stage(&id)), Error::Precondition(_));
        assert_eq!(on_device(&bench, &id), contents);
    }
    assert_eq!(bench.host.count(Op::Format), 0);
}

#[test]
fn a_filesystem_that_the_workload_made_is_adopted() {
    let bench = Bench::new();
    let id = bench.create_as(usable_both_ways("v", FsType::Xfs));
    bench.engine.stage_volume(&stage_block(&id)).unwrap();
    bench.unstage(&id).unwrap();
    write_behind_our_back(&bench, &id, filesystem(FsType::Xfs, uuid(9)));
    bench.stage(&id);
    assert_eq!(formatted_uuid(&bench, &id), uuid(9));
    assert_eq!(bench.host.count(Op::Format), 0);
}

/// Whatever it held before.
#[test]
fn a_filesystem_that_the_workload_remade_is_adopted() {
    for fs in [FsType::Xfs, FsType::Ext4, FsType::Btrfs] {
        let bench = Bench::new();
        let id = bench.create_as(usable_both_ways("v", fs));
        bench.stage(&id);
        bench.unstage(&id).unwrap();
        bench.engine.stage_volume(&stage_block(&id)).unwrap();
        assert_eq!(bench.format(&id), FormatState::Raw, "{fs}");
        bench.unstage(&id).unwrap();
        let dirty = DeviceSignature::Filesystem { fs, uuid: uuid(9), needs_check: true };
        write_behind_our_back(&bench, &id, dirty);
        bench.stage(&id);
        let counts = (bench.host.count(Op::Format), bench.host.count(Op::CheckFilesystem));
        assert_eq!(counts, (1, 1), "{fs}");
        bench.unstage(&id).unwrap();
        bench.engine.stage_volume(&stage_block(&id)).unwrap();
        bench.unstage(&id).unwrap();
        write_behind_our_back(&bench, &id, DeviceSignature::Foreign);
        refused!(bench.engine.stage_volume(&stage(&id)), Error::Precondition(_));
    }
}

#[test]
fn a_device_is_marked_raw_before_it_can_be_written() {
    let bench = Bench::new();
    let id = bench.create_as(block_volume("v"));
    bench.pool().fail_next("ensure_attached", Error::failed("attach", "killed"));
    bench.engine.stage_volume(&stage_block(&id)).unwrap_err();
    assert_eq!(bench.format(&id), FormatState::Raw);
}

#[test]
fn reading_a_device_does_not_make_it_raw() {
    let bench = Bench::new();
    let id = bench.create_as(block_volume("v"));
    let reading = StageVolume { capability: block(SingleNodeReaderOnly), ..stage(&id) };
    bench.engine.stage_volume(&reading).unwrap();
    assert_eq!(bench.format(&id), FormatState::Blank);
}

/// A volume of which the device holds a copy of `origin`'s filesystem.
fn copy_of(bench: &Bench, name: &str, origin: &VolumeId) -> VolumeId {
    let copy = bench.create_as(cloned(name, origin));
    write_behind_our_back(
        bench,
        &copy,
        filesystem(bench.format(origin).fs().unwrap(), formatted_uuid(bench, origin)),
    );
    copy
}

#[test]
fn a_copied_btrfs_gets_an_identity_of_its_own() {
    let bench = Bench::new();
    let origin = bench.create_as(volume_of("origin", FsType::Btrfs));
    bench.stage(&origin);
    let original = formatted_uuid(&bench, &origin);
    bench.unstage(&origin).unwrap();
    let copy = copy_of(&bench, "copy", &origin);
    assert_eq!(bench.format(&copy), FormatState::Copied { fs: FsType::Btrfs, uuid: original });
    bench.stage(&copy);
    let own = formatted_uuid(&bench, &copy);
    assert_ne!(own, original);
    bench.unstage(&copy).unwrap();
    assert_eq!(on_device(&bench, &copy), filesystem(FsType::Btrfs, own));
    bench.stage(&copy);
    assert_eq!(formatted_uuid(&bench, &copy), own, "renewed once");
    assert_eq!(bench.host.count(Op::Format), 1);
}

#[test]
fn other_copied_filesystems_keep_theirs() {
    for fs in [FsType::Xfs, FsType::Ext4] {
        let bench = Bench::new();
        let origin = bench.create_as(volume_of("origin", fs));
        bench.stage(&origin);
        bench.unstage(&origin).unwrap();
        let copy = copy_of(&bench, "copy", &origin);
        bench.stage(&copy);
        assert_eq!(bench.format(&copy), bench.format(&origin));
        assert_eq!(bench.host.count(Op::Format), 1);
    }
}

#[test]
fn an_interrupted_renewal_is_finished() {
    // Killed before the tool ran, and killed before its success was on record.
    for after_the_tool in [false, true] {
        let mut bench = Bench::new();
        let origin = bench.create_as(volume_of("origin", FsType::Btrfs));
        bench.stage(&origin);
        bench.unstage(&origin).unwrap();
        let copy = copy_of(&bench, "copy", &origin);
        let killed = Error::failed("renew", "killed");
        match after_the_tool {
            false => bench.host.fail_next(Op::RenewUuid, killed),
            true => bench.pool().fail_after("update_volume", 1, killed),
        }
        bench.engine.stage_volume(&stage(&copy)).unwrap_err();
        let FormatState::Renewing { new, .. } = bench.format(&copy) else {
            panic!("{:?}", bench.format(&copy));
        };
        refused!(bench.engine.create_snapshot(&snapshot("s", &copy)), Error::Precondition(_));

        bench.restart();
        bench.stage(&copy);
        assert_eq!(formatted_uuid(&bench, &copy), new, "after the tool: {after_the_tool}");
        assert_eq!(bench.host.count(Op::RenewUuid), 1, "after the tool: {after_the_tool}");
        bench.unstage(&copy).unwrap();
        assert_eq!(on_device(&bench, &copy), filesystem(FsType::Btrfs, new));
    }
}

#[test]
fn a_copy_that_does_not_hold_the_originals_filesystem_is_damaged() {
    let bench = Bench::new();
    let origin = bench.create("origin");
    bench.stage(&origin);
    let copy = bench.create_as(cloned("copy", &origin));
    write_behind_our_back(&bench, &copy, DeviceSignature::Blank);
    bench.unstage(&origin).unwrap();
    refused!(bench.engine.stage_volume(&stage(&copy)), Error::Damaged { .. });
    assert_eq!(on_device(&bench, &copy), DeviceSignature::Blank);
}

#[test]
fn a_copy_of_a_blank_volume_is_blank() {
    let bench = Bench::new();
    let copy = bench.create_as(cloned("copy", &bench.create("origin")));
    assert_eq!(bench.format(&copy), FormatState::Blank);
    bench.stage(&copy);
    assert_eq!(bench.host.count(Op::Format), 1);
}

#[test]
fn data_in_the_middle_of_a_blank_volume_is_not_formatted_over() {
    let bench = Bench::new();
    let id = bench.create("v");
    let middle = orlop_model::ByteRange { start: 400 * MIB, length: 4096 };
    bench.pool().write_blocks(&id, middle).unwrap();
    refused!(bench.engine.stage_volume(&stage(&id)), Error::Damaged { .. });
    assert_eq!(bench.format(&id), FormatState::Blank);
    bench.assert_node_is_clean();
}
