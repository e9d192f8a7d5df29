//! Group snapshots and volume groups: what may happen beside them, and what a bad member spoils.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use orlop_engine::request::{CreateGroupSnapshot, CreateVolumeGroup};
use orlop_host::memory::Op;
use orlop_model::{Consistency, Error, NameDigest, SnapshotId, VolumeId};

use crate::bench::*;

fn group_of(name: &str, sources: &[&VolumeId]) -> CreateGroupSnapshot {
    let sources = sources.iter().map(|id| (*id).clone()).collect();
    CreateGroupSnapshot { name: name.parse().unwrap(), sources }
}

#[test]
fn a_member_cannot_be_deleted_before_its_group_is_there() {
    let bench = Bench::new();
    let [a, b] = ["a", "b"].map(|name| bench.create(name));
    let request = group_of("g", &[&a, &b]);
    let member = SnapshotId::new(a.pool().clone(), NameDigest::of_member(&request.name, &a));
    let seen = Arc::new(Mutex::new(None));
    let (engine, kept) = (Arc::clone(&bench.engine), Arc::clone(&seen));
    bench.pool().during_next_cut(move || {
        *kept.lock().unwrap() = Some(engine.delete_snapshot(&member));
    });
    let group = bench.engine.create_group_snapshot(&request).unwrap();
    assert_eq!(group.members.len(), 2);
    let seen = seen.lock().unwrap().take();
    assert!(matches!(seen, Some(Err(Error::Busy { .. }))), "{seen:?}");
}

#[test]
fn a_filesystem_that_others_froze_stays_theirs() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.host.fail_next(Op::Freeze, Error::precondition("frozen by something else"));
    bench.host.clear_log();
    refused!(bench.engine.create_snapshot(&snapshot("s", &id)), Error::Precondition(_));
    assert_eq!(bench.host.count(Op::Thaw), 0);
}

#[test]
fn a_damaged_volume_can_be_taken_out_of_its_group() {
    let bench = Bench::new();
    let [good, bad] = ["good", "bad"].map(|name| bench.create(name));
    let members: BTreeSet<VolumeId> = [good.clone(), bad.clone()].into();
    let name = "g".parse().unwrap();
    let group = CreateVolumeGroup { name, members, max_members: 10 };
    let id = bench.engine.create_volume_group(&group).unwrap().record.id;
    bench.pool().damage_volume(&bad, "torn");
    let listed = bench.engine.list_volume_groups(None, 0).unwrap().entries;
    assert_eq!((listed.len(), listed[0].volumes.len()), (1, 1));
    let left = bench.engine.modify_volume_group(&id, &[good.clone()].into()).unwrap();
    assert_eq!(left.record.members, [good].into());
}

#[test]
fn a_raw_member_says_whether_it_is_of_one_instant_with_the_others() {
    let bench = Bench::new();
    let [raw, other] = [bench.create_as(block_volume("raw")), bench.create("other")];
    bench.engine.stage_volume(&stage_block(&raw)).unwrap();
    bench.engine.publish_volume(&publish_block(&raw, TARGET)).unwrap();
    let promised = |name: &str, sources: &[&VolumeId]| {
        let group = bench.engine.create_group_snapshot(&group_of(name, sources)).unwrap();
        group.members.into_iter().find(|member| member.source == raw).unwrap().consistency
    };
    assert_eq!(promised("together", &[&raw, &other]), Consistency::Crash);
    bench.pool().cut_groups_piecemeal();
    assert_eq!(promised("apart", &[&raw, &other]), Consistency::Alone);
    assert_eq!(promised("single", &[&raw]), Consistency::Crash);
}
