//! Volumes and copies as people look at them.

use std::collections::BTreeMap;

use orlop_engine::{AbsentPool, VolumeState};
use orlop_model::{ByteRange, Condition, ContentSource, Error, Footprint, HealthReason, Problem};

use crate::fixture::*;

fn two_pools() -> Fixture {
    Fixture::with_pools(vec![
        pool("one", &zone("z1"), 100 * GIB),
        pool("two", &zone("z1"), 100 * GIB),
    ])
}

fn in_pool(name: &str, pool: &str) -> orlop_engine::request::CreateVolume {
    orlop_engine::request::CreateVolume {
        parameters: parameters(&[("pool", pool)]),
        ..volume(name)
    }
}

#[test]
fn volumes_of_all_pools_are_listed_by_name() {
    let fixture = two_pools();
    for (name, pool) in [("b", "one"), ("c", "two"), ("a", "two"), ("<script>", "one")] {
        fixture.create_as(in_pool(name, pool));
    }
    let view = fixture.engine.volume_listing();
    let names: Vec<_> = view.volumes.iter().map(|it| it.record().unwrap().name.as_str()).collect();
    assert_eq!(names, ["<script>", "a", "b", "c"]);
    assert_eq!(view.volumes[1].pool, "two");
    assert!(view.incomplete.is_empty());
}

#[test]
fn snapshots_of_a_deleted_volume_are_found_by_its_id() {
    let fixture = Fixture::new();
    let (kept, gone) = (fixture.create("kept"), fixture.create("gone"));
    fixture.snapshot("first", &gone);
    fixture.snapshot("second", &gone);
    fixture.engine.delete_volume(&gone).unwrap();
    let view = fixture.engine.volume_listing();
    let found: BTreeMap<_, _> =
        view.volumes.iter().map(|it| (it.id.clone(), it.snapshots)).collect();
    assert_eq!(found, BTreeMap::from([(kept, Some(0)), (gone.clone(), Some(2))]));
    let (volume, copies) = fixture.engine.volume_and_copies(&gone).unwrap();
    assert!(matches!(volume.state, VolumeState::Deleted));
    assert_eq!(copies.snapshots.len(), 2);
}

#[test]
fn copies_of_copies_belong_to_the_volume() {
    let fixture = Fixture::new();
    let original = fixture.create("original");
    fixture.pool().write_blocks(&original, ByteRange { start: 0, length: 8192 }).unwrap();
    let snapshot = fixture.snapshot("s", &original);
    let from = |name: &str, source: ContentSource| {
        let source = Some(source);
        fixture.create_as(orlop_engine::request::CreateVolume { source, ..volume(name) })
    };
    let restored = from("restored", ContentSource::Snapshot(snapshot.clone()));
    let cloned = from("cloned", ContentSource::Volume(restored.clone()));
    let of_clone = fixture.snapshot("of the clone", &cloned);
    fixture.create("unrelated");

    let (_, copies) = fixture.engine.volume_and_copies(&original).unwrap();
    let snapshots: Vec<_> = copies.snapshots.iter().map(|it| it.record.id.clone()).collect();
    assert_eq!(snapshots, [snapshot, of_clone]);
    let volumes: Vec<_> = copies.volumes.iter().map(|it| it.record.id.clone()).collect();
    assert_eq!(volumes, [restored, cloned]);
    let whole = Some(Footprint { taken: 8192, exclusive: 8192 });
    assert_eq!(copies.snapshots[0].footprint, whole);
    assert_eq!((copies.volumes[0].footprint, copies.footprint), (whole, whole));
    assert!(!copies.is_truncated);
}

#[test]
fn a_snapshot_that_cannot_be_measured_is_listed() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.snapshot("s", &id);
    // The volume itself is measured before it.
    fixture.pool().fail_after("footprint", 1, Error::failed("read", "the disk fails"));
    let (_, copies) = fixture.engine.volume_and_copies(&id).unwrap();
    assert_eq!(copies.snapshots.len(), 1);
    assert_eq!(copies.snapshots[0].footprint, None);
}

#[test]
fn a_pool_that_fails_leaves_the_others_in_view() {
    let fixture = two_pools();
    let (sick, well) = (in_pool("sick", "one"), in_pool("well", "two"));
    let ids = [fixture.create_as(sick), fixture.create_as(well)];
    let full = Condition::abnormal(HealthReason::PoolFull, "below the floor");
    fixture.pools[0].set_condition(&ids[0], full);
    let conditions = fixture.engine.conditions_by_id(&ids);
    assert!(conditions[0].is_abnormal() && !conditions[1].is_abnormal());

    let why = Error::unreachable("open pool three", "its disk is missing");
    let absent = AbsentPool { name: "three".to_owned(), why, is_hung: false };
    let view = fixture.engine.with_absent(absent).volume_listing();
    assert_eq!(view.volumes.len(), 2);
    let [(name, why)] = view.incomplete.as_slice() else { panic!("{:?}", view.incomplete) };
    assert_eq!(name, "three");
    assert!(why.contains("its disk is missing"), "{why}");
}

#[test]
fn thousands_of_copies_are_cut_to_the_newest() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    for number in 0..520 {
        fixture.snapshot(&format!("s{number}"), &id);
    }
    let (volume, copies) = fixture.engine.volume_and_copies(&id).unwrap();
    assert_eq!(copies.snapshots.len(), 500);
    assert!(copies.is_truncated && volume.snapshots.is_none());
    let newest = copies.snapshots.last().unwrap();
    assert_eq!(newest.record.name.as_str(), "s519");
}

#[test]
fn an_id_that_was_never_issued_is_refused() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.engine.delete_volume(&id).unwrap();
    assert!(matches!(fixture.engine.volume_and_copies(&id), Err(Error::NoSuchVolume(_))));
}

/// For metrics: each problem counts, and a snapshot that cannot be restored.
#[test]
fn volumes_are_counted_by_what_is_wrong_with_them() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.create("one"), fixture.create("two"));
    fixture.create("well");
    let (lost, full) = (HealthReason::BackingFileMissing, HealthReason::PoolFull);
    let problem = |reason| Problem::new(reason, "");
    fixture.pool().set_condition(&one, Condition::of(vec![problem(lost), problem(full)], ""));
    fixture.pool().set_condition(&two, Condition::of(vec![problem(full)], ""));
    let snapshot = fixture.snapshot("s", &one);
    fixture.snapshot("t", &one);
    fixture.pool().set_snapshot_problem(&snapshot, problem(lost));
    let figures = fixture.engine.pool_figures();
    let counts = figures[0].objects.as_ref().unwrap();
    assert_eq!((counts.normal_volumes, counts.abnormal_volumes), (1, 2));
    assert_eq!(counts.volumes_by_reason, BTreeMap::from([(lost, 1), (full, 2)]));
    assert_eq!((counts.normal_snapshots, counts.abnormal_snapshots), (1, 1));
}
