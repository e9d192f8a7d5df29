//! ControllerModifyVolume: limits on record, and live on whatever is attached.

use orlop_engine::request::{CreateVolume, PublishVolume};
use orlop_host::memory::Op;
use orlop_model::{DeviceAccess, Error, Host, IoLimits, NameDigest, VolumeId};

use crate::bench::*;

fn reads(iops: u64) -> IoLimits {
    IoLimits { read_iops: Some(iops), ..IoLimits::default() }
}

#[test]
fn a_staged_volume_feels_the_change_at_once() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    for _ in 0..2 {
        bench.engine.modify_volume(&id, &limits(&[("readIops", "100")])).unwrap();
        assert_eq!(bench.host.limits(&bench.device(&id)), reads(100));
        assert_eq!(bench.record(&id).limits, reads(100));
    }
}

#[test]
fn a_volume_at_rest_feels_it_when_it_is_staged() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    bench.engine.modify_volume(&id, &limits(&[("readIops", "100")])).unwrap();
    bench.restart();
    bench.stage(&id);
    assert_eq!(bench.host.limits(&bench.device(&id)), reads(100));
}

/// MV-09: what is not named stays; 0 and max lift.
#[test]
fn only_what_is_named_changes() {
    let bench = Bench::new();
    let id = bench.create_as(CreateVolume {
        limits: limits(&[("readIops", "100"), ("writeBytesPerSecond", "1048576")]),
        ..volume("v")
    });
    bench.stage(&id);
    bench.engine.modify_volume(&id, &limits(&[("readIops", "200")])).unwrap();
    let expected = IoLimits { write_bytes_per_second: Some(MIB), ..reads(200) };
    assert_eq!(bench.host.limits(&bench.device(&id)), expected);
    bench
        .engine
        .modify_volume(&id, &limits(&[("readIops", "max"), ("writeBytesPerSecond", "0")]))
        .unwrap();
    assert!(bench.host.limits(&bench.device(&id)).is_unlimited());
    assert!(bench.record(&id).limits.is_unlimited());
}

#[test]
fn every_device_of_the_volume_is_limited() {
    let bench = Bench::new();
    let id = bench.create_as(block_volume("v"));
    bench.engine.stage_volume(&stage_block(&id)).unwrap();
    let reading = PublishVolume { read_only: true, ..publish_block(&id, TARGET) };
    bench.engine.publish_volume(&reading).unwrap();
    bench.engine.modify_volume(&id, &limits(&[("readIops", "100")])).unwrap();
    for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
        assert_eq!(
            bench.host.limits(&bench.attached(&id, access).unwrap()),
            reads(100),
            "{access:?}"
        );
    }
}

#[test]
fn nothing_changes_where_limits_do_not_work() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.host.fail_next(Op::CheckLimits, Error::precondition("no cgroup"));
    refused!(
        bench.engine.modify_volume(&id, &limits(&[("readIops", "100")])),
        Error::Precondition(_)
    );
    assert!(bench.record(&id).limits.is_unlimited());
}

#[test]
fn a_change_that_did_not_reach_the_device_reaches_it_with_the_repeated_call() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    let change = limits(&[("readIops", "100")]);
    bench.host.fail_next(Op::SetLimits, Error::failed("write", "broken on purpose"));
    bench.engine.modify_volume(&id, &change).unwrap_err();
    bench.engine.modify_volume(&id, &change).unwrap();
    assert_eq!(bench.host.limits(&bench.device(&id)), reads(100));
}

#[test]
fn the_context_stays_as_it_was() {
    let bench = Bench::new();
    let created = bench.engine.create_volume(&volume("v")).unwrap();
    let id = created.record.id;
    bench.engine.modify_volume(&id, &limits(&[("readIops", "100")])).unwrap();
    let now = bench.engine.volume_status(&id).unwrap().volume.unwrap();
    assert_eq!(now.context, created.context);
}

#[test]
fn an_unknown_volume_is_not_found() {
    let bench = Bench::new();
    let never = VolumeId::new(bench.create("v").pool().clone(), NameDigest::of_text("never made"));
    refused!(
        bench.engine.modify_volume(&never, &limits(&[("readIops", "1")])),
        Error::NoSuchVolume(_)
    );
}

/// The record is already unlimited when the device is changed; a device number with a forgotten
/// limit would slow whichever volume gets it next.
#[test]
fn a_limit_that_could_not_be_lifted_goes_with_the_stage() {
    let bench = Bench::new();
    let id =
        bench.create_as(CreateVolume { limits: limits(&[("readIops", "100")]), ..volume("v") });
    bench.stage(&id);
    let device = bench.device(&id);
    bench.host.fail_next(Op::SetLimits, Error::failed("write", "broken on purpose"));
    bench.engine.modify_volume(&id, &limits(&[("readIops", "max")])).unwrap_err();
    bench.unstage(&id).unwrap();
    assert!(bench.host.limits(&device).is_unlimited());
}

#[test]
fn a_device_number_is_freed_of_limits_that_are_not_the_volumes() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    let device = bench.device(&id);
    bench.unstage(&id).unwrap();
    bench.host.ensure_limits(&device, &reads(100)).unwrap();
    bench.stage(&id);
    assert!(bench.host.limits(&bench.device(&id)).is_unlimited());
}
