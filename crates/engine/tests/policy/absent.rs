//! A pool that is configured and not there yet: what may be on it is not said to be gone, and other
//! pools do not suffer.

use std::sync::Arc;

use orlop_engine::request::{CapacityQuery, CreateVolume, SnapshotFilter};
use orlop_engine::{AbsentPool, Engine};
use orlop_host::memory::Op;
use orlop_model::{ContentSource, DeviceAccess, Error, Pool, UnservedDevice, VolumeParameters};

use crate::fixture::*;

fn unreachable() -> Error {
    Error::unreachable("connect", "no answer")
}

/// As a successor that could not reach the pool `far`, which the fixture has.
fn without_far(fixture: &Fixture) -> Engine {
    let near = Arc::clone(&fixture.pools[0]);
    let near = Engine::new(vec![near], Arc::clone(&fixture.host) as _, settings()).unwrap();
    near.with_absent(AbsentPool { name: "far".to_owned(), why: unreachable(), is_hung: false })
}

fn fixture() -> Fixture {
    Fixture::with_pools(vec![
        pool("near", &zone("z1"), 100 * GIB),
        pool("far", &zone("z1"), 50 * GIB),
    ])
}

fn on(name: &str, pool: &str) -> CreateVolume {
    CreateVolume { parameters: parameters(&[("pool", pool)]), ..volume(name) }
}

fn capacity(pool: Option<&str>) -> CapacityQuery {
    let parameters = pool.map_or_else(VolumeParameters::default, |it| parameters(&[("pool", it)]));
    CapacityQuery { capabilities: None, parameters, topology: None }
}

#[test]
fn objects_on_an_absent_pool_are_unreachable_not_missing() {
    let fixture = fixture();
    let id = fixture.create_as(on("v", "far"));
    let snapshot = fixture.snapshot("s", &id);
    fixture.stage(&id);
    let engine = without_far(&fixture);

    refused!(engine.delete_volume(&id), Error::Unreachable { .. });
    refused!(engine.delete_snapshot(&snapshot), Error::Unreachable { .. });
    refused!(engine.snapshot(&snapshot), Error::Unreachable { .. });
    refused!(engine.volume_status(&id), Error::Unreachable { .. });
    refused!(engine.controller_publish(&controller_publish(&id, HERE)), Error::Unreachable { .. });
    refused!(engine.controller_unpublish(&id, None), Error::Unreachable { .. });
    refused!(engine.stage_volume(&stage(&id)), Error::Unreachable { .. });
    refused!(engine.unstage_volume(&issued(&id), &path(STAGING)), Error::Unreachable { .. });
    refused!(engine.list_volumes(None, 0), Error::Unreachable { .. });
    refused!(engine.list_snapshots(&SnapshotFilter::default(), None, 0), Error::Unreachable { .. });
    refused!(engine.create_volume(&on("v", "far")), Error::Unreachable { .. });
    // It may be there that this name is taken.
    refused!(engine.create_volume(&volume("v")), Error::Unreachable { .. });
    assert_eq!(engine.capacity(&capacity(Some("far"))).unwrap().available, 0);
    assert!(!fixture.host.mounts().is_empty(), "the successor unmounted a volume that is in use");
}

#[test]
fn other_pools_are_served() {
    let fixture = fixture();
    let engine = without_far(&fixture);
    let id = engine.create_volume(&on("v", "near")).unwrap().record.id;
    let snapshot = engine.create_snapshot(&self::snapshot("s", &id)).unwrap().id;
    let of_it = SnapshotFilter { source: Some(id.clone()), ..SnapshotFilter::default() };
    assert_eq!(engine.list_snapshots(&of_it, None, 0).unwrap().entries.len(), 1);
    assert_eq!(engine.capacity(&capacity(None)).unwrap().available, 99 * GIB);
    engine.stage_volume(&stage(&id)).unwrap();
    engine.unstage_volume(&issued(&id), &path(STAGING)).unwrap();
    engine.delete_snapshot(&snapshot).unwrap();
    engine.delete_volume(&id).unwrap();
}

#[test]
fn pool_that_returns_serves_its_objects() {
    let fixture = fixture();
    let id = fixture.create_as(on("v", "far"));
    let absent = without_far(&fixture);
    let held = absent.with_pool(Arc::clone(&fixture.pools[1]) as _).unwrap();
    assert_eq!(held.absence_of("far"), None);
    assert_eq!(held.check_health().map(|report| report.failed), Ok(vec![]));
    assert_eq!(held.create_volume(&on("v", "far")).unwrap().record.id, id);
    assert_eq!(held.list_volumes(None, 0).unwrap().entries.len(), 1);
    refused!(held.with_pool(Arc::clone(&fixture.pools[1]) as _).map(drop), Error::Failed { .. });
}

#[test]
fn one_healthy_pool_keeps_the_plugin_healthy() {
    let fixture = fixture();
    let engine = without_far(&fixture);
    let complaints = engine.check_health().unwrap().failed;
    let [Error::Unreachable { doing, .. }] = complaints.as_slice() else {
        panic!("{complaints:?}");
    };
    assert!(doing.contains("pool far"), "{doing}");
    let mistake = Error::failed("open", "not for you");
    let far = AbsentPool { name: "far".to_owned(), why: mistake.clone(), is_hung: false };
    let mistaken = engine.with_absent(far);
    assert_eq!(mistaken.check_health().map(|report| report.failed), Ok(vec![mistake.clone()]));

    // Nothing else serves. What waiting does not mend comes first.
    fixture.pools[0].fail_next("check_health", unreachable());
    refused!(engine.check_health(), Error::Unreachable { .. });
    fixture.pools[0].fail_next("check_health", unreachable());
    assert_eq!(mistaken.check_health().map(|report| report.failed), Err(mistake));
}

#[test]
fn copy_does_not_wait_for_pools_without_its_source() {
    let fixture = fixture();
    let source = fixture.create_as(on("source", "near"));
    let snapshot = fixture.snapshot("s", &source);
    let far = fixture.create_as(on("far", "far"));
    let engine = without_far(&fixture);
    for (name, source) in [
        ("of a snapshot", ContentSource::Snapshot(snapshot)),
        ("of a volume", ContentSource::Volume(source)),
    ] {
        let copy = CreateVolume { source: Some(source), ..volume(name) };
        let made = engine.create_volume(&copy).unwrap();
        assert_eq!(engine.create_volume(&copy).unwrap().record.id, made.record.id);
    }
    let copy = CreateVolume { source: Some(ContentSource::Volume(far)), ..volume("of far") };
    refused!(engine.create_volume(&copy), Error::Unreachable { .. });
}

/// Known, and unreachable since: only what could be there has to wait for it.
#[test]
fn unreachable_shared_pool_does_not_affect_other_pools() {
    let fixture = fixture();
    fixture.pools[1].share_with(&[&node(HERE)]);
    let far = fixture.create_as(on("far", "far"));
    let lose = |call| fixture.pools[1].fail_next(call, unreachable());
    for call in ["volume", "snapshot", "capacity"] {
        lose(call);
    }
    let near = fixture.create_as(on("near", "near"));
    fixture.snapshot("s", &near);
    assert_eq!(fixture.engine.capacity(&capacity(None)).unwrap().available, 99 * GIB);
    refused!(fixture.engine.volume_status(&far), Error::Unreachable { .. });
}

/// Whether it exists is not known here, and "does not exist" would send people to look for lost data.
#[test]
fn error_names_the_pool_that_is_not_configured() {
    let fixture = fixture();
    let id = fixture.create_as(on("v", "far"));
    let snapshot = fixture.snapshot("s", &id);
    fixture.stage(&id);
    let near = vec![Arc::clone(&fixture.pools[0]) as _];
    let engine = Engine::new(near, Arc::clone(&fixture.host) as _, settings()).unwrap();
    let copy = CreateVolume { source: Some(ContentSource::Volume(id.clone())), ..volume("copy") };
    let refusals = [
        engine.volume_status(&id).map(drop),
        engine.controller_publish(&controller_publish(&id, HERE)).map(drop),
        engine.stage_volume(&stage(&id)),
        engine.unstage_volume(&issued(&id), &path(STAGING)),
        engine.create_snapshot(&self::snapshot("t", &id)).map(drop),
        engine.snapshot(&snapshot).map(drop),
        engine.create_volume(&copy).map(drop),
        engine.create_volume(&restored("restored", &snapshot)).map(drop),
    ];
    for (number, refusal) in refusals.into_iter().enumerate() {
        let error = refusal.unwrap_err();
        assert!(matches!(error, Error::NotServed { .. }), "call {number}: {error}");
        let named = format!("pool {} is not configured on this daemon", id.pool());
        assert!(error.to_string().contains(&named), "call {number}: {error}");
    }
}

/// A raw volume mounts nothing at its staging path, so only the node record tells that it is in use.
#[test]
fn a_raw_volume_in_use_is_not_cleaned_up_without_its_pool() {
    let fixture = fixture();
    let raw = CreateVolume { capabilities: block_volume("v").capabilities, ..on("v", "far") };
    let id = fixture.create_as(raw);
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    fixture.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    let near = vec![Arc::clone(&fixture.pools[0]) as _];
    let engine = Engine::new(near, Arc::clone(&fixture.host) as _, settings()).unwrap();
    let (volume, here) = (issued(&id), node(HERE));

    for refusal in [
        engine.unstage_volume(&volume, &path(STAGING)),
        engine.unpublish_volume(&volume, &path(TARGET)),
        engine.controller_unpublish(&id, Some(&here)),
        engine.controller_unpublish(&id, None),
    ] {
        let error = refusal.unwrap_err();
        assert!(matches!(error, Error::NotServed { .. }), "{error}");
        assert!(error.to_string().contains("in use on this node"), "{error}");
    }
    assert_eq!(engine.in_use_of_unknown_pools().unwrap(), std::slice::from_ref(&id));
    // What the record does not name was never here (open point 3).
    engine.unpublish_volume(&volume, &path(OTHER_TARGET)).unwrap();
    engine.controller_unpublish(&id, Some(&node("n2"))).unwrap();

    fixture.engine.unpublish_volume(&volume, &path(TARGET)).unwrap();
    fixture.engine.unstage_volume(&volume, &path(STAGING)).unwrap();
    assert_eq!(engine.in_use_of_unknown_pools().unwrap(), []);
    engine.unstage_volume(&volume, &path(STAGING)).unwrap();
    engine.unpublish_volume(&volume, &path(TARGET)).unwrap();
    engine.controller_unpublish(&id, Some(&here)).unwrap();
}

/// As long as a pool is absent, its id is unknown, and the volume may be of that one.
#[test]
fn nothing_is_of_an_unknown_pool_while_one_is_absent() {
    let fixture = fixture();
    let id = fixture.create_as(on("v", "far"));
    fixture.stage(&id);
    assert_eq!(without_far(&fixture).in_use_of_unknown_pools().unwrap(), []);
}

/// What was done on the node can be undone there, unless it would wait for a disk that hangs.
#[test]
fn volume_of_an_absent_pool_is_let_go_unless_it_hangs() {
    let fixture = fixture();
    let id = fixture.create_as(on("v", "far"));
    fixture.stage(&id);
    fixture.engine.publish_volume(&publish(&id, TARGET)).unwrap();
    let device = fixture.pools[1].devices().attached(&id, DeviceAccess::ReadWrite).unwrap();
    let known = |is_only_copy| {
        let device = device.clone().unwrap();
        let unserved = UnservedDevice { device, access: DeviceAccess::ReadWrite, is_only_copy };
        fixture.host.know_devices_of(&id, vec![unserved]);
    };
    known(true);
    let absent = without_far(&fixture);
    let hung = AbsentPool { name: "far".to_owned(), why: unreachable(), is_hung: true };
    let hung = absent.with_absent(hung);
    let (volume, staging, target) = (issued(&id), path(STAGING), path(TARGET));
    refused!(hung.unpublish_volume(&volume, &target), Error::Unreachable { .. });
    refused!(hung.unstage_volume(&volume, &staging), Error::Unreachable { .. });
    refused!(absent.unstage_volume(&volume, &staging), Error::Precondition(_));
    for _ in 0..2 {
        absent.unpublish_volume(&volume, &target).unwrap();
    }
    assert!(!fixture.host.has_target(&target));
    refused!(absent.unstage_volume(&volume, &staging), Error::Precondition(_));
    assert_eq!(fixture.host.count(Op::Detach), 0, "the only copy is gone");
    known(false);
    for _ in 0..2 {
        absent.unstage_volume(&volume, &staging).unwrap();
    }
    assert!(fixture.host.mounts().is_empty());
    assert_eq!(fixture.host.count(Op::Detach), 1);
}
