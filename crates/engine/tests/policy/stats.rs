//! NodeGetVolumeStats and the condition as this node sees it.

use orlop_engine::request::{PublishVolume, StageVolume, VolumeRef, VolumeStats, VolumeUsage};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{Condition, Error, HealthReason, HostMounts, VolumeId};

use crate::fixture::*;

const RAW_STAGING: &str = "/staging/raw";

fn stats(fixture: &Fixture, id: &VolumeId, at: &str) -> Result<VolumeStats, Error> {
    fixture.engine.volume_stats(&issued(id), &path(at))
}

#[test]
fn stats_work_at_staging_and_target_path() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    for at in [STAGING, TARGET] {
        let stats = stats(&fixture, &id, at).unwrap();
        assert!(matches!(stats.usage, VolumeUsage::Filesystem(_)), "{at}");
        assert!(!stats.condition.is_abnormal() && !stats.condition.message().is_empty());
    }
}

#[test]
fn a_raw_device_has_a_size() {
    let fixture = Fixture::new();
    let id = fixture.create_as(block_volume("v"));
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    fixture.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    let stats = stats(&fixture, &id, TARGET).unwrap();
    assert_eq!(stats.usage, VolumeUsage::Block { total_bytes: GIB });
    assert!(!stats.condition.is_abnormal());
}

#[test]
fn stats_of_a_missing_volume_are_not_found() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    refused!(stats(&fixture, &id, STAGING), Error::NotAtPath { .. });
    fixture.stage(&id);
    refused!(stats(&fixture, &id, TARGET), Error::NotAtPath { .. });
    let unknown = VolumeRef::parse("not-ours");
    refused!(fixture.engine.volume_stats(&unknown, &path(STAGING)), Error::NoSuchVolume(_));
}

#[test]
fn a_filesystem_that_turned_read_only_is_abnormal() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    fixture.host.turn_filesystem_read_only(&fixture.device(&id));
    for at in [STAGING, TARGET] {
        assert!(stats(&fixture, &id, at).unwrap().condition.is_abnormal(), "{at}");
    }
    // AL-10: the controller looks at the pool, and the pool is well.
    assert!(!fixture.engine.volume_status(&id).unwrap().condition.is_abnormal());
}

#[test]
fn shut_down_filesystem_is_abnormal_at_every_path() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    fixture.host.let_filesystem_give_up(&fixture.device(&id));
    for at in [STAGING, TARGET] {
        assert!(stats(&fixture, &id, at).unwrap().condition.is_abnormal(), "{at}");
    }
}

#[test]
fn intended_read_only_mount_is_normal() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let reading = mount(None, SingleNodeReaderOnly);
    fixture
        .engine
        .stage_volume(&StageVolume { capability: reading.clone(), ..stage(&id) })
        .unwrap();
    fixture
        .engine
        .publish_volume(&PublishVolume { capability: reading, ..publish(&id, TARGET) })
        .unwrap();
    for at in [STAGING, TARGET] {
        assert!(!stats(&fixture, &id, at).unwrap().condition.is_abnormal(), "{at}");
    }
}

#[test]
fn read_only_publication_of_a_writable_stage_is_normal() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture
        .engine
        .publish_volume(&PublishVolume { read_only: true, ..publish(&id, TARGET) })
        .unwrap();
    assert!(!stats(&fixture, &id, TARGET).unwrap().condition.is_abnormal());
}

#[test]
fn vanished_mount_is_abnormal() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    fixture.host.ensure_unmounted(&path(TARGET)).unwrap();
    let gone = stats(&fixture, &id, TARGET).unwrap();
    assert!(gone.condition.is_abnormal() && gone.usage == VolumeUsage::Unknown);
    fixture.pool().reboot();
    assert!(stats(&fixture, &id, STAGING).unwrap().condition.is_abnormal());
}

#[test]
fn unreadable_filesystem_is_abnormal() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.host.fail_next(Op::MeasureUsage, Error::failed("statfs", "I/O error"));
    let sick = stats(&fixture, &id, STAGING).unwrap();
    assert!(sick.condition.is_abnormal() && sick.condition.message().contains("I/O error"));
}

#[test]
fn unhealthy_pool_is_reported_by_controller_and_node() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    let raw = fixture.create_as(block_volume("raw"));
    let elsewhere = StageVolume { path: path(RAW_STAGING), ..stage_block(&raw) };
    fixture.engine.stage_volume(&elsewhere).unwrap();
    for (id, at) in [(&id, STAGING), (&raw, RAW_STAGING)] {
        let sick = Condition::abnormal(HealthReason::PoolFull, "below the floor");
        fixture.pool().set_condition(id, sick.clone());
        assert_eq!(fixture.engine.volume_status(id).unwrap().condition, sick);
        let stats = stats(&fixture, id, at).unwrap();
        assert_eq!(stats.condition.problems(), sick.problems());
        assert_ne!(stats.usage, VolumeUsage::Unknown);
    }
}

#[test]
fn counted_filesystem_errors_are_abnormal() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.host.count_filesystem_error(&fixture.device(&id));
    let stats = stats(&fixture, &id, STAGING).unwrap();
    assert!(stats.condition.is_abnormal() && stats.condition.message().contains("1 error"));
}

/// The kernel tells it once, to whatever syncs first: here statistics, then a snapshot.
#[test]
fn lost_writes_are_reported_until_the_volume_is_unstaged() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    let conditions = || {
        let listed = fixture.engine.list_volumes(None, 0).unwrap().entries.remove(0);
        let status = fixture.engine.volume_status(&id).unwrap();
        assert_eq!(listed.condition, status.condition, "the list says the same");
        (stats(&fixture, &id, STAGING).unwrap().condition, status.condition)
    };
    fixture.host.lose_writes(&path(STAGING), "No space left on device");
    assert!(stats(&fixture, &id, STAGING).unwrap().condition.is_abnormal());
    let (node, controller) = conditions();
    assert_eq!(node, controller);
    assert!(
        node.is_abnormal() && node.message().contains("is lost: No space"),
        "{}",
        node.message()
    );

    fixture.unstage(&id).unwrap();
    fixture.stage(&id);
    let (node, controller) = conditions();
    assert!(!node.is_abnormal() && !controller.is_abnormal());

    fixture.host.lose_writes(&path(STAGING), "Input/output error");
    refused!(fixture.engine.create_snapshot(&snapshot("s", &id)), Error::Failed { .. });
    fixture.engine.create_snapshot(&snapshot("s", &id)).unwrap();
    let (node, controller) = conditions();
    assert!(node.is_abnormal() && controller.is_abnormal());
}

#[test]
fn health_needs_the_host_and_one_pool() {
    let fixture =
        Fixture::with_pools(vec![pool("one", &zone("z1"), GIB), pool("two", &zone("z1"), GIB)]);
    let gone = Error::failed("statfs", "the pool is gone");
    assert_eq!(fixture.engine.check_health().map(|report| report.failed), Ok(vec![]));
    fixture.host.fail_next(Op::CheckHealth, Error::precondition("mkfs.xfs is gone"));
    refused!(fixture.engine.check_health(), Error::Precondition(_));
    fixture.pools[1].fail_next("check_health", gone.clone());
    assert_eq!(fixture.engine.check_health().map(|report| report.failed), Ok(vec![gone.clone()]));
    fixture.pools[0].fail_next("check_health", gone.clone());
    fixture.pools[1].fail_next("check_health", gone);
    refused!(fixture.engine.check_health(), Error::Failed { .. });
    assert_eq!(fixture.engine.check_health().map(|report| report.failed), Ok(vec![]));
}
