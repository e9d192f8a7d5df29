//! Group snapshots and volume groups: what may happen beside them, and what a bad member spoils.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use orlop_engine::request::{CreateGroupSnapshot, CreateVolumeGroup};
use orlop_host::memory::Op;
use orlop_model::{Consistency, Error, NameDigest, SnapshotId, VolumeId};

use crate::fixture::*;

fn group_of(name: &str, sources: &[&VolumeId]) -> CreateGroupSnapshot {
    let sources = sources.iter().map(|id| (*id).clone()).collect();
    CreateGroupSnapshot { name: name.parse().unwrap(), sources }
}

#[test]
fn member_cannot_be_deleted_while_its_group_is_created() {
    let fixture = Fixture::new();
    let [a, b] = ["a", "b"].map(|name| fixture.create(name));
    let request = group_of("g", &[&a, &b]);
    let member = SnapshotId::new(a.pool().clone(), NameDigest::of_member(&request.name, &a));
    let seen = Arc::new(Mutex::new(None));
    let (engine, kept) = (Arc::clone(&fixture.engine), Arc::clone(&seen));
    fixture.pool().during_next_capture(move || {
        *kept.lock().unwrap() = Some(engine.delete_snapshot(&member));
    });
    let group = fixture.engine.create_group_snapshot(&request).unwrap();
    assert_eq!(group.members.len(), 2);
    let seen = seen.lock().unwrap().take();
    assert!(matches!(seen, Some(Err(Error::Busy { .. }))), "{seen:?}");
}

#[test]
fn filesystem_frozen_by_another_is_not_thawed() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.host.fail_next(Op::Freeze, Error::precondition("frozen by something else"));
    fixture.host.clear_log();
    refused!(fixture.engine.create_snapshot(&snapshot("s", &id)), Error::Precondition(_));
    assert_eq!(fixture.host.count(Op::Thaw), 0);
}

#[test]
fn damaged_volume_can_leave_its_group() {
    let fixture = Fixture::new();
    let [good, bad] = ["good", "bad"].map(|name| fixture.create(name));
    let members: BTreeSet<VolumeId> = [good.clone(), bad.clone()].into();
    let name = "g".parse().unwrap();
    let group = CreateVolumeGroup { name, members, max_members: 10 };
    let id = fixture.engine.create_volume_group(&group).unwrap().record.id;
    fixture.pool().damage_volume(&bad, "torn");
    let listed = fixture.engine.list_volume_groups(None, 0).unwrap().entries;
    assert_eq!((listed.len(), listed[0].volumes.len()), (1, 1));
    let left = fixture.engine.modify_volume_group(&id, &[good.clone()].into()).unwrap();
    assert_eq!(left.record.members, [good].into());
}

#[test]
fn raw_member_reports_atomic_or_separate_capture() {
    let fixture = Fixture::new();
    let [raw, other] = [fixture.create_as(block_volume("raw")), fixture.create("other")];
    fixture.engine.stage_volume(&stage_block(&raw)).unwrap();
    fixture.engine.publish_volume(&publish_block(&raw, TARGET)).unwrap();
    let promised = |name: &str, sources: &[&VolumeId]| {
        let group = fixture.engine.create_group_snapshot(&group_of(name, sources)).unwrap();
        group.members.into_iter().find(|member| member.source == raw).unwrap().consistency
    };
    assert_eq!(promised("together", &[&raw, &other]), Consistency::Crash);
    fixture.pool().capture_groups_piecemeal();
    assert_eq!(promised("apart", &[&raw, &other]), Consistency::Alone);
    assert_eq!(promised("single", &[&raw]), Consistency::Crash);
}
