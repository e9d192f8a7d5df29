//! ControllerModifyVolume: limits on record, and live on whatever is attached.

use orlop_engine::request::{CreateVolume, PublishVolume};
use orlop_host::memory::Op;
use orlop_model::{DeviceAccess, Error, HostLimits, IoLimits, NameDigest, VolumeId};

use crate::fixture::*;

fn reads(iops: u64) -> IoLimits {
    IoLimits { read_iops: Some(iops), ..IoLimits::default() }
}

#[test]
fn staged_volume_is_limited_at_once() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    for _ in 0..2 {
        fixture.engine.modify_volume(&id, &limits(&[("readIops", "100")])).unwrap();
        assert_eq!(fixture.host.limits(&fixture.device(&id)), reads(100));
        assert_eq!(fixture.record(&id).limits, reads(100));
    }
}

#[test]
fn unstaged_volume_is_limited_by_stage() {
    let mut fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.engine.modify_volume(&id, &limits(&[("readIops", "100")])).unwrap();
    fixture.restart();
    fixture.stage(&id);
    assert_eq!(fixture.host.limits(&fixture.device(&id)), reads(100));
}

/// MV-09: what is not named stays; 0 and max lift.
#[test]
fn only_named_limits_change() {
    let fixture = Fixture::new();
    let id = fixture.create_as(CreateVolume {
        limits: limits(&[("readIops", "100"), ("writeBytesPerSecond", "1048576")]),
        ..volume("v")
    });
    fixture.stage(&id);
    fixture.engine.modify_volume(&id, &limits(&[("readIops", "200")])).unwrap();
    let expected = IoLimits { write_bytes_per_second: Some(MIB), ..reads(200) };
    assert_eq!(fixture.host.limits(&fixture.device(&id)), expected);
    fixture
        .engine
        .modify_volume(&id, &limits(&[("readIops", "max"), ("writeBytesPerSecond", "0")]))
        .unwrap();
    assert!(fixture.host.limits(&fixture.device(&id)).is_unlimited());
    assert!(fixture.record(&id).limits.is_unlimited());
}

#[test]
fn every_device_of_the_volume_is_limited() {
    let fixture = Fixture::new();
    let id = fixture.create_as(block_volume("v"));
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    let reading = PublishVolume { read_only: true, ..publish_block(&id, TARGET) };
    fixture.engine.publish_volume(&reading).unwrap();
    fixture.engine.modify_volume(&id, &limits(&[("readIops", "100")])).unwrap();
    for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
        assert_eq!(
            fixture.host.limits(&fixture.attached(&id, access).unwrap()),
            reads(100),
            "{access:?}"
        );
    }
}

#[test]
fn modify_is_refused_where_limits_are_unsupported() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.host.fail_next(Op::CheckLimits, Error::precondition("no cgroup"));
    refused!(
        fixture.engine.modify_volume(&id, &limits(&[("readIops", "100")])),
        Error::Precondition(_)
    );
    assert!(fixture.record(&id).limits.is_unlimited());
}

#[test]
fn repeated_modify_applies_a_failed_change() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    let change = limits(&[("readIops", "100")]);
    fixture.host.fail_next(Op::SetLimits, Error::failed("write", "broken on purpose"));
    fixture.engine.modify_volume(&id, &change).unwrap_err();
    fixture.engine.modify_volume(&id, &change).unwrap();
    assert_eq!(fixture.host.limits(&fixture.device(&id)), reads(100));
}

#[test]
fn modify_keeps_the_volume_context() {
    let fixture = Fixture::new();
    let created = fixture.engine.create_volume(&volume("v")).unwrap();
    let id = created.record.id;
    fixture.engine.modify_volume(&id, &limits(&[("readIops", "100")])).unwrap();
    let now = fixture.engine.volume_status(&id).unwrap().volume.unwrap();
    assert_eq!(now.context, created.context);
}

#[test]
fn an_unknown_volume_is_not_found() {
    let fixture = Fixture::new();
    let never =
        VolumeId::new(fixture.create("v").pool().clone(), NameDigest::of_text("never made"));
    refused!(
        fixture.engine.modify_volume(&never, &limits(&[("readIops", "1")])),
        Error::NoSuchVolume(_)
    );
}

/// The record is already unlimited before the device is; a device number with a limit that
/// no record has would slow the next volume that gets it.
#[test]
fn unstage_lifts_a_limit_that_could_not_be_lifted() {
    let fixture = Fixture::new();
    let id =
        fixture.create_as(CreateVolume { limits: limits(&[("readIops", "100")]), ..volume("v") });
    fixture.stage(&id);
    let device = fixture.device(&id);
    fixture.host.fail_next(Op::SetLimits, Error::failed("write", "broken on purpose"));
    fixture.engine.modify_volume(&id, &limits(&[("readIops", "max")])).unwrap_err();
    fixture.unstage(&id).unwrap();
    assert!(fixture.host.limits(&device).is_unlimited());
}

/// As `losetup --detach` by hand leaves them: the number keeps its limits until it is used again.
#[test]
fn publish_clears_limits_of_an_earlier_device() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    let device = fixture.device(&id);
    fixture.unstage(&id).unwrap();
    fixture.host.ensure_limits(&device, &reads(100)).unwrap();
    fixture.stage(&id);
    fixture.publish(&id);
    assert_eq!(fixture.device(&id), device);
    assert!(fixture.host.limits(&device).is_unlimited());
}

/// The workloads' cgroup may have been made again since, and then the kernel has forgotten them.
#[test]
fn a_start_sets_the_limits_that_the_records_have() {
    let mut fixture = Fixture::new();
    let limited = CreateVolume { limits: limits(&[("readIops", "100")]), ..volume("v") };
    let id = fixture.create_as(limited);
    fixture.stage(&id);
    let device = fixture.device(&id);
    fixture.host.ensure_limits(&device, &IoLimits::default()).unwrap();
    fixture.restart();
    assert_eq!(fixture.host.limits(&device), reads(100));
    // And takes away what they do not have.
    fixture.engine.modify_volume(&id, &limits(&[("readIops", "0")])).unwrap();
    fixture.host.ensure_limits(&device, &reads(7)).unwrap();
    fixture.restart();
    assert_eq!(fixture.host.limits(&device), IoLimits::default());
}
