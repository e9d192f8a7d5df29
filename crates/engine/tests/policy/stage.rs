//! NodeStageVolume and NodeUnstageVolume: once, whole, or not at all.

use orlop_engine::request::{CreateVolume, PublishContext, StageVolume, VolumeRef};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{DeviceAccess, Error, FsType, Host, NameDigest, VolumeId};

use crate::bench::*;

#[test]
fn a_stage_is_made_once() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.stage(&id);
    assert_eq!(bench.host.mounts(), [path(STAGING)]);
    assert_eq!(bench.host.count(Op::Format), 1);
    assert_eq!(bench.host.count(Op::Mount), 1);
    assert_eq!(bench.node_record(&id).stage.unwrap().path, path(STAGING));
}

#[test]
fn a_private_stage_is_not_for_callers() {
    let bench = Bench::new();
    let id = bench.create("v");
    let private = StageVolume { path: bench.host.private_stage(&id).unwrap(), ..stage(&id) };
    refused!(bench.engine.stage_volume(&private), Error::Invalid { .. });
    bench.assert_node_is_clean();
}

#[test]
fn the_same_effect_is_the_same_stage() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    let named =
        StageVolume { capability: mount(Some(FsType::Xfs), SingleNodeWriter), ..stage(&id) };
    bench.engine.stage_volume(&named).unwrap();
    assert_eq!(bench.host.count(Op::Mount), 1);
}

#[test]
fn another_use_at_the_same_path_is_a_clash() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    let others = [
        ("flags", mount_with(None, SingleNodeWriter, &["noatime"], None)),
        ("group", mount_with(None, SingleNodeWriter, &[], Some(7))),
        ("reading", mount(None, SingleNodeReaderOnly)),
    ];
    for (what, capability) in others {
        let error =
            bench.engine.stage_volume(&StageVolume { capability, ..stage(&id) }).expect_err(what);
        assert!(matches!(error, Error::Conflict { .. }), "{what}: {error:?}");
    }
    let read_only = StageVolume { publish: PublishContext { read_only: true }, ..stage(&id) };
    refused!(bench.engine.stage_volume(&read_only), Error::Conflict { .. });
}

#[test]
fn a_volume_is_staged_at_one_path_only() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    let elsewhere = StageVolume { path: path("/staging/other"), ..stage(&id) };
    let error = refused!(bench.engine.stage_volume(&elsewhere), Error::Precondition(_));
    assert!(error.to_string().contains(STAGING));
    assert_eq!(bench.host.mounts(), [path(STAGING)]);
}

#[test]
fn what_the_volume_is_not_made_for_is_refused_before_anything_happens() {
    let bench = Bench::new();
    let id = bench.create("v");
    for capability in [
        block(SingleNodeWriter),
        mount(Some(FsType::Ext4), SingleNodeWriter),
        mount(None, MultiNodeMultiWriter),
    ] {
        refused!(
            bench.engine.stage_volume(&StageVolume { capability, ..stage(&id) }),
            Error::Precondition(_)
        );
    }
    let wrong = StageVolume { context: map(&[("pool", "other")]), ..stage(&id) };
    refused!(bench.engine.stage_volume(&wrong), Error::Invalid { field: "volume_context", .. });
    let never = VolumeId::new(id.pool().clone(), NameDigest::of_text("never made"));
    refused!(bench.engine.stage_volume(&stage(&never)), Error::NoSuchVolume(_));
    bench.assert_node_is_clean();
}

/// Each step fails once; whatever was done before it is taken back, and a repetition succeeds.
#[test]
fn a_stage_that_fails_leaves_nothing() {
    let steps = [
        Op::SaveRecord,
        Op::Probe,
        Op::DrawUuid,
        Op::Format,
        Op::GrowUnmounted,
        Op::Mount,
        Op::GrowMounted,
        Op::SetGroup,
        Op::SetLimits,
    ];
    for step in steps {
        let bench = Bench::new();
        let id =
            bench.create_as(CreateVolume { limits: limits(&[("readIops", "100")]), ..volume("v") });
        let request = StageVolume {
            capability: mount_with(None, SingleNodeWriter, &[], Some(7)),
            ..stage(&id)
        };
        let broken = Error::failed("try", "broken on purpose");
        bench.host.fail_next(step, broken.clone());
        assert_eq!(bench.engine.stage_volume(&request), Err(broken), "{step:?}");
        bench.assert_node_is_clean();

        bench
            .engine
            .stage_volume(&request)
            .unwrap_or_else(|error| panic!("after {step:?}: {error}"));
        assert_eq!(bench.host.group(&path(STAGING)), Some(7), "{step:?}");
        assert_eq!(bench.host.limits(&bench.device(&id)).read_iops, Some(100), "{step:?}");
    }
}

#[test]
fn a_stage_whose_device_cannot_be_had_leaves_nothing() {
    let bench = Bench::new();
    let id = bench.create("v");
    let broken = Error::failed("attach", "broken on purpose");
    bench.pool().fail_next("ensure_attached", broken.clone());
    assert_eq!(bench.engine.stage_volume(&stage(&id)), Err(broken));
    bench.assert_node_is_clean();
    bench.stage(&id);
}

#[test]
fn reading_stages_are_grown_before_they_turn_read_only() {
    for (what, request) in [
        ("mode", |id: &VolumeId| StageVolume {
            capability: mount(None, SingleNodeReaderOnly),
            ..stage(id)
        }),
        ("flag", |id: &VolumeId| StageVolume {
            capability: mount_with(None, SingleNodeWriter, &["ro"], None),
            ..stage(id)
        }),
        ("publish context", |id: &VolumeId| StageVolume {
            publish: PublishContext { read_only: true },
            ..stage(id)
        }),
    ] as [(&str, fn(&VolumeId) -> StageVolume); 3]
    {
        let bench = Bench::new();
        let id = bench.create("v");
        bench.engine.stage_volume(&request(&id)).unwrap();
        let there = bench.host.mount_at(&path(STAGING)).unwrap().unwrap();
        assert!(there.read_only && there.filesystem_read_only, "{what}");
        assert_eq!(bench.host.count(Op::Mount), 2, "{what}: writable to grow, then read-only");
        bench.engine.stage_volume(&request(&id)).unwrap();
        assert_eq!(bench.host.count(Op::Mount), 2, "{what}: repeated");
    }
}

#[test]
fn a_staged_block_volume_is_a_device_and_no_mount() {
    let bench = Bench::new();
    let id = bench.create_as(block_volume("v"));
    bench.engine.stage_volume(&stage_block(&id)).unwrap();
    bench.engine.stage_volume(&stage_block(&id)).unwrap();
    assert_eq!(bench.host.mounts(), []);
    assert!(bench.attached(&id, DeviceAccess::ReadWrite).is_some());
    assert_eq!(bench.host.count(Op::Format), 0);
    bench.unstage(&id).unwrap();
    bench.assert_node_is_clean();
}

#[test]
fn a_block_volume_that_is_only_read_has_a_device_that_refuses_writes() {
    let bench = Bench::new();
    let id = bench.create_as(block_volume("v"));
    let reading = StageVolume { capability: block(SingleNodeReaderOnly), ..stage(&id) };
    bench.engine.stage_volume(&reading).unwrap();
    assert_eq!(bench.attached(&id, DeviceAccess::ReadWrite), None);
    assert!(bench.attached(&id, DeviceAccess::ReadOnly).is_some());
}

#[test]
fn unstaging_undoes_everything_and_may_be_repeated() {
    let bench = Bench::new();
    let id =
        bench.create_as(CreateVolume { limits: limits(&[("readIops", "100")]), ..volume("v") });
    bench.stage(&id);
    let device = bench.device(&id);
    bench.unstage(&id).unwrap();
    bench.assert_node_is_clean();
    assert!(bench.host.limits(&device).is_unlimited(), "the number goes to another volume");
    bench.unstage(&id).unwrap();
    bench.stage(&id);
    assert_eq!(bench.host.count(Op::Format), 1);
    assert_eq!(bench.host.limits(&bench.device(&id)).read_iops, Some(100));
}

#[test]
fn a_published_volume_is_not_unstaged() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    let error = refused!(bench.unstage(&id), Error::Precondition(_));
    assert!(error.to_string().contains(TARGET));
    assert_eq!(bench.host.mounts().len(), 2);
    bench.unpublish(&id, TARGET).unwrap();
    bench.unstage(&id).unwrap();
    bench.assert_node_is_clean();
}

#[test]
fn unstaging_where_nothing_is_staged_is_fine() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.unstage(&id).unwrap();
    bench.stage(&id);
    let elsewhere = path("/staging/other");
    bench.engine.unstage_volume(&issued(&id), &elsewhere).unwrap();
    assert_eq!(bench.host.mounts(), [path(STAGING)]);

    let never = issued(&VolumeId::new(id.pool().clone(), NameDigest::of_text("never made")));
    let foreign = VolumeRef::parse("another-drivers");
    for unknown in [never, foreign] {
        bench.engine.unstage_volume(&unknown, &elsewhere).unwrap();
        refused!(bench.engine.unstage_volume(&unknown, &path(STAGING)), Error::NoSuchVolume(_));
    }
    assert_eq!(bench.host.mounts(), [path(STAGING)]);
}

#[test]
fn a_mount_of_another_volume_is_left_alone() {
    let bench = Bench::new();
    let [mine, other] = ["mine", "other"].map(|name| bench.create(name));
    bench.stage(&other);
    refused!(bench.unstage(&mine), Error::Precondition(_));
    refused!(bench.engine.stage_volume(&stage(&mine)), Error::Precondition(_));
    assert_eq!(bench.host.mounts(), [path(STAGING)]);
    assert!(bench.node_record(&mine).is_empty());
    assert_eq!(bench.attached(&mine, DeviceAccess::ReadWrite), None);
}

#[test]
fn after_a_reboot_a_volume_is_staged_again_and_not_formatted_again() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    bench.host.reboot();
    bench.pool().reboot();
    bench.restart();
    bench.stage(&id);
    assert_eq!(bench.host.count(Op::Format), 1);
    assert_eq!(bench.host.mounts(), [path(STAGING)]);
}

#[test]
fn a_mount_that_vanished_is_made_again() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.host.ensure_unmounted(&path(STAGING)).unwrap();
    bench.stage(&id);
    assert_eq!(bench.host.mounts(), [path(STAGING)]);
}
