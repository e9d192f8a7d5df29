//! Which pool takes a volume.

use orlop_engine::request::CreateVolume;
use orlop_model::{Error, Pool, Topology, TopologyRequirement, VolumeId};

use crate::bench::*;

/// `fast` is the larger one, in z1; `slow` is in z2; `shared` can be reached from everywhere.
fn three_pools() -> Bench {
    Bench::with_pools(vec![
        pool("fast", &zone("z1"), 40 * GIB),
        pool("slow", &zone("z2"), 20 * GIB),
        pool("shared", &Topology::default(), 10 * GIB),
    ])
}

fn places(names: &[&str]) -> Vec<Topology> {
    names.iter().map(|name| zone(name)).collect()
}

fn wanting(name: &str, requisite: &[&str], preferred: &[&str]) -> CreateVolume {
    let topology = TopologyRequirement::new(places(requisite), places(preferred)).unwrap();
    CreateVolume { topology: Some(topology), ..volume(name) }
}

fn in_pool(name: &str, pool: &str) -> CreateVolume {
    CreateVolume { parameters: parameters(&[("pool", pool)]), ..volume(name) }
}

fn sized(request: CreateVolume, bytes: u64) -> CreateVolume {
    CreateVolume { range: Some(range(bytes, 0)), ..request }
}

fn pool_name(bench: &Bench, id: &VolumeId) -> String {
    let found = bench.pools.iter().find(|pool| pool.id() == id.pool());
    found.unwrap().name().to_owned()
}

fn placed(bench: &Bench, request: CreateVolume) -> String {
    pool_name(bench, &bench.create_as(request))
}

#[test]
fn without_a_wish_the_pool_with_most_room_is_taken() {
    let bench = three_pools();
    assert_eq!(placed(&bench, sized(volume("a"), 25 * GIB)), "fast");
    assert_eq!(placed(&bench, volume("b")), "slow");
}

/// But only as long as nothing of the volume can be there.
#[test]
fn a_pool_that_is_away_is_passed_over() {
    let bench = three_pools();
    let away = || Error::unreachable("open", "EROFS");
    bench.pools[0].fail_next("begin_volume", away());
    assert_eq!(placed(&bench, volume("a")), "slow");
    bench.pools[0].fail_next("commit", away());
    refused!(bench.engine.create_volume(&volume("b")), Error::Unreachable { .. });
    bench.pools[0].fail_next("begin_volume", away());
    refused!(bench.engine.create_volume(&in_pool("c", "fast")), Error::Unreachable { .. });
}

#[test]
fn a_named_pool_is_taken_or_nothing() {
    let bench = three_pools();
    assert_eq!(placed(&bench, in_pool("a", "slow")), "slow");
    refused!(bench.engine.create_volume(&in_pool("b", "nowhere")), Error::Exhausted(_));
    refused!(
        bench.engine.create_volume(&sized(in_pool("c", "slow"), 30 * GIB)),
        Error::Exhausted(_) | Error::OutOfRange(_)
    );
    assert_eq!(bench.names(), ["a"]);
}

#[test]
fn requisite_places_are_kept() {
    let bench = three_pools();
    assert_eq!(placed(&bench, wanting("a", &["z2"], &[])), "slow");
    let volume = bench.engine.create_volume(&wanting("a", &["z2"], &[])).unwrap();
    assert_eq!(volume.place, zone("z2"));
}

#[test]
fn a_pool_for_everyone_serves_any_place() {
    let bench = three_pools();
    assert_eq!(placed(&bench, wanting("a", &["z9"], &[])), "shared");
}

#[test]
fn preferred_places_come_in_their_order() {
    let bench = Bench::with_pools(vec![
        pool("fast", &zone("z1"), 40 * GIB),
        pool("slow", &zone("z2"), 20 * GIB),
    ]);
    assert_eq!(placed(&bench, wanting("a", &["z1", "z2"], &["z2", "z1"])), "slow");
    assert_eq!(placed(&bench, wanting("b", &["z1", "z2"], &["z1", "z2"])), "fast");
    assert_eq!(placed(&bench, wanting("c", &["z1", "z2"], &["z2"])), "slow");
    // Full where it is preferred: TP-16.
    assert_eq!(placed(&bench, sized(wanting("d", &["z1", "z2"], &["z2"]), 25 * GIB)), "fast");
    // No requisite: any place will do in the end.
    assert_eq!(placed(&bench, wanting("e", &[], &["z7"])), "slow");
}

#[test]
fn requisite_places_without_room_are_exhausted() {
    let bench = Bench::with_pools(vec![
        pool("fast", &zone("z1"), 40 * GIB),
        pool("slow", &zone("z2"), 20 * GIB),
    ]);
    bench.create_as(sized(in_pool("filler", "slow"), 15 * GIB));
    refused!(
        bench.engine.create_volume(&sized(wanting("a", &["z2"], &[]), 10 * GIB)),
        Error::Exhausted(_)
    );
    refused!(bench.engine.create_volume(&wanting("b", &["z3"], &[])), Error::Exhausted(_));
    assert_eq!(bench.names(), ["filler"]);
}

#[test]
fn full_now_outweighs_never_possible() {
    let bench = Bench::with_pools(vec![
        pool("large", &zone("z1"), 40 * GIB),
        pool("small", &zone("z1"), 2 * GIB),
    ]);
    bench.create_as(sized(in_pool("filler", "large"), 30 * GIB));
    refused!(bench.engine.create_volume(&sized(volume("a"), 20 * GIB)), Error::Exhausted(_));
}

#[test]
fn a_copy_stays_on_the_pool_of_its_source() {
    let bench = three_pools();
    let origin = bench.create_as(in_pool("origin", "slow"));
    let snapshot = bench.snapshot("s", &origin);
    assert_eq!(placed(&bench, restored("a", &snapshot)), "slow");
    assert_eq!(placed(&bench, cloned("b", &origin)), "slow");
    let elsewhere =
        CreateVolume { parameters: parameters(&[("pool", "fast")]), ..restored("c", &snapshot) };
    refused!(
        bench.engine.create_volume(&elsewhere),
        Error::Invalid { field: "volume_content_source", .. }
    );
    let unreachable = CreateVolume {
        topology: Some(TopologyRequirement::new(places(&["z1"]), vec![]).unwrap()),
        ..restored("d", &snapshot)
    };
    refused!(bench.engine.create_volume(&unreachable), Error::Exhausted(_));
}

#[test]
fn a_name_is_found_wherever_its_volume_is() {
    let bench = three_pools();
    let id = bench.create_as(in_pool("a", "slow"));
    bench.create_as(in_pool("b", "fast"));
    // Would go to `fast` if it were not there yet.
    refused!(bench.engine.create_volume(&volume("a")), Error::Conflict { .. });
    assert_eq!(bench.create_as(in_pool("a", "slow")), id);
    assert_eq!(bench.names(), ["a", "b"]);
}
