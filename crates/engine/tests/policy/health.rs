//! What is wrong with volumes and pools, as the calls of CSI 1.13 ask for it.

use std::sync::Arc;

use orlop_engine::request::{
    AbnormalVolume, CreateSnapshot, SnapshotFilter, StageVolume, VolumeRef,
};
use orlop_engine::{AbsentPool, Engine};
use orlop_host::memory::Op;
use orlop_model::HealthReason::*;
use orlop_model::{
    Condition, Error, HealthReason, Problem, TargetPath, TopologyRequirement, VolumeId,
};

use crate::fixture::*;

fn reasons(problems: &[Problem]) -> Vec<HealthReason> {
    problems.iter().map(|problem| problem.reason).collect()
}

fn on_node(fixture: &Fixture, id: &VolumeId, paths: &[&str]) -> Result<Vec<HealthReason>, Error> {
    let paths: Vec<TargetPath> = paths.iter().map(|at| path(at)).collect();
    let found = fixture.engine.node_volume_problems(&issued(id), &paths)?;
    Ok(reasons(&found))
}

fn make_sick(fixture: &Fixture, id: &VolumeId) {
    fixture.pool().set_condition(id, Condition::abnormal(PoolFull, "below the floor"));
}

fn ids(entries: &[AbnormalVolume]) -> Vec<VolumeId> {
    entries.iter().map(|entry| entry.id.clone()).collect()
}

#[test]
fn a_list_leaves_out_what_is_well_and_comes_in_pages() {
    let fixture = Fixture::new();
    let mut made: Vec<_> = (0..9).map(|n| fixture.create(&format!("v{n}"))).collect();
    made.sort();
    let sick: Vec<_> = made.iter().step_by(2).cloned().collect();
    sick.iter().for_each(|id| make_sick(&fixture, id));
    let all = fixture.engine.list_abnormal_volumes(None, 0).unwrap();
    assert_eq!((ids(&all.entries), all.next), (sick.clone(), None));
    assert_eq!(reasons(&all.entries[0].problems), [PoolFull]);

    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let page = fixture.engine.list_abnormal_volumes(after.as_ref(), 2).unwrap();
        assert!(page.entries.len() <= 2);
        paged.extend(ids(&page.entries));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged, sick);
}

/// Far apart, so that one entry takes more than one batch of volumes.
#[test]
fn two_abnormal_volumes_among_many_are_found() {
    let fixture = Fixture::with_pools(vec![pool("default", &zone("z1"), 2000 * GIB)]);
    let mut made: Vec<_> = (0..1200).map(|n| fixture.create(&format!("v{n}"))).collect();
    made.sort();
    let sick = [made[3].clone(), made[1190].clone()];
    sick.iter().for_each(|id| make_sick(&fixture, id));
    let first = fixture.engine.list_abnormal_volumes(None, 1).unwrap();
    assert_eq!((ids(&first.entries), &first.next), (sick[..1].to_vec(), &Some(sick[0].clone())));
    let second = fixture.engine.list_abnormal_volumes(first.next.as_ref(), 1).unwrap();
    assert_eq!((ids(&second.entries), second.next), (sick[1..].to_vec(), None));
}

#[test]
fn lists_go_across_pools() {
    let fixture =
        Fixture::with_pools(vec![pool("a", &zone("z1"), GIB), pool("b", &zone("z1"), GIB)]);
    let on = |name: &str, pool: &str| {
        let mut wanted = volume(name);
        wanted.parameters = parameters(&[("pool", pool)]);
        wanted.range = Some(range(MIB, 0));
        fixture.create_as(wanted)
    };
    let (one, other) = (on("one", "a"), on("other", "b"));
    fixture.pools[0].set_condition(&one, Condition::abnormal(PoolFull, "full"));
    fixture.pools[1].set_condition(&other, Condition::abnormal(PoolFull, "full"));
    let mut expected = [one, other];
    expected.sort();
    let first = fixture.engine.list_abnormal_volumes(None, 1).unwrap();
    assert_eq!(ids(&first.entries), expected[..1]);
    let second = fixture.engine.list_abnormal_volumes(first.next.as_ref(), 1).unwrap();
    assert_eq!((ids(&second.entries), second.next), (expected[1..].to_vec(), None));
}

#[test]
fn a_damaged_record_is_a_reason() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    assert_eq!(fixture.engine.volume_problems(&id).unwrap(), []);
    fixture.pool().damage_volume(&id, "the record is torn");
    assert_eq!(reasons(&fixture.engine.volume_problems(&id).unwrap()), [RecordDamaged]);
    let listed = fixture.engine.list_abnormal_volumes(None, 0).unwrap().entries;
    assert_eq!(listed[0].problems, fixture.engine.volume_problems(&id).unwrap());
}

#[test]
fn an_unknown_volume_has_no_health() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.engine.delete_volume(&id).unwrap();
    refused!(fixture.engine.volume_problems(&id), Error::NoSuchVolume(_));
    refused!(on_node(&fixture, &id, &[]), Error::NoSuchVolume(_));
    let foreign = VolumeRef::parse("not-ours");
    refused!(fixture.engine.node_volume_problems(&foreign, &[]), Error::NoSuchVolume(_));
}

#[test]
fn volumes_of_an_absent_pool_are_not_called_healthy() {
    let fixture =
        Fixture::with_pools(vec![pool("near", &zone("z1"), GIB), pool("far", &zone("z1"), GIB)]);
    let mut wanted = volume("v");
    wanted.parameters = parameters(&[("pool", "far")]);
    wanted.range = Some(range(MIB, 0));
    let id = fixture.create_as(wanted);
    fixture.stage(&id);
    let near = vec![Arc::clone(&fixture.pools[0]) as _];
    let engine = Engine::new(near, Arc::clone(&fixture.host) as _, settings()).unwrap();
    let why = Error::unreachable("connect", "no answer");
    let absent = AbsentPool { name: "far".to_owned(), why, is_hung: false };
    let engine = engine.with_absent(absent);
    refused!(engine.list_abnormal_volumes(None, 0), Error::Unreachable { .. });
    refused!(engine.volume_problems(&id), Error::Unreachable { .. });
    // It is in use on this node, so it is known here.
    let found = engine.node_volume_problems(&issued(&id), &[]).unwrap();
    assert_eq!(reasons(&found), [PoolUnreachable]);
    assert_eq!(reasons(&engine.storage_problems()), [PoolUnreachable]);
}

#[test]
fn a_volume_in_use_is_checked_on_its_node() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    refused!(on_node(&fixture, &id, &[]), Error::NotOnNode(_));
    fixture.stage(&id);
    fixture.publish(&id);
    assert_eq!(on_node(&fixture, &id, &[]).unwrap(), []);
    assert_eq!(on_node(&fixture, &id, &[TARGET, STAGING]).unwrap(), []);
    refused!(on_node(&fixture, &id, &[OTHER_TARGET]), Error::NotAtPath { .. });

    let device = fixture.device(&id);
    fixture.host.turn_filesystem_read_only(&device);
    fixture.host.count_filesystem_error(&device);
    make_sick(&fixture, &id);
    let all = [FilesystemReadOnly, FilesystemErrors, PoolFull];
    assert_eq!(on_node(&fixture, &id, &[]).unwrap(), all);
    assert_eq!(on_node(&fixture, &id, &[TARGET]).unwrap(), all);
}

#[test]
fn what_vanished_from_the_node_is_a_reason() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.host.fail_next(Op::MeasureUsage, Error::failed("read the space", "Input/output error"));
    assert_eq!(on_node(&fixture, &id, &[STAGING]).unwrap(), [FilesystemShutDown]);
    // Only the machine's memory of devices and mounts is gone, not the node record.
    fixture.pool().reboot();
    assert_eq!(on_node(&fixture, &id, &[]).unwrap(), [DeviceMissing]);
}

#[test]
fn a_failed_stage_explains_itself_until_it_is_over() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let fail = || {
        fixture.host.fail_next(Op::Mount, Error::failed("mount it", "wrong medium type"));
        refused!(fixture.engine.stage_volume(&stage(&id)), Error::Failed { .. });
    };
    fail();
    let found = fixture.engine.node_volume_problems(&issued(&id), &[path(STAGING)]).unwrap();
    assert_eq!(reasons(&found), [StageFailed]);
    assert!(found[0].message.contains("wrong medium type"), "{}", found[0].message);
    // The controller does not know it: from elsewhere it may go well.
    assert_eq!(fixture.engine.volume_problems(&id).unwrap(), []);

    fixture.stage(&id);
    assert_eq!(on_node(&fixture, &id, &[]).unwrap(), []);
    fixture.unstage(&id).unwrap();
    refused!(on_node(&fixture, &id, &[]), Error::NotOnNode(_));

    fail();
    fixture.unstage(&id).unwrap();
    refused!(on_node(&fixture, &id, &[]), Error::NotOnNode(_));

    fail();
    fixture.engine.delete_volume(&id).unwrap();
    assert_eq!(fixture.create("v"), id);
    refused!(on_node(&fixture, &id, &[]), Error::NotOnNode(_));
}

/// A second stage that is refused takes nothing from the first.
#[test]
fn a_staged_volume_is_not_inaccessible_for_a_stage_elsewhere() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    let elsewhere = StageVolume { path: path("/staging/w"), ..stage(&id) };
    refused!(fixture.engine.stage_volume(&elsewhere), Error::Precondition(_));
    assert_eq!(on_node(&fixture, &id, &[]).unwrap(), []);
}

#[test]
fn a_broken_device_on_a_shared_pool_is_a_reason() {
    let (here, _) = Fixture::sharing();
    let id = here.create("v");
    here.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    here.stage(&id);
    here.pool().break_device(&id, "the process that exports it has ended");
    assert_eq!(on_node(&here, &id, &[]).unwrap(), [DeviceErrors]);
}

#[test]
fn a_reason_of_several_pools_is_reported_once() {
    let fixture =
        Fixture::with_pools(vec![pool("a", &zone("z1"), GIB), pool("b", &zone("z1"), GIB)]);
    assert_eq!(fixture.engine.storage_problems(), []);
    for full in &fixture.pools {
        full.set_problems(vec![Problem::new(PoolFull, "it is below its floor")]);
    }
    fixture.host.fail_next(Op::CheckHealth, Error::failed("find mkfs.xfs", "it is not there"));
    let found = fixture.engine.storage_problems();
    assert_eq!(reasons(&found), [PoolFull, ToolMissing]);
    assert!(found[0].message.contains('a') && found[0].message.contains('b'));
}

fn from(place: &str) -> Option<TopologyRequirement> {
    Some(TopologyRequirement::new(vec![zone(place)], Vec::new()).unwrap())
}

#[test]
fn a_snapshot_is_made_only_where_it_can_be_used() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let there = CreateSnapshot { topology: from("z9"), ..snapshot("s", &id) };
    refused!(fixture.engine.create_snapshot(&there), Error::Exhausted(_));
    let listed = fixture.engine.list_snapshots(&SnapshotFilter::default(), None, 0).unwrap();
    assert_eq!(listed.entries, [], "nothing was made");
    let here = CreateSnapshot { topology: from("z1"), ..snapshot("s", &id) };
    let made = fixture.engine.create_snapshot(&here).unwrap();
    assert_eq!(fixture.engine.create_snapshot(&here).unwrap(), made);
    assert_eq!(fixture.engine.topology_of(made.id.pool()), zone("z1"));
    // What exists is not usable from there either.
    refused!(fixture.engine.create_snapshot(&there), Error::Exhausted(_));
}

#[test]
fn a_snapshot_on_a_shared_pool_is_usable_everywhere() {
    let (here, _) = Fixture::sharing();
    let id = here.create("v");
    let anywhere = CreateSnapshot { topology: from("z9"), ..snapshot("s", &id) };
    let made = here.engine.create_snapshot(&anywhere).unwrap();
    assert!(here.engine.topology_of(made.id.pool()).is_empty());
}
