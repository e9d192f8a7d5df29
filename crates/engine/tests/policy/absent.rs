//! A pool that is configured and not there yet: what may be on it is not said to be gone, and other
//! pools do not suffer.

use std::sync::Arc;

use orlop_engine::request::{CapacityQuery, CreateVolume, SnapshotFilter};
use orlop_engine::{AbsentPool, Engine};
use orlop_model::{ContentSource, Error, VolumeParameters};

use crate::bench::*;

fn away() -> Error {
    Error::unreachable("connect", "nobody answers")
}

/// As a successor that could not reach the pool `far`, which the bench has.
fn without_far(bench: &Bench) -> Engine {
    let near = Arc::clone(&bench.pools[0]);
    let near = Engine::new(vec![near], Arc::clone(&bench.host) as _, settings()).unwrap();
    near.with_absent(AbsentPool { name: "far".to_owned(), why: away() })
}

fn bench() -> Bench {
    Bench::with_pools(vec![
        pool("near", &zone("z1"), 100 * GIB),
        pool("far", &zone("z1"), 50 * GIB),
    ])
}

fn on(name: &str, pool: &str) -> CreateVolume {
    CreateVolume { parameters: parameters(&[("pool", pool)]), ..volume(name) }
}

fn capacity(pool: Option<&str>) -> CapacityQuery {
    let parameters = pool.map_or_else(VolumeParameters::default, |it| parameters(&[("pool", it)]));
    CapacityQuery { capabilities: None, parameters, place: None }
}

#[test]
fn nothing_on_it_is_said_to_be_gone() {
    let bench = bench();
    let id = bench.create_as(on("v", "far"));
    let snapshot = bench.snapshot("s", &id);
    bench.stage(&id);
    let engine = without_far(&bench);

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
    assert!(!bench.host.mounts().is_empty(), "the successor took a volume away that is in use");
}

#[test]
fn other_pools_are_served() {
    let bench = bench();
    let engine = without_far(&bench);
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
fn once_it_is_there_all_is_as_before() {
    let bench = bench();
    let id = bench.create_as(on("v", "far"));
    let absent = without_far(&bench);
    let held = absent.with_pool(Arc::clone(&bench.pools[1]) as _).unwrap();
    assert_eq!(held.absence_of("far"), None);
    assert_eq!(held.check_health(), Ok(vec![]));
    assert_eq!(held.create_volume(&on("v", "far")).unwrap().record.id, id);
    assert_eq!(held.list_volumes(None, 0).unwrap().entries.len(), 1);
    refused!(held.with_pool(Arc::clone(&bench.pools[1]) as _).map(drop), Error::Failed { .. });
}

#[test]
fn health_is_good_while_another_pool_serves() {
    let bench = bench();
    let engine = without_far(&bench);
    let complaints = engine.check_health().unwrap();
    let [Error::Unreachable { doing, .. }] = complaints.as_slice() else {
        panic!("{complaints:?}");
    };
    assert!(doing.contains("pool far"), "{doing}");
    let mistake = Error::failed("open", "not for you");
    let far = AbsentPool { name: "far".to_owned(), why: mistake.clone() };
    let mistaken = engine.with_absent(far);
    assert_eq!(mistaken.check_health(), Ok(vec![mistake.clone()]));

    // Nothing else serves. What waiting does not mend comes first.
    bench.pools[0].fail_next("check_health", away());
    refused!(engine.check_health(), Error::Unreachable { .. });
    bench.pools[0].fail_next("check_health", away());
    assert_eq!(mistaken.check_health(), Err(mistake));
}

#[test]
fn a_copy_does_not_wait_for_a_pool_that_its_source_is_not_on() {
    let bench = bench();
    let source = bench.create_as(on("source", "near"));
    let snapshot = bench.snapshot("s", &source);
    let far = bench.create_as(on("far", "far"));
    let engine = without_far(&bench);
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

/// Known, and away since: only what could be there has to wait for it.
#[test]
fn a_shared_pool_that_does_not_answer_is_asked_for_nothing_of_others() {
    let bench = bench();
    bench.pools[1].share_with(&[&node(HERE)]);
    let far = bench.create_as(on("far", "far"));
    let lose = |call| bench.pools[1].fail_next(call, away());
    for call in ["volume", "snapshot", "capacity"] {
        lose(call);
    }
    let near = bench.create_as(on("near", "near"));
    bench.snapshot("s", &near);
    assert_eq!(bench.engine.capacity(&capacity(None)).unwrap().available, 99 * GIB);
    refused!(bench.engine.volume_status(&far), Error::Unreachable { .. });
}

/// Whether it exists is not known here, and "does not exist" would send people to look for lost data.
#[test]
fn a_call_for_a_pool_that_is_not_configured_names_that_pool() {
    let bench = bench();
    let id = bench.create_as(on("v", "far"));
    let snapshot = bench.snapshot("s", &id);
    bench.stage(&id);
    let near = vec![Arc::clone(&bench.pools[0]) as _];
    let engine = Engine::new(near, Arc::clone(&bench.host) as _, settings()).unwrap();
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
