//! NodeGetVolumeStats and the condition as this node sees it.

use orlop_engine::request::{PublishVolume, StageVolume, VolumeRef, VolumeStats, VolumeUsage};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{Condition, Error, Host, VolumeId};

use crate::bench::*;

const RAW_STAGING: &str = "/staging/raw";

fn stats(bench: &Bench, id: &VolumeId, at: &str) -> Result<VolumeStats, Error> {
    bench.engine.volume_stats(&issued(id), &path(at))
}

#[test]
fn a_mounted_volume_is_measured_where_it_is_staged_and_published() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    for at in [STAGING, TARGET] {
        let stats = stats(&bench, &id, at).unwrap();
        assert!(matches!(stats.usage, VolumeUsage::Filesystem(_)), "{at}");
        assert!(!stats.condition.abnormal && !stats.condition.message.is_empty());
    }
}

#[test]
fn a_raw_device_has_a_size() {
    let bench = Bench::new();
    let id = bench.create_as(block_volume("v"));
    bench.engine.stage_volume(&stage_block(&id)).unwrap();
    bench.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    let stats = stats(&bench, &id, TARGET).unwrap();
    assert_eq!(stats.usage, VolumeUsage::Block { total_bytes: GIB });
    assert!(!stats.condition.abnormal);
}

#[test]
fn a_volume_that_is_not_there_is_not_found() {
    let bench = Bench::new();
    let id = bench.create("v");
    refused!(stats(&bench, &id, STAGING), Error::NotAtPath { .. });
    bench.stage(&id);
    refused!(stats(&bench, &id, TARGET), Error::NotAtPath { .. });
    let unknown = VolumeRef::parse("not-ours");
    refused!(bench.engine.volume_stats(&unknown, &path(STAGING)), Error::NoSuchVolume(_));
}

#[test]
fn a_filesystem_that_turned_read_only_is_abnormal() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    bench.host.turn_filesystem_read_only(&bench.device(&id));
    for at in [STAGING, TARGET] {
        assert!(stats(&bench, &id, at).unwrap().condition.abnormal, "{at}");
    }
    // AL-10: the controller looks at the pool, and the pool is well.
    assert!(!bench.engine.volume_status(&id).unwrap().condition.abnormal);
}

#[test]
fn a_filesystem_that_gave_up_is_abnormal_however_it_is_mounted() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    bench.host.let_filesystem_give_up(&bench.device(&id));
    for at in [STAGING, TARGET] {
        assert!(stats(&bench, &id, at).unwrap().condition.abnormal, "{at}");
    }
}

#[test]
fn one_that_was_to_be_read_only_is_not() {
    let bench = Bench::new();
    let id = bench.create("v");
    let reading = mount(None, SingleNodeReaderOnly);
    bench.engine.stage_volume(&StageVolume { capability: reading.clone(), ..stage(&id) }).unwrap();
    bench
        .engine
        .publish_volume(&PublishVolume { capability: reading, ..publish(&id, TARGET) })
        .unwrap();
    for at in [STAGING, TARGET] {
        assert!(!stats(&bench, &id, at).unwrap().condition.abnormal, "{at}");
    }
}

#[test]
fn a_read_only_publication_of_a_writable_stage_is_well() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench
        .engine
        .publish_volume(&PublishVolume { read_only: true, ..publish(&id, TARGET) })
        .unwrap();
    assert!(!stats(&bench, &id, TARGET).unwrap().condition.abnormal);
}

#[test]
fn what_vanished_is_abnormal() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    bench.host.ensure_unmounted(&path(TARGET)).unwrap();
    let gone = stats(&bench, &id, TARGET).unwrap();
    assert!(gone.condition.abnormal && gone.usage == VolumeUsage::Unknown);
    bench.pool().reboot();
    assert!(stats(&bench, &id, STAGING).unwrap().condition.abnormal);
}

#[test]
fn a_filesystem_that_cannot_be_measured_is_abnormal() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.host.fail_next(Op::MeasureUsage, Error::failed("statfs", "I/O error"));
    let sick = stats(&bench, &id, STAGING).unwrap();
    assert!(sick.condition.abnormal && sick.condition.message.contains("I/O error"));
}

#[test]
fn an_abnormal_pool_is_reported_by_the_controller_and_by_the_node() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    let raw = bench.create_as(block_volume("raw"));
    let elsewhere = StageVolume { path: path(RAW_STAGING), ..stage_block(&raw) };
    bench.engine.stage_volume(&elsewhere).unwrap();
    for (id, at) in [(&id, STAGING), (&raw, RAW_STAGING)] {
        let sick = Condition::abnormal("below the floor");
        bench.pool().set_condition(id, sick.clone());
        assert_eq!(bench.engine.volume_status(id).unwrap().condition, sick);
        let stats = stats(&bench, id, at).unwrap();
        assert_eq!(stats.condition, sick);
        assert_ne!(stats.usage, VolumeUsage::Unknown);
    }
}

#[test]
fn errors_that_a_filesystem_counted_are_abnormal() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.host.count_filesystem_error(&bench.device(&id));
    let stats = stats(&bench, &id, STAGING).unwrap();
    assert!(stats.condition.abnormal && stats.condition.message.contains("1 error"));
}

#[test]
fn health_is_that_of_the_machine_and_of_any_pool() {
    let bench =
        Bench::with_pools(vec![pool("one", &zone("z1"), GIB), pool("two", &zone("z1"), GIB)]);
    let gone = Error::failed("statfs", "the pool is gone");
    assert_eq!(bench.engine.check_health(), Ok(vec![]));
    bench.host.fail_next(Op::CheckHealth, Error::precondition("mkfs.xfs is gone"));
    refused!(bench.engine.check_health(), Error::Precondition(_));
    bench.pools[1].fail_next("check_health", gone.clone());
    assert_eq!(bench.engine.check_health(), Ok(vec![gone.clone()]));
    bench.pools[0].fail_next("check_health", gone.clone());
    bench.pools[1].fail_next("check_health", gone);
    refused!(bench.engine.check_health(), Error::Failed { .. });
    assert_eq!(bench.engine.check_health(), Ok(vec![]));
}
