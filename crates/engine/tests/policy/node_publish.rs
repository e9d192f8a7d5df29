//! NodePublishVolume and NodeUnpublishVolume.

use orlop_engine::request::{
    CreateVolume, PublishContext, PublishVolume, PublishWay, StageVolume, VolumeRef,
};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{
    AccessMode, CapabilitySet, DeviceAccess, Error, FsType, Host, NameDigest, Pool, VolumeId,
};

use crate::bench::*;

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

fn staged(bench: &Bench, mode: AccessMode) -> VolumeId {
    let id = bench.create_as(of_mode("v", mode));
    let request = StageVolume { capability: mount(None, mode), ..stage(&id) };
    bench.engine.stage_volume(&request).unwrap();
    id
}

fn at(id: &VolumeId, target: &str, mode: AccessMode) -> PublishVolume {
    PublishVolume { capability: mount(None, mode), ..publish(id, target) }
}

fn is_read_only(bench: &Bench, target: &str) -> bool {
    bench.host.mount_at(&path(target)).unwrap().expect("something is there").read_only
}

#[derive(Debug, PartialEq)]
enum Answer {
    Granted,
    Clash,
    Refused,
}

fn answer(bench: &Bench, request: &PublishVolume) -> Answer {
    match bench.engine.publish_volume(request) {
        Ok(()) => Answer::Granted,
        Err(Error::Conflict { .. }) => Answer::Clash,
        Err(Error::Precondition(_)) => Answer::Refused,
        Err(other) => panic!("{other:?}"),
    }
}

/// NP-22 to NP-33.
#[test]
fn the_second_call_is_answered_by_the_table() {
    for mode in MODES {
        let elsewhere = match mode {
            MultiNodeReaderOnly
            | MultiNodeSingleWriter
            | MultiNodeMultiWriter
            | SingleNodeMultiWriter => Answer::Granted,
            SingleNodeWriter | SingleNodeReaderOnly | SingleNodeSingleWriter => Answer::Refused,
        };
        let other_arguments = |request: PublishVolume| PublishVolume { read_only: true, ..request };

        let bench = Bench::new();
        let id = staged(&bench, mode);
        let first = at(&id, TARGET, mode);
        assert_eq!(answer(&bench, &first), Answer::Granted, "{mode:?}");
        assert_eq!(answer(&bench, &first), Answer::Granted, "{mode:?}: same target, same");
        assert_eq!(
            answer(&bench, &other_arguments(first)),
            Answer::Clash,
            "{mode:?}: same target, other"
        );
        let second = at(&id, OTHER_TARGET, mode);
        assert_eq!(answer(&bench, &second), elsewhere, "{mode:?}: other target, same");
        let third = other_arguments(at(&id, "/targets/c", mode));
        assert_eq!(answer(&bench, &third), elsewhere, "{mode:?}: other target, other");
        let targets = if elsewhere == Answer::Granted { 3 } else { 1 };
        assert_eq!(bench.host.mounts().len(), 1 + targets, "{mode:?}");
        assert_eq!(bench.node_record(&id).publications.len(), targets, "{mode:?}");
    }
}

/// Open point 1: the same target is a clash, another target a refusal.
#[test]
fn another_capability_for_a_second_target_is_refused() {
    let bench = Bench::new();
    let ways = vec![mount(None, SingleNodeMultiWriter), mount(None, MultiNodeMultiWriter)];
    let id = bench
        .create_as(CreateVolume { capabilities: CapabilitySet::new(ways).unwrap(), ..volume("v") });
    bench.stage(&id);
    bench.engine.publish_volume(&at(&id, TARGET, SingleNodeMultiWriter)).unwrap();
    assert_eq!(answer(&bench, &at(&id, TARGET, MultiNodeMultiWriter)), Answer::Clash);
    assert_eq!(answer(&bench, &at(&id, OTHER_TARGET, MultiNodeMultiWriter)), Answer::Refused);
    // Flags and group belong to the workload, not to the way of using the volume.
    let flagged = PublishVolume {
        capability: mount_with(None, SingleNodeMultiWriter, &["noatime"], None),
        ..publish(&id, OTHER_TARGET)
    };
    assert_eq!(answer(&bench, &flagged), Answer::Granted);
}

#[test]
fn a_writer_and_a_reader_share_a_volume() {
    let bench = Bench::new();
    let id = staged(&bench, SingleNodeMultiWriter);
    bench.engine.publish_volume(&at(&id, TARGET, SingleNodeMultiWriter)).unwrap();
    let reading = PublishVolume { read_only: true, ..at(&id, OTHER_TARGET, SingleNodeMultiWriter) };
    bench.engine.publish_volume(&reading).unwrap();
    assert!(!is_read_only(&bench, TARGET));
    assert!(is_read_only(&bench, OTHER_TARGET));
}

#[test]
fn a_reader_cannot_write() {
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
        let bench = Bench::new();
        let id = staged(&bench, SingleNodeWriter);
        bench.engine.publish_volume(&way(reader(&id))).unwrap();
        assert!(is_read_only(&bench, TARGET), "{what}");
    }
}

#[test]
fn a_volume_that_is_not_staged_there_is_not_published() {
    let bench = Bench::new();
    let id = bench.create("v");
    refused!(bench.engine.publish_volume(&publish(&id, TARGET)), Error::Precondition(_));
    bench.stage(&id);
    let elsewhere = PublishVolume { way: staged_at("/staging/other"), ..publish(&id, TARGET) };
    refused!(bench.engine.publish_volume(&elsewhere), Error::Precondition(_));
    bench.host.ensure_unmounted(&path(STAGING)).unwrap();
    refused!(bench.engine.publish_volume(&publish(&id, TARGET)), Error::Precondition(_));
    assert_eq!(bench.host.mounts(), []);
    assert!(!bench.host.has_target(&path(TARGET)));
}

#[test]
fn what_the_volume_is_not_made_for_is_refused() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    for capability in [
        block(SingleNodeWriter),
        mount(Some(FsType::Ext4), SingleNodeWriter),
        mount(None, MultiNodeMultiWriter),
    ] {
        refused!(
            bench.engine.publish_volume(&PublishVolume { capability, ..publish(&id, TARGET) }),
            Error::Precondition(_)
        );
    }
    let wrong = PublishVolume { context: map(&[("pool", "other")]), ..publish(&id, TARGET) };
    refused!(bench.engine.publish_volume(&wrong), Error::Invalid { field: "volume_context", .. });
    let never = VolumeId::new(id.pool().clone(), NameDigest::of_text("never made"));
    refused!(bench.engine.publish_volume(&publish(&never, TARGET)), Error::NoSuchVolume(_));
    let foreign =
        PublishVolume { volume: VolumeRef::parse("another-drivers"), ..publish(&id, TARGET) };
    refused!(bench.engine.publish_volume(&foreign), Error::NoSuchVolume(_));
    assert_eq!(bench.host.mounts(), [path(STAGING)]);
}

#[test]
fn a_volume_staged_as_a_device_is_not_published_as_a_mount() {
    let bench = Bench::new();
    let ways = vec![mount(None, SingleNodeWriter), block(SingleNodeWriter)];
    let id = bench
        .create_as(CreateVolume { capabilities: CapabilitySet::new(ways).unwrap(), ..volume("v") });
    bench.engine.stage_volume(&stage_block(&id)).unwrap();
    refused!(bench.engine.publish_volume(&publish(&id, TARGET)), Error::Precondition(_));
    bench.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
}

#[test]
fn a_publication_that_fails_leaves_what_was_there_before() {
    for step in [Op::SaveRecord, Op::SetLimits, Op::BindDirectory] {
        let bench = Bench::new();
        let id = staged(&bench, SingleNodeMultiWriter);
        bench.engine.publish_volume(&at(&id, TARGET, SingleNodeMultiWriter)).unwrap();
        let before = (bench.host.mounts(), bench.node_record(&id));
        let broken = Error::failed("try", "broken on purpose");
        bench.host.fail_next(step, broken.clone());
        let second = at(&id, OTHER_TARGET, SingleNodeMultiWriter);
        assert_eq!(bench.engine.publish_volume(&second), Err(broken), "{step:?}");
        assert_eq!((bench.host.mounts(), bench.node_record(&id)), before, "{step:?}");
        bench.engine.publish_volume(&second).unwrap();
    }
}

#[test]
fn a_read_only_device_is_given_back_when_its_publication_fails() {
    for step in [Op::BindDevice, Op::SetLimits, Op::SaveRecord] {
        let bench = Bench::new();
        let id = bench.create_as(block_volume("v"));
        bench.engine.stage_volume(&stage_block(&id)).unwrap();
        bench.host.fail_next(step, Error::failed("try", "broken on purpose"));
        let reading = PublishVolume { read_only: true, ..publish_block(&id, TARGET) };
        bench.engine.publish_volume(&reading).unwrap_err();
        assert_eq!(bench.attached(&id, DeviceAccess::ReadOnly), None, "{step:?}");
        assert!(bench.node_record(&id).publications.is_empty(), "{step:?}");
    }
}

#[test]
fn a_block_device_stands_at_the_target() {
    let bench = Bench::new();
    let id = bench.create_as(block_volume("v"));
    bench.engine.stage_volume(&stage_block(&id)).unwrap();
    for _ in 0..2 {
        bench.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    }
    let there = bench.host.mount_at(&path(TARGET)).unwrap().unwrap();
    assert!(there.is_device_node && there.is_of(&bench.device(&id)));
    bench.unpublish(&id, TARGET).unwrap();
    bench.unstage(&id).unwrap();
    bench.assert_node_is_clean();
    assert!(!bench.host.has_target(&path(TARGET)));
}

/// A read-only bind of a device node does not stop writes, so the device itself must.
#[test]
fn a_read_only_block_device_is_another_device_with_the_same_limits() {
    let bench = Bench::new();
    let request = CreateVolume {
        capabilities: only(block(SingleNodeMultiWriter)),
        limits: limits(&[("writeIops", "50")]),
        ..volume("v")
    };
    let id = bench.create_as(request);
    let shared = block(SingleNodeMultiWriter);
    bench.engine.stage_volume(&StageVolume { capability: shared.clone(), ..stage(&id) }).unwrap();
    let writing = PublishVolume { capability: shared, ..publish(&id, TARGET) };
    let reading = PublishVolume { read_only: true, target: path(OTHER_TARGET), ..writing.clone() };
    bench.engine.publish_volume(&reading).unwrap();

    let read_only = bench.attached(&id, DeviceAccess::ReadOnly).unwrap();
    assert_ne!(read_only, bench.device(&id));
    assert!(bench.host.mount_at(&path(OTHER_TARGET)).unwrap().unwrap().is_of(&read_only));
    assert_eq!(bench.host.limits(&read_only).write_iops, Some(50));

    bench.unpublish(&id, OTHER_TARGET).unwrap();
    assert_eq!(bench.attached(&id, DeviceAccess::ReadOnly), None);
    assert!(bench.attached(&id, DeviceAccess::ReadWrite).is_some(), "still staged");
    assert!(bench.host.limits(&read_only).is_unlimited(), "the number goes to another volume");
}

/// Each of the two devices has its own page cache.
#[test]
fn a_raw_volume_has_readers_or_writers_not_both() {
    let bench = Bench::new();
    let shared = block(SingleNodeMultiWriter);
    let id = bench.create_as(CreateVolume { capabilities: only(shared.clone()), ..volume("v") });
    bench.engine.stage_volume(&StageVolume { capability: shared.clone(), ..stage(&id) }).unwrap();
    let writing = PublishVolume { capability: shared, ..publish(&id, TARGET) };
    let reading = PublishVolume { read_only: true, target: path(OTHER_TARGET), ..writing.clone() };
    for (first, second) in [(&writing, &reading), (&reading, &writing)] {
        bench.engine.publish_volume(first).unwrap();
        refused!(bench.engine.publish_volume(second), Error::Precondition(_));
        assert!(!bench.host.has_target(&second.target), "NP-37");
        let alike = PublishVolume { target: path("/pods/third"), ..first.clone() };
        bench.engine.publish_volume(&alike).unwrap();
        bench.engine.unpublish_volume(&first.volume, &alike.target).unwrap();
        bench.engine.unpublish_volume(&first.volume, &first.target).unwrap();
    }
    bench.engine.publish_volume(&writing).unwrap();
    assert_eq!(bench.attached(&id, DeviceAccess::ReadOnly), None);
}

/// A workload may hold the readers' device open longer than its publication lasts.
#[test]
fn a_reader_that_lingers_keeps_writers_away() {
    let bench = Bench::new();
    let id = bench.create_as(block_volume("v"));
    bench.engine.stage_volume(&stage_block(&id)).unwrap();
    bench.pool().devices().ensure_attached(&id, DeviceAccess::ReadOnly).unwrap();
    bench.pool().fail_next("ensure_detached", Error::precondition("somebody has it open"));
    refused!(bench.engine.publish_volume(&publish_block(&id, TARGET)), Error::Precondition(_));
    bench.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    assert_eq!(bench.attached(&id, DeviceAccess::ReadOnly), None);
}

#[test]
fn unpublishing_leaves_the_other_targets() {
    let bench = Bench::new();
    let id = staged(&bench, SingleNodeMultiWriter);
    for target in [TARGET, OTHER_TARGET] {
        bench.engine.publish_volume(&at(&id, target, SingleNodeMultiWriter)).unwrap();
    }
    for _ in 0..2 {
        bench.unpublish(&id, TARGET).unwrap();
        assert_eq!(bench.host.mounts(), [path(STAGING), path(OTHER_TARGET)]);
        assert!(!bench.host.has_target(&path(TARGET)), "NN-03");
    }
    assert_eq!(bench.node_record(&id).publications.len(), 1);
}

#[test]
fn unpublishing_what_is_not_published_is_fine() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.unpublish(&id, TARGET).unwrap();
    let never = issued(&VolumeId::new(id.pool().clone(), NameDigest::of_text("never made")));
    for unknown in [never, VolumeRef::parse("another-drivers")] {
        bench.engine.unpublish_volume(&unknown, &path(TARGET)).unwrap();
    }
}

#[test]
fn a_target_that_its_caller_made_can_be_left_to_it() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    for _ in 0..2 {
        bench.engine.unpublish_volume_keeping_target(&issued(&id), &path(TARGET)).unwrap();
        assert!(!bench.host.mounts().contains(&path(TARGET)));
        assert!(bench.host.has_target(&path(TARGET)), "V0-29");
    }
    // An empty one that was there before is used (NP-39) and goes with the publication.
    bench.publish(&id);
    bench.unpublish(&id, TARGET).unwrap();
    assert!(!bench.host.has_target(&path(TARGET)), "NN-03");
}

#[test]
fn unpublishing_what_was_never_published_leaves_the_path_alone() {
    let bench = Bench::new();
    let [first, other] = ["first", "other"].map(|name| bench.create(name));
    bench.stage(&first);
    bench.publish(&first);
    bench.engine.unpublish_volume_keeping_target(&issued(&first), &path(TARGET)).unwrap();
    for volume in [issued(&other), VolumeRef::parse("another-drivers")] {
        bench.engine.unpublish_volume(&volume, &path(TARGET)).unwrap();
        assert!(bench.host.has_target(&path(TARGET)));
    }
}

#[test]
fn a_damaged_record_does_not_keep_a_workload_from_ending() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    bench.pool().damage_volume(&id, "torn");
    for _ in 0..2 {
        bench.unpublish(&id, TARGET).unwrap();
    }
    bench.unstage(&id).unwrap();
    bench.assert_node_is_clean();
}

#[test]
fn unpublishing_does_not_touch_what_belongs_to_others() {
    let bench = Bench::new();
    let [mine, other] = ["mine", "other"].map(|name| bench.create(name));
    bench.stage(&mine);
    bench.publish(&mine);
    // NN-04: it is not published there.
    bench.unpublish(&other, TARGET).unwrap();
    let never = issued(&VolumeId::new(mine.pool().clone(), NameDigest::of_text("never made")));
    for unknown in [never, VolumeRef::parse("another-drivers")] {
        refused!(bench.engine.unpublish_volume(&unknown, &path(TARGET)), Error::NoSuchVolume(_));
    }
    assert_eq!(bench.host.mounts().len(), 2);
}

/// As after an unmount by hand: one record still names the path, another volume is there by now.
#[test]
fn a_publication_of_another_volume_is_not_taken_away() {
    let bench = Bench::new();
    let [first, second] = ["first", "second"].map(|name| bench.create_as(block_volume(name)));
    bench.engine.stage_volume(&stage_block(&first)).unwrap();
    bench.engine.publish_volume(&publish_block(&first, TARGET)).unwrap();
    bench.host.ensure_unmounted(&path(TARGET)).unwrap();
    let elsewhere = path("/staging/second");
    let staged = StageVolume { path: elsewhere.clone(), ..stage_block(&second) };
    bench.engine.stage_volume(&staged).unwrap();
    let request = PublishVolume {
        way: PublishWay::Staged { staging: elsewhere },
        ..publish_block(&second, TARGET)
    };
    bench.engine.publish_volume(&request).unwrap();
    for _ in 0..2 {
        bench.unpublish(&first, TARGET).unwrap();
        let there = bench.host.mount_at(&path(TARGET)).unwrap().expect("it was taken away");
        assert!(there.is_of(&bench.device(&second)));
    }
    bench.unstage(&first).unwrap();
    bench.unpublish(&second, TARGET).unwrap();
    assert!(!bench.host.has_target(&path(TARGET)));
}

#[test]
fn a_target_that_another_volume_has_is_not_taken() {
    let bench = Bench::new();
    let [mine, other] = ["mine", "other"].map(|name| bench.create(name));
    bench.stage(&mine);
    bench.publish(&mine);
    let elsewhere = path("/staging/other");
    bench.engine.stage_volume(&StageVolume { path: elsewhere.clone(), ..stage(&other) }).unwrap();
    let request =
        PublishVolume { way: PublishWay::Staged { staging: elsewhere }, ..publish(&other, TARGET) };
    refused!(bench.engine.publish_volume(&request), Error::Precondition(_));
    assert!(bench.node_record(&other).publications.is_empty());
    assert!(bench.host.mount_at(&path(TARGET)).unwrap().unwrap().is_of(&bench.device(&mine)));
}

#[test]
fn a_publication_that_vanished_does_not_count() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    bench.host.ensure_unmounted(&path(TARGET)).unwrap();
    // Not the table's "another target": nothing is published any more.
    bench.engine.publish_volume(&publish(&id, OTHER_TARGET)).unwrap();
    assert_eq!(bench.node_record(&id).publications.len(), 1);
}

#[test]
fn everything_is_answered_the_same_after_a_restart() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    let before = (bench.host.mounts(), bench.node_record(&id));
    bench.restart();
    bench.stage(&id);
    bench.publish(&id);
    assert_eq!((bench.host.mounts(), bench.node_record(&id)), before);
    let other = PublishVolume { read_only: true, ..publish(&id, TARGET) };
    refused!(bench.engine.publish_volume(&other), Error::Conflict { .. });
    bench.unpublish(&id, TARGET).unwrap();
    bench.unstage(&id).unwrap();
    bench.assert_node_is_clean();
}
