//! Growing on the pool, then on the node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orlop_engine::request::{NodeExpand, PublishVolume, StageVolume, VolumeRef};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{DeviceAccess, Error, FsType, HostMounts, NameDigest, Pool, VolumeId};

use crate::fixture::*;

fn on_node(id: &VolumeId, at: &str) -> NodeExpand {
    NodeExpand { volume: issued(id), path: path(at), range: None, capability: None }
}

/// Grown on the pool, so that the device could show it.
fn grow(fixture: &Fixture, id: &VolumeId, bytes: u64) {
    fixture.engine.expand_volume(id, &range(bytes, 0), None).unwrap();
    for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
        if let Some(device) = fixture.attached(id, access) {
            fixture.host.set_device_size(&device, bytes);
        }
    }
}

#[test]
fn a_volume_grows_and_never_shrinks() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let expand = |required, limit| {
        fixture
            .engine
            .expand_volume(&id, &range(required, limit), None)
            .map(|now| now.capacity_bytes)
    };
    assert_eq!(expand(2 * GIB, 0).unwrap(), 2 * GIB);
    assert_eq!(expand(2 * GIB, 0).unwrap(), 2 * GIB, "CE-02");
    assert_eq!(expand(GIB, 0).unwrap(), 2 * GIB, "CE-03");
    assert_eq!(expand(2 * GIB + 1, 0).unwrap(), 2 * GIB + MIB);
    refused!(expand(3 * GIB + 1, 3 * GIB + 2), Error::OutOfRange(_));
    refused!(expand(0, GIB), Error::OutOfRange(_));
    refused!(expand(1 << 50, 0), Error::OutOfRange(_) | Error::Exhausted(_));
    assert_eq!(fixture.record(&id).capacity_bytes, 2 * GIB + MIB);
}

#[test]
fn node_expansion_is_always_required() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let answer = fixture.engine.expand_volume(&id, &range(2 * GIB, 0), None).unwrap();
    assert!(answer.node_expansion_required);
}

#[test]
fn capability_the_volume_lacks_is_invalid() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let raw = block(SingleNodeWriter);
    refused!(
        fixture.engine.expand_volume(&id, &range(2 * GIB, 0), Some(&raw)),
        Error::Invalid { .. }
    );
    fixture.stage(&id);
    let request = NodeExpand { capability: Some(raw), ..on_node(&id, STAGING) };
    refused!(fixture.engine.expand_node_volume(&request), Error::Invalid { .. });
    assert_eq!(fixture.record(&id).capacity_bytes, GIB);
}

#[test]
fn unknown_volumes_are_not_found() {
    let fixture = Fixture::new();
    let never =
        VolumeId::new(fixture.create("v").pool().clone(), NameDigest::of_text("never made"));
    refused!(fixture.engine.expand_volume(&never, &range(GIB, 0), None), Error::NoSuchVolume(_));
    refused!(fixture.engine.expand_node_volume(&on_node(&never, STAGING)), Error::NoSuchVolume(_));
    let foreign = NodeExpand { volume: VolumeRef::parse("not-ours"), ..on_node(&never, STAGING) };
    refused!(fixture.engine.expand_node_volume(&foreign), Error::NoSuchVolume(_));
}

#[test]
fn mounted_filesystem_grows_with_its_device() {
    for fs in FsType::ALL {
        let fixture = Fixture::new();
        let id = fixture.create_as(volume_of("v", fs));
        fixture.stage(&id);
        fixture.publish(&id);
        for (bytes, at) in [(2 * GIB, STAGING), (3 * GIB, TARGET)] {
            grow(&fixture, &id, bytes);
            assert_eq!(fixture.engine.expand_node_volume(&on_node(&id, at)).unwrap(), bytes);
            assert_eq!(fixture.host.filesystem_size(&fixture.device(&id)), bytes, "{fs} at {at}");
            assert_eq!(
                fixture.engine.expand_node_volume(&on_node(&id, at)).unwrap(),
                bytes,
                "NE-02"
            );
        }
    }
}

#[test]
fn unstaged_growth_is_completed_by_stage() {
    for fs in FsType::ALL {
        let fixture = Fixture::new();
        let id = fixture.create_as(volume_of("v", fs));
        fixture.stage(&id);
        let device = fixture.device(&id);
        fixture.unstage(&id).unwrap();
        grow(&fixture, &id, 2 * GIB);
        fixture.host.set_device_size(&device, 2 * GIB);
        fixture.stage(&id);
        assert_eq!(fixture.host.filesystem_size(&fixture.device(&id)), 2 * GIB, "{fs}");
    }
}

#[test]
fn filesystem_that_cannot_grow_now_is_reported() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    grow(&fixture, &id, 2 * GIB);
    fixture.host.fail_next(Op::GrowMounted, Error::precondition("not while mounted"));
    refused!(fixture.engine.expand_node_volume(&on_node(&id, STAGING)), Error::Precondition(_));
    fixture.engine.expand_node_volume(&on_node(&id, STAGING)).unwrap();
}

#[test]
fn a_raw_device_has_no_filesystem_to_grow() {
    let fixture = Fixture::new();
    let id = fixture.create_as(block_volume("v"));
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    fixture.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    grow(&fixture, &id, 2 * GIB);
    assert_eq!(fixture.engine.expand_node_volume(&on_node(&id, TARGET)).unwrap(), 2 * GIB);
    assert_eq!(fixture.host.count(Op::GrowMounted), 0);
}

#[test]
fn node_does_not_exceed_the_recorded_size() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    let wanting = |required, limit| NodeExpand {
        range: Some(range(required, limit)),
        ..on_node(&id, STAGING)
    };
    refused!(fixture.engine.expand_node_volume(&wanting(2 * GIB, 0)), Error::OutOfRange(_));
    refused!(fixture.engine.expand_node_volume(&wanting(MIB, GIB - 1)), Error::OutOfRange(_));
    fixture.engine.expand_node_volume(&wanting(MIB, 0)).unwrap();
    fixture.engine.expand_node_volume(&wanting(GIB, GIB)).unwrap();
}

#[test]
fn node_expand_needs_a_path_of_the_volume() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    refused!(fixture.engine.expand_node_volume(&on_node(&id, STAGING)), Error::NotAtPath { .. });
    fixture.stage(&id);
    refused!(fixture.engine.expand_node_volume(&on_node(&id, TARGET)), Error::NotAtPath { .. });
    fixture.host.ensure_unmounted(&path(STAGING)).unwrap();
    refused!(fixture.engine.expand_node_volume(&on_node(&id, STAGING)), Error::Precondition(_));
}

#[test]
fn read_only_stage_grows_later() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let reading = StageVolume { capability: mount(None, SingleNodeReaderOnly), ..stage(&id) };
    fixture.engine.stage_volume(&reading).unwrap();
    grow(&fixture, &id, 2 * GIB);
    refused!(fixture.engine.expand_node_volume(&on_node(&id, STAGING)), Error::Precondition(_));
    fixture.unstage(&id).unwrap();
    fixture.engine.stage_volume(&reading).unwrap();
    assert_eq!(fixture.host.filesystem_size(&fixture.device(&id)), 2 * GIB);
}

#[test]
fn reader_of_a_writable_stage_does_not_prevent_growth() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture
        .engine
        .publish_volume(&PublishVolume { read_only: true, ..publish(&id, TARGET) })
        .unwrap();
    grow(&fixture, &id, 2 * GIB);
    fixture.engine.expand_node_volume(&on_node(&id, TARGET)).unwrap();
    assert_eq!(fixture.host.filesystem_size(&fixture.device(&id)), 2 * GIB);
}

/// An unstaged ext4 volume whose device has grown since.
fn to_be_grown() -> (Fixture, VolumeId) {
    let fixture = Fixture::new();
    let id = fixture.create_as(volume_of("v", FsType::Ext4));
    fixture.stage(&id);
    let device = fixture.device(&id);
    fixture.unstage(&id).unwrap();
    grow(&fixture, &id, 2 * GIB);
    fixture.host.set_device_size(&device, 2 * GIB);
    fixture.host.clear_log();
    (fixture, id)
}

#[test]
fn interrupted_growth_is_repaired_and_completed() {
    let (fixture, id) = to_be_grown();
    let broken = Error::failed("grow", "interrupted on purpose");
    fixture.host.fail_next(Op::GrowUnmounted, broken.clone());
    assert_eq!(fixture.engine.stage_volume(&stage(&id)), Err(broken.clone()));
    fixture.assert_node_is_clean();
    assert!(fixture.record(&id).growing);
    // A copy would be damaged in the same way, and its record would not say so.
    refused!(fixture.engine.create_snapshot(&snapshot("s", &id)), Error::Precondition(_));
    refused!(fixture.engine.create_volume(&cloned("c", &id)), Error::Precondition(_));

    fixture.host.fail_next(Op::RepairGrowth, broken.clone());
    assert_eq!(fixture.engine.stage_volume(&stage(&id)), Err(broken));
    assert!(fixture.record(&id).growing, "it is not repaired yet");
    assert_eq!(fixture.host.count(Op::GrowUnmounted), 0);

    fixture.stage(&id);
    assert!(!fixture.record(&id).growing);
    assert_eq!(fixture.host.count(Op::RepairGrowth), 1);
    assert_eq!(fixture.host.filesystem_size(&fixture.device(&id)), 2 * GIB);
    fixture.engine.create_snapshot(&snapshot("s", &id)).unwrap();
}

#[test]
fn growth_is_on_record_while_the_tool_runs() {
    let (fixture, id) = to_be_grown();
    let (seen, pool) = (Arc::new(AtomicBool::new(false)), Arc::clone(&fixture.pools[0]));
    let (noted, volume) = (Arc::clone(&seen), id.clone());
    fixture.host.during_next(Op::GrowUnmounted, move || {
        let record = pool.catalogue().volume(&volume).unwrap().unwrap();
        noted.store(record.growing, Ordering::Relaxed);
    });
    fixture.stage(&id);
    assert!(seen.load(Ordering::Relaxed));
    assert!(!fixture.record(&id).growing);
}

/// A node that was suspended while its tool ran: another one has the volume by then.
#[test]
fn growth_by_another_node_is_not_called_complete() {
    let (here, there) = Fixture::sharing();
    let id = here.create_as(volume_of("v", FsType::Ext4));
    here.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    here.stage(&id);
    let device = here.device(&id);
    here.unstage(&id).unwrap();
    grow(&here, &id, 2 * GIB);
    here.host.set_device_size(&device, 2 * GIB);
    let volume = id.clone();
    here.host.during_next(Op::GrowUnmounted, move || {
        there.engine.controller_unpublish(&volume, Some(&node(HERE))).unwrap();
        there.engine.controller_publish(&controller_publish(&volume, "n2")).unwrap();
    });
    refused!(here.engine.stage_volume(&stage(&id)), Error::Busy { .. });
    assert!(here.record(&id).growing, "the other node is growing it");
}

/// Only what the growth itself has damaged is repaired without asking.
#[test]
fn filesystem_damaged_before_its_growth_is_left_as_it_is() {
    let (fixture, id) = to_be_grown();
    for _ in 0..2 {
        let damaged = Error::failed("check", "damaged on purpose");
        fixture.host.fail_next(Op::CheckBeforeGrowth, damaged.clone());
        assert_eq!(fixture.engine.stage_volume(&stage(&id)), Err(damaged));
        assert!(!fixture.record(&id).growing);
    }
    assert_eq!(fixture.host.count(Op::RepairGrowth), 0);
    assert_eq!(fixture.host.count(Op::GrowUnmounted), 0);
}
