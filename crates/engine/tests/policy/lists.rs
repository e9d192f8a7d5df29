//! Pages of volumes and snapshots over two pools.

use orlop_engine::request::{CreateVolume, SnapshotFilter};
use orlop_model::{Condition, Error, HealthReason, NameDigest, SnapshotId, VolumeId};

use crate::fixture::*;

fn two_pools() -> Fixture {
    Fixture::with_pools(vec![
        pool("one", &zone("z1"), 100 * GIB),
        pool("two", &zone("z1"), 100 * GIB),
    ])
}

fn in_pool(name: &str, pool: &str) -> CreateVolume {
    CreateVolume { parameters: parameters(&[("pool", pool)]), ..volume(name) }
}

/// Three volumes on each pool, in the order in which they are listed.
fn six_volumes(fixture: &Fixture) -> Vec<VolumeId> {
    let create = |number: usize| {
        let pool = ["one", "two"][number % 2];
        fixture.create_as(in_pool(&format!("v{number}"), pool))
    };
    let mut ids: Vec<_> = (0..6).map(create).collect();
    ids.sort();
    ids
}

fn pages_of(fixture: &Fixture, max: usize) -> Vec<Vec<VolumeId>> {
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let page = fixture.engine.list_volumes(after.as_ref(), max).unwrap();
        assert!(max == 0 || page.entries.len() <= max);
        pages.push(page.entries.into_iter().map(|entry| entry.id).collect());
        match page.next {
            Some(next) => after = Some(next),
            None => return pages,
        }
    }
}

#[test]
fn pages_cover_everything_and_none_is_empty() {
    let fixture = two_pools();
    assert_eq!(pages_of(&fixture, 0), [[]] as [[VolumeId; 0]; 1]);
    let ids = six_volumes(&fixture);
    for max in 0..=7 {
        let pages = pages_of(&fixture, max);
        assert_eq!(pages.concat(), ids, "{max} a page");
        let expected = if max == 0 { 1 } else { 6_usize.div_ceil(max) };
        assert_eq!(pages.len(), expected, "{max} a page");
    }
}

#[test]
fn changes_between_pages_do_not_disturb_paging() {
    let fixture = two_pools();
    let ids = six_volumes(&fixture);
    let first = fixture.engine.list_volumes(None, 2).unwrap();
    assert_eq!(first.next.as_ref(), Some(&ids[1]));
    // LV-17: the very volume that the token names.
    fixture.engine.delete_volume(&ids[1]).unwrap();
    fixture.engine.delete_volume(&ids[3]).unwrap();
    let rest = fixture.engine.list_volumes(first.next.as_ref(), 0).unwrap();
    let rest: Vec<_> = rest.entries.into_iter().map(|entry| entry.id).collect();
    assert_eq!(rest, [ids[2].clone(), ids[4].clone(), ids[5].clone()]);
}

#[test]
fn token_past_the_end_gives_an_empty_page() {
    let fixture = two_pools();
    let ids = six_volumes(&fixture);
    let page = fixture.engine.list_volumes(Some(&ids[5]), 3).unwrap();
    assert!(page.entries.is_empty() && page.next.is_none());
}

#[test]
fn a_damaged_volume_is_listed_with_the_reason() {
    let fixture = Fixture::new();
    let [broken, sick, well] = ["broken", "sick", "well"].map(|name| fixture.create(name));
    fixture.pool().damage_volume(&broken, "the record is torn");
    fixture
        .pool()
        .set_condition(&sick, Condition::abnormal(HealthReason::PoolFull, "below the floor"));
    let listed = fixture.engine.list_volumes(None, 0).unwrap().entries;
    assert_eq!(listed.len(), 3);
    for id in [&broken, &sick, &well] {
        let status = fixture.engine.volume_status(id).unwrap();
        let entry = listed.iter().find(|entry| entry.id == *id).unwrap();
        assert_eq!(entry.condition, status.condition);
        assert_eq!(entry.volume.is_some(), *id != broken);
        assert_eq!(status.condition.is_abnormal(), *id != well);
        assert!(!status.condition.message().is_empty(), "AL-11");
    }
    let torn = fixture.engine.volume_status(&broken).unwrap().condition.message().to_owned();
    assert!(torn.contains("the record is torn"), "{torn}");
}

#[test]
fn damaged_volume_is_neither_recreated_nor_deleted() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.pool().damage_volume(&id, "the record is torn");
    refused!(fixture.engine.create_volume(&volume("v")), Error::Damaged { .. });
    refused!(fixture.engine.delete_volume(&id), Error::Damaged { .. });
    refused!(fixture.engine.stage_volume(&stage(&id)), Error::Damaged { .. });
    assert_eq!(fixture.engine.list_volumes(None, 0).unwrap().entries.len(), 1);
}

#[test]
fn get_volume_reports_the_current_state() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.engine.expand_volume(&id, &range(3 * GIB, 0), None).unwrap();
    fixture.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    let record = fixture.engine.volume_status(&id).unwrap().volume.unwrap().record;
    assert_eq!(record.capacity_bytes, 3 * GIB);
    assert!(record.published.contains_key(&node(HERE)));
    fixture.engine.delete_volume(&id).unwrap_err();
    fixture.engine.controller_unpublish(&id, None).unwrap();
    fixture.engine.delete_volume(&id).unwrap();
    refused!(fixture.engine.volume_status(&id), Error::NoSuchVolume(_));
}

/// Two snapshots of each of three volumes, in the order in which they are listed.
fn six_snapshots(fixture: &Fixture) -> (Vec<VolumeId>, Vec<SnapshotId>) {
    let pools = ["one", "two", "one"];
    let volumes: Vec<_> =
        (0..3).map(|n| fixture.create_as(in_pool(&format!("v{n}"), pools[n]))).collect();
    let mut snapshots: Vec<_> = (0..6)
        .map(|number| fixture.snapshot(&format!("s{number}"), &volumes[number % 3]))
        .collect();
    snapshots.sort();
    (volumes, snapshots)
}

fn snapshot_pages(fixture: &Fixture, filter: &SnapshotFilter, max: usize) -> Vec<SnapshotId> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = fixture.engine.list_snapshots(filter, after.as_ref(), max).unwrap();
        assert!(max == 0 || page.entries.len() <= max);
        all.extend(page.entries.into_iter().map(|record| record.id));
        match page.next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}

#[test]
fn snapshots_are_paged_with_and_without_a_filter() {
    let fixture = two_pools();
    let (volumes, snapshots) = six_snapshots(&fixture);
    for max in 0..=7 {
        assert_eq!(
            snapshot_pages(&fixture, &SnapshotFilter::default(), max),
            snapshots,
            "{max} a page"
        );
        for source in &volumes {
            let filter = SnapshotFilter { source: Some(source.clone()), snapshot: None };
            let found = snapshot_pages(&fixture, &filter, max);
            assert_eq!(found.len(), 2, "{max} a page");
            let of_source =
                |id: &SnapshotId| fixture.engine.snapshot(id).unwrap().source == *source;
            assert!(found.iter().all(of_source));
        }
    }
}

#[test]
fn filters_combine_and_unknown_ids_find_nothing() {
    let fixture = two_pools();
    let (volumes, snapshots) = six_snapshots(&fixture);
    let chosen = fixture.engine.snapshot(&snapshots[3]).unwrap();
    let find = |snapshot: Option<&SnapshotId>, source: Option<&VolumeId>| {
        let filter = SnapshotFilter { snapshot: snapshot.cloned(), source: source.cloned() };
        snapshot_pages(&fixture, &filter, 0)
    };
    let alone = std::slice::from_ref(&chosen.id);
    assert_eq!(find(Some(&chosen.id), None), alone);
    assert_eq!(find(Some(&chosen.id), Some(&chosen.source)), alone);
    let other = volumes.iter().find(|volume| **volume != chosen.source);
    assert_eq!(find(Some(&chosen.id), other), []);
    let digest = NameDigest::of_text("never made");
    let pool = chosen.id.pool().clone();
    assert_eq!(find(Some(&SnapshotId::new(pool.clone(), digest.clone())), None), []);
    assert_eq!(find(None, Some(&VolumeId::new(pool, digest))), []);
}
