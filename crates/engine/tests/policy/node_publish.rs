//! NodePublishVolume.

use orlop_engine::request::{
    CreateVolume, PublishContext, PublishVolume, PublishWay, StageVolume, VolumeRef,
};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{
    AccessMode, CapabilitySet, DeviceAccess, Error, FsType, HostMounts, NameDigest, Pool, VolumeId,
};

use crate::fixture::*;

const MODES: [AccessMode; 7] = [
    SingleNodeWriter,
    SingleNodeReaderOnly,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
];

fn of_mode(name: &str, mode: AccessMode) -> CreateVolume {
    CreateVolume { capabilities: only(mount(None, mode)), ..volume(name) }
}

pub(crate) fn staged(fixture: &Fixture, mode: AccessMode) -> VolumeId {
    let id = fixture.create_as(of_mode("v", mode));
    let request = StageVolume { capability: mount(None, mode), ..stage(&id) };
    fixture.engine.stage_volume(&request).unwrap();
    id
}

pub(crate) fn at(id: &VolumeId, target: &str, mode: AccessMode) -> PublishVolume {
    PublishVolume { capability: mount(None, mode), ..publish(id, target) }
}

fn is_read_only(fixture: &Fixture, target: &str) -> bool {
    fixture.host.mount_at(&path(target)).unwrap().expect("something is there").read_only
}

#[derive(Debug, PartialEq)]
enum Answer {
    Granted,
    Clash,
    Refused,
}

fn answer(fixture: &Fixture, request: &PublishVolume) -> Answer {
    match fixture.engine.publish_volume(request) {
        Ok(()) => Answer::Granted,
        Err(Error::Conflict { .. }) => Answer::Clash,
        Err(Error::Precondition(_)) => Answer::Refused,
        Err(other) => panic!("{other:?}"),
    }
}

/// NP-22 to NP-33.
#[test]
fn second_publish_follows_the_access_mode_table() {
    for mode in MODES {
        let elsewhere = match mode {
            MultiNodeReaderOnly
            | MultiNodeSingleWriter
            | MultiNodeMultiWriter
            | SingleNodeMultiWriter => Answer::Granted,
            SingleNodeWriter | SingleNodeReaderOnly | SingleNodeSingleWriter => Answer::Refused,
        };
        let other_arguments = |request: PublishVolume| PublishVolume { read_only: true, ..request };

        let fixture = Fixture::new();
        let id = staged(&fixture, mode);
        let first = at(&id, TARGET, mode);
        assert_eq!(answer(&fixture, &first), Answer::Granted, "{mode:?}");
        assert_eq!(answer(&fixture, &first), Answer::Granted, "{mode:?}: same target, same");
        assert_eq!(
            answer(&fixture, &other_arguments(first)),
            Answer::Clash,
            "{mode:?}: same target, other"
        );
        let second = at(&id, OTHER_TARGET, mode);
        assert_eq!(answer(&fixture, &second), elsewhere, "{mode:?}: other target, same");
        let third = other_arguments(at(&id, "/targets/c", mode));
        assert_eq!(answer(&fixture, &third), elsewhere, "{mode:?}: other target, other");
        let targets = if elsewhere == Answer::Granted { 3 } else { 1 };
        assert_eq!(fixture.host.mounts().len(), 1 + targets, "{mode:?}");
        assert_eq!(fixture.node_record(&id).publications.len(), targets, "{mode:?}");
    }
}

/// Open point 1: the same target is a clash, another target a refusal.
#[test]
fn another_capability_for_a_second_target_is_refused() {
    let fixture = Fixture::new();
    let ways = vec![mount(None, SingleNodeMultiWriter), mount(None, MultiNodeMultiWriter)];
    let id = fixture
        .create_as(CreateVolume { capabilities: CapabilitySet::new(ways).unwrap(), ..volume("v") });
    fixture.stage(&id);
    fixture.engine.publish_volume(&at(&id, TARGET, SingleNodeMultiWriter)).unwrap();
    assert_eq!(answer(&fixture, &at(&id, TARGET, MultiNodeMultiWriter)), Answer::Clash);
    assert_eq!(answer(&fixture, &at(&id, OTHER_TARGET, MultiNodeMultiWriter)), Answer::Refused);
    // Flags and group belong to the workload, not to the way of using the volume.
    let flagged = PublishVolume {
        capability: mount_with(None, SingleNodeMultiWriter, &["noatime"], None),
        ..publish(&id, OTHER_TARGET)
    };
    assert_eq!(answer(&fixture, &flagged), Answer::Granted);
}

#[test]
fn a_writer_and_a_reader_share_a_volume() {
    let fixture = Fixture::new();
    let id = staged(&fixture, SingleNodeMultiWriter);
    fixture.engine.publish_volume(&at(&id, TARGET, SingleNodeMultiWriter)).unwrap();
    let reading = PublishVolume { read_only: true, ..at(&id, OTHER_TARGET, SingleNodeMultiWriter) };
    fixture.engine.publish_volume(&reading).unwrap();
    assert!(!is_read_only(&fixture, TARGET));
    assert!(is_read_only(&fixture, OTHER_TARGET));
}

#[test]
fn reader_cannot_write() {
    let reader = |id: &VolumeId| at(id, TARGET, SingleNodeWriter);
    type Change = fn(PublishVolume) -> PublishVolume;
    let ways: [(&str, Change); 4] = [
        ("readonly", |r| PublishVolume { read_only: true, ..r }),
        ("publish context", |r| PublishVolume { publish: PublishContext { read_only: true }, ..r }),
        ("mode", |r| PublishVolume { capability: mount(None, SingleNodeReaderOnly), ..r }),
        ("flag", |r| PublishVolume {
            capability: mount_with(None, SingleNodeWriter, &["ro"], None),
            ..r
        }),
    ];
    for (what, way) in ways {
        let fixture = Fixture::new();
        let id = staged(&fixture, SingleNodeWriter);
        fixture.engine.publish_volume(&way(reader(&id))).unwrap();
        assert!(is_read_only(&fixture, TARGET), "{what}");
    }
}

#[test]
fn publish_requires_the_staging_path() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    refused!(fixture.engine.publish_volume(&publish(&id, TARGET)), Error::Precondition(_));
    fixture.stage(&id);
    let elsewhere = PublishVolume { way: staged_at("/staging/other"), ..publish(&id, TARGET) };
    refused!(fixture.engine.publish_volume(&elsewhere), Error::Precondition(_));
    fixture.host.ensure_unmounted(&path(STAGING)).unwrap();
    refused!(fixture.engine.publish_volume(&publish(&id, TARGET)), Error::Precondition(_));
    assert_eq!(fixture.host.mounts(), []);
    assert!(!fixture.host.has_target(&path(TARGET)));
}

#[test]
fn capability_the_volume_lacks_is_refused() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    for capability in [
        block(SingleNodeWriter),
        mount(Some(FsType::Ext4), SingleNodeWriter),
        mount(None, MultiNodeMultiWriter),
    ] {
        refused!(
            fixture.engine.publish_volume(&PublishVolume { capability, ..publish(&id, TARGET) }),
            Error::Precondition(_)
        );
    }
    let wrong = PublishVolume { context: map(&[("pool", "other")]), ..publish(&id, TARGET) };
    refused!(fixture.engine.publish_volume(&wrong), Error::Invalid { field: "volume_context", .. });
    let never = VolumeId::new(id.pool().clone(), NameDigest::of_text("never made"));
    refused!(fixture.engine.publish_volume(&publish(&never, TARGET)), Error::NoSuchVolume(_));
    let foreign =
        PublishVolume { volume: VolumeRef::parse("another-drivers"), ..publish(&id, TARGET) };
    refused!(fixture.engine.publish_volume(&foreign), Error::NoSuchVolume(_));
    assert_eq!(fixture.host.mounts(), [path(STAGING)]);
}

#[test]
fn block_stage_is_not_published_as_a_mount() {
    let fixture = Fixture::new();
    let ways = vec![mount(None, SingleNodeWriter), block(SingleNodeWriter)];
    let id = fixture
        .create_as(CreateVolume { capabilities: CapabilitySet::new(ways).unwrap(), ..volume("v") });
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    refused!(fixture.engine.publish_volume(&publish(&id, TARGET)), Error::Precondition(_));
    fixture.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
}

#[test]
fn failed_publish_restores_the_previous_state() {
    for step in [Op::SaveRecord, Op::SetLimits, Op::BindDirectory] {
        let fixture = Fixture::new();
        let id = staged(&fixture, SingleNodeMultiWriter);
        fixture.engine.publish_volume(&at(&id, TARGET, SingleNodeMultiWriter)).unwrap();
        let before = (fixture.host.mounts(), fixture.node_record(&id));
        let broken = Error::failed("try", "broken on purpose");
        fixture.host.fail_next(step, broken.clone());
        let second = at(&id, OTHER_TARGET, SingleNodeMultiWriter);
        assert_eq!(fixture.engine.publish_volume(&second), Err(broken), "{step:?}");
        assert_eq!((fixture.host.mounts(), fixture.node_record(&id)), before, "{step:?}");
        fixture.engine.publish_volume(&second).unwrap();
    }
}

#[test]
fn failed_publish_detaches_the_read_only_device() {
    for step in [Op::BindDevice, Op::SetLimits, Op::SaveRecord] {
        let fixture = Fixture::new();
        let id = fixture.create_as(block_volume("v"));
        fixture.engine.stage_volume(&stage_block(&id)).unwrap();
        fixture.host.fail_next(step, Error::failed("try", "broken on purpose"));
        let reading = PublishVolume { read_only: true, ..publish_block(&id, TARGET) };
        fixture.engine.publish_volume(&reading).unwrap_err();
        assert_eq!(fixture.attached(&id, DeviceAccess::ReadOnly), None, "{step:?}");
        assert!(fixture.node_record(&id).publications.is_empty(), "{step:?}");
    }
}

#[test]
fn block_publish_binds_the_device_node() {
    let fixture = Fixture::new();
    let id = fixture.create_as(block_volume("v"));
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    for _ in 0..2 {
        fixture.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    }
    let there = fixture.host.mount_at(&path(TARGET)).unwrap().unwrap();
    assert!(there.is_device_node && there.is_of(&fixture.device(&id)));
    fixture.unpublish(&id, TARGET).unwrap();
    fixture.unstage(&id).unwrap();
    fixture.assert_node_is_clean();
    assert!(!fixture.host.has_target(&path(TARGET)));
}

/// A read-only bind of a device node does not stop writes, so the device itself must.
#[test]
fn read_only_block_publish_has_its_own_limited_device() {
    let fixture = Fixture::new();
    let request = CreateVolume {
        capabilities: only(block(SingleNodeMultiWriter)),
        limits: limits(&[("writeIops", "50")]),
        ..volume("v")
    };
    let id = fixture.create_as(request);
    let shared = block(SingleNodeMultiWriter);
    fixture.engine.stage_volume(&StageVolume { capability: shared.clone(), ..stage(&id) }).unwrap();
    let writing = PublishVolume { capability: shared, ..publish(&id, TARGET) };
    let reading = PublishVolume { read_only: true, target: path(OTHER_TARGET), ..writing.clone() };
    fixture.engine.publish_volume(&reading).unwrap();

    let read_only = fixture.attached(&id, DeviceAccess::ReadOnly).unwrap();
    assert_ne!(read_only, fixture.device(&id));
    assert!(fixture.host.mount_at(&path(OTHER_TARGET)).unwrap().unwrap().is_of(&read_only));
    assert_eq!(fixture.host.limits(&read_only).write_iops, Some(50));

    fixture.unpublish(&id, OTHER_TARGET).unwrap();
    assert_eq!(fixture.attached(&id, DeviceAccess::ReadOnly), None);
    assert!(fixture.attached(&id, DeviceAccess::ReadWrite).is_some(), "still staged");
    assert!(fixture.host.limits(&read_only).is_unlimited(), "the number goes to another volume");
}

/// Each of the two devices has a separate page cache.
#[test]
fn raw_volume_has_readers_or_writers_not_both() {
    let fixture = Fixture::new();
    let shared = block(SingleNodeMultiWriter);
    let id = fixture.create_as(CreateVolume { capabilities: only(shared.clone()), ..volume("v") });
    fixture.engine.stage_volume(&StageVolume { capability: shared.clone(), ..stage(&id) }).unwrap();
    let writing = PublishVolume { capability: shared, ..publish(&id, TARGET) };
    let reading = PublishVolume { read_only: true, target: path(OTHER_TARGET), ..writing.clone() };
    for (first, second) in [(&writing, &reading), (&reading, &writing)] {
        fixture.engine.publish_volume(first).unwrap();
        refused!(fixture.engine.publish_volume(second), Error::Precondition(_));
        assert!(!fixture.host.has_target(&second.target), "NP-37");
        let alike = PublishVolume { target: path("/pods/third"), ..first.clone() };
        fixture.engine.publish_volume(&alike).unwrap();
        fixture.engine.unpublish_volume(&first.volume, &alike.target).unwrap();
        fixture.engine.unpublish_volume(&first.volume, &first.target).unwrap();
    }
    fixture.engine.publish_volume(&writing).unwrap();
    assert_eq!(fixture.attached(&id, DeviceAccess::ReadOnly), None);
}

/// A workload may hold the readers' device open longer than its publication lasts.
#[test]
fn lingering_reader_blocks_writers() {
    let fixture = Fixture::new();
    let id = fixture.create_as(block_volume("v"));
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    fixture.pool().devices().ensure_attached(&id, DeviceAccess::ReadOnly).unwrap();
    fixture.pool().fail_next("ensure_detached", Error::precondition("a process has it open"));
    refused!(fixture.engine.publish_volume(&publish_block(&id, TARGET)), Error::Precondition(_));
    fixture.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    assert_eq!(fixture.attached(&id, DeviceAccess::ReadOnly), None);
}

#[test]
fn target_with_a_foreign_mount_is_not_taken() {
    let fixture = Fixture::new();
    let [mine, other] = ["mine", "other"].map(|name| fixture.create(name));
    fixture.stage(&mine);
    fixture.publish(&mine);
    let elsewhere = path("/staging/other");
    fixture.engine.stage_volume(&StageVolume { path: elsewhere.clone(), ..stage(&other) }).unwrap();
    let request =
        PublishVolume { way: PublishWay::Staged { staging: elsewhere }, ..publish(&other, TARGET) };
    refused!(fixture.engine.publish_volume(&request), Error::Precondition(_));
    assert!(fixture.node_record(&other).publications.is_empty());
    assert!(fixture.host.mount_at(&path(TARGET)).unwrap().unwrap().is_of(&fixture.device(&mine)));
}

#[test]
fn vanished_publication_does_not_count() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    fixture.host.ensure_unmounted(&path(TARGET)).unwrap();
    // Not the table's "another target": nothing is published any more.
    fixture.engine.publish_volume(&publish(&id, OTHER_TARGET)).unwrap();
    assert_eq!(fixture.node_record(&id).publications.len(), 1);
}

#[test]
fn answers_are_the_same_after_a_restart() {
    let mut fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    let before = (fixture.host.mounts(), fixture.node_record(&id));
    fixture.restart();
    fixture.stage(&id);
    fixture.publish(&id);
    assert_eq!((fixture.host.mounts(), fixture.node_record(&id)), before);
    let other = PublishVolume { read_only: true, ..publish(&id, TARGET) };
    refused!(fixture.engine.publish_volume(&other), Error::Conflict { .. });
    fixture.unpublish(&id, TARGET).unwrap();
    fixture.unstage(&id).unwrap();
    fixture.assert_node_is_clean();
}
