//! NodeStageVolume and NodeUnstageVolume: once, whole, or not at all.

use orlop_engine::request::{CreateVolume, PublishContext, StageVolume, VolumeRef};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{DeviceAccess, Error, FsType, HostMounts, NameDigest, VolumeId};

use crate::fixture::*;

#[test]
fn stage_is_idempotent() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.stage(&id);
    assert_eq!(fixture.host.mounts(), [path(STAGING)]);
    assert_eq!(fixture.host.count(Op::Format), 1);
    assert_eq!(fixture.host.count(Op::Mount), 1);
    assert_eq!(fixture.node_record(&id).stage.unwrap().path, path(STAGING));
}

#[test]
fn private_staging_path_is_refused() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let private = StageVolume { path: fixture.host.private_stage(&id).unwrap(), ..stage(&id) };
    refused!(fixture.engine.stage_volume(&private), Error::Invalid { .. });
    fixture.assert_node_is_clean();
}

#[test]
fn equivalent_capability_is_the_same_stage() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    let named =
        StageVolume { capability: mount(Some(FsType::Xfs), SingleNodeWriter), ..stage(&id) };
    fixture.engine.stage_volume(&named).unwrap();
    assert_eq!(fixture.host.count(Op::Mount), 1);
}

#[test]
fn another_use_at_the_same_path_conflicts() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    let others = [
        ("flags", mount_with(None, SingleNodeWriter, &["noatime"], None)),
        ("group", mount_with(None, SingleNodeWriter, &[], Some(7))),
        ("reading", mount(None, SingleNodeReaderOnly)),
    ];
    for (what, capability) in others {
        let error =
            fixture.engine.stage_volume(&StageVolume { capability, ..stage(&id) }).expect_err(what);
        assert!(matches!(error, Error::Conflict { .. }), "{what}: {error:?}");
    }
    let read_only = StageVolume { publish: PublishContext { read_only: true }, ..stage(&id) };
    refused!(fixture.engine.stage_volume(&read_only), Error::Conflict { .. });
}

#[test]
fn a_volume_is_staged_at_one_path_only() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    let elsewhere = StageVolume { path: path("/staging/other"), ..stage(&id) };
    let error = refused!(fixture.engine.stage_volume(&elsewhere), Error::Precondition(_));
    assert!(error.to_string().contains(STAGING));
    assert_eq!(fixture.host.mounts(), [path(STAGING)]);
}

#[test]
fn unsupported_stage_is_refused_without_side_effects() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    for capability in [
        block(SingleNodeWriter),
        mount(Some(FsType::Ext4), SingleNodeWriter),
        mount(None, MultiNodeMultiWriter),
    ] {
        refused!(
            fixture.engine.stage_volume(&StageVolume { capability, ..stage(&id) }),
            Error::Precondition(_)
        );
    }
    let wrong = StageVolume { context: map(&[("pool", "other")]), ..stage(&id) };
    refused!(fixture.engine.stage_volume(&wrong), Error::Invalid { field: "volume_context", .. });
    let never = VolumeId::new(id.pool().clone(), NameDigest::of_text("never made"));
    refused!(fixture.engine.stage_volume(&stage(&never)), Error::NoSuchVolume(_));
    fixture.assert_node_is_clean();
}

/// Each step fails once; whatever was done before it is taken back, and a repetition succeeds.
#[test]
fn failed_stage_leaves_nothing() {
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
        let fixture = Fixture::new();
        let id = fixture
            .create_as(CreateVolume { limits: limits(&[("readIops", "100")]), ..volume("v") });
        let request = StageVolume {
            capability: mount_with(None, SingleNodeWriter, &[], Some(7)),
            ..stage(&id)
        };
        let broken = Error::failed("try", "broken on purpose");
        fixture.host.fail_next(step, broken.clone());
        assert_eq!(fixture.engine.stage_volume(&request), Err(broken), "{step:?}");
        fixture.assert_node_is_clean();

        fixture
            .engine
            .stage_volume(&request)
            .unwrap_or_else(|error| panic!("after {step:?}: {error}"));
        assert_eq!(fixture.host.group(&path(STAGING)), Some(7), "{step:?}");
        assert_eq!(fixture.host.limits(&fixture.device(&id)).read_iops, Some(100), "{step:?}");
    }
}

#[test]
fn failed_attach_leaves_nothing() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let broken = Error::failed("attach", "broken on purpose");
    fixture.pool().fail_next("ensure_attached", broken.clone());
    assert_eq!(fixture.engine.stage_volume(&stage(&id)), Err(broken));
    fixture.assert_node_is_clean();
    fixture.stage(&id);
}

#[test]
fn read_only_stage_grows_before_it_is_read_only() {
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
        let fixture = Fixture::new();
        let id = fixture.create("v");
        fixture.engine.stage_volume(&request(&id)).unwrap();
        let there = fixture.host.mount_at(&path(STAGING)).unwrap().unwrap();
        assert!(there.read_only && there.filesystem_read_only, "{what}");
        assert_eq!(fixture.host.count(Op::Mount), 2, "{what}: writable to grow, then read-only");
        fixture.engine.stage_volume(&request(&id)).unwrap();
        assert_eq!(fixture.host.count(Op::Mount), 2, "{what}: repeated");
    }
}

#[test]
fn block_stage_attaches_without_a_mount() {
    let fixture = Fixture::new();
    let id = fixture.create_as(block_volume("v"));
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    assert_eq!(fixture.host.mounts(), []);
    assert!(fixture.attached(&id, DeviceAccess::ReadWrite).is_some());
    assert_eq!(fixture.host.count(Op::Format), 0);
    fixture.unstage(&id).unwrap();
    fixture.assert_node_is_clean();
}

#[test]
fn read_only_block_stage_has_a_read_only_device() {
    let fixture = Fixture::new();
    let id = fixture.create_as(block_volume("v"));
    let reading = StageVolume { capability: block(SingleNodeReaderOnly), ..stage(&id) };
    fixture.engine.stage_volume(&reading).unwrap();
    assert_eq!(fixture.attached(&id, DeviceAccess::ReadWrite), None);
    assert!(fixture.attached(&id, DeviceAccess::ReadOnly).is_some());
}

#[test]
fn unstage_undoes_everything_and_is_idempotent() {
    let fixture = Fixture::new();
    let id =
        fixture.create_as(CreateVolume { limits: limits(&[("readIops", "100")]), ..volume("v") });
    fixture.stage(&id);
    let device = fixture.device(&id);
    fixture.unstage(&id).unwrap();
    fixture.assert_node_is_clean();
    assert!(fixture.host.limits(&device).is_unlimited(), "the number goes to another volume");
    fixture.unstage(&id).unwrap();
    fixture.stage(&id);
    assert_eq!(fixture.host.count(Op::Format), 1);
    assert_eq!(fixture.host.limits(&fixture.device(&id)).read_iops, Some(100));
}

#[test]
fn a_published_volume_is_not_unstaged() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    let error = refused!(fixture.unstage(&id), Error::Precondition(_));
    assert!(error.to_string().contains(TARGET));
    assert_eq!(fixture.host.mounts().len(), 2);
    fixture.unpublish(&id, TARGET).unwrap();
    fixture.unstage(&id).unwrap();
    fixture.assert_node_is_clean();
}

#[test]
fn unstage_of_an_unstaged_path_succeeds() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.unstage(&id).unwrap();
    fixture.stage(&id);
    let elsewhere = path("/staging/other");
    fixture.engine.unstage_volume(&issued(&id), &elsewhere).unwrap();
    assert_eq!(fixture.host.mounts(), [path(STAGING)]);

    let never = issued(&VolumeId::new(id.pool().clone(), NameDigest::of_text("never made")));
    let foreign = VolumeRef::parse("another-drivers");
    for unknown in [never, foreign] {
        fixture.engine.unstage_volume(&unknown, &elsewhere).unwrap();
        refused!(fixture.engine.unstage_volume(&unknown, &path(STAGING)), Error::NoSuchVolume(_));
    }
    assert_eq!(fixture.host.mounts(), [path(STAGING)]);
}

#[test]
fn foreign_mount_is_left_alone() {
    let fixture = Fixture::new();
    let [mine, other] = ["mine", "other"].map(|name| fixture.create(name));
    fixture.stage(&other);
    refused!(fixture.unstage(&mine), Error::Precondition(_));
    refused!(fixture.engine.stage_volume(&stage(&mine)), Error::Precondition(_));
    assert_eq!(fixture.host.mounts(), [path(STAGING)]);
    assert!(fixture.node_record(&mine).is_empty());
    assert_eq!(fixture.attached(&mine, DeviceAccess::ReadWrite), None);
}

#[test]
fn restage_after_reboot_does_not_format() {
    let mut fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    fixture.host.reboot();
    fixture.pool().reboot();
    fixture.restart();
    fixture.stage(&id);
    assert_eq!(fixture.host.count(Op::Format), 1);
    assert_eq!(fixture.host.mounts(), [path(STAGING)]);
}

#[test]
fn vanished_mount_is_restored() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.host.ensure_unmounted(&path(STAGING)).unwrap();
    fixture.stage(&id);
    assert_eq!(fixture.host.mounts(), [path(STAGING)]);
}

/// Its device is the only way to the data that was lost: nothing is detached then, and the call that
/// comes again when it was saved finds everything as it was.
#[test]
fn a_refused_detachment_leaves_the_stage_whole() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    let staged = fixture.node_record(&id);
    fixture.pool().fail_next("check_detachable", Error::precondition("the only copy"));
    refused!(fixture.unstage(&id), Error::Precondition(_));
    assert_eq!(fixture.host.mounts(), [path(STAGING)]);
    assert_eq!(fixture.node_record(&id), staged);
    fixture.unstage(&id).unwrap();
    fixture.assert_node_is_clean();
}
