//! Which pool takes a volume.

use orlop_engine::request::CreateVolume;
use orlop_model::{Error, Pool, Topology, TopologyRequirement, VolumeId};

use crate::fixture::*;

/// `fast` is the larger one, in z1; `slow` is in z2; `shared` can be reached from everywhere.
fn three_pools() -> Fixture {
    Fixture::with_pools(vec![
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

fn pool_name(fixture: &Fixture, id: &VolumeId) -> String {
    let found = fixture.pools.iter().find(|pool| pool.id() == id.pool());
    found.unwrap().name().to_owned()
}

fn placed(fixture: &Fixture, request: CreateVolume) -> String {
    pool_name(fixture, &fixture.create_as(request))
}

#[test]
fn default_is_the_pool_with_most_space() {
    let fixture = three_pools();
    assert_eq!(placed(&fixture, sized(volume("a"), 25 * GIB)), "fast");
    assert_eq!(placed(&fixture, volume("b")), "slow");
}

/// But only as long as nothing of the volume can be there.
#[test]
fn absent_pool_is_skipped() {
    let fixture = three_pools();
    let unreachable = || Error::unreachable("open", "EROFS");
    fixture.pools[0].fail_next("begin_volume", unreachable());
    assert_eq!(placed(&fixture, volume("a")), "slow");
    fixture.pools[0].fail_next("commit", unreachable());
    refused!(fixture.engine.create_volume(&volume("b")), Error::Unreachable { .. });
    fixture.pools[0].fail_next("begin_volume", unreachable());
    refused!(fixture.engine.create_volume(&in_pool("c", "fast")), Error::Unreachable { .. });
}

#[test]
fn named_pool_is_used_or_the_call_fails() {
    let fixture = three_pools();
    assert_eq!(placed(&fixture, in_pool("a", "slow")), "slow");
    refused!(fixture.engine.create_volume(&in_pool("b", "nowhere")), Error::Exhausted(_));
    refused!(
        fixture.engine.create_volume(&sized(in_pool("c", "slow"), 30 * GIB)),
        Error::Exhausted(_) | Error::OutOfRange(_)
    );
    assert_eq!(fixture.names(), ["a"]);
}

#[test]
fn requisite_topology_is_respected() {
    let fixture = three_pools();
    assert_eq!(placed(&fixture, wanting("a", &["z2"], &[])), "slow");
    let volume = fixture.engine.create_volume(&wanting("a", &["z2"], &[])).unwrap();
    assert_eq!(volume.topology, zone("z2"));
}

#[test]
fn shared_pool_serves_any_topology() {
    let fixture = three_pools();
    assert_eq!(placed(&fixture, wanting("a", &["z9"], &[])), "shared");
}

#[test]
fn preferred_topologies_are_tried_in_order() {
    let fixture = Fixture::with_pools(vec![
        pool("fast", &zone("z1"), 40 * GIB),
        pool("slow", &zone("z2"), 20 * GIB),
    ]);
    assert_eq!(placed(&fixture, wanting("a", &["z1", "z2"], &["z2", "z1"])), "slow");
    assert_eq!(placed(&fixture, wanting("b", &["z1", "z2"], &["z1", "z2"])), "fast");
    assert_eq!(placed(&fixture, wanting("c", &["z1", "z2"], &["z2"])), "slow");
    // Full where it is preferred: TP-16.
    assert_eq!(placed(&fixture, sized(wanting("d", &["z1", "z2"], &["z2"]), 25 * GIB)), "fast");
    // No requisite: any topology will do in the end.
    assert_eq!(placed(&fixture, wanting("e", &[], &["z7"])), "slow");
}

#[test]
fn full_requisite_topologies_are_resource_exhausted() {
    let fixture = Fixture::with_pools(vec![
        pool("fast", &zone("z1"), 40 * GIB),
        pool("slow", &zone("z2"), 20 * GIB),
    ]);
    fixture.create_as(sized(in_pool("filler", "slow"), 15 * GIB));
    refused!(
        fixture.engine.create_volume(&sized(wanting("a", &["z2"], &[]), 10 * GIB)),
        Error::Exhausted(_)
    );
    refused!(fixture.engine.create_volume(&wanting("b", &["z3"], &[])), Error::Exhausted(_));
    assert_eq!(fixture.names(), ["filler"]);
}

#[test]
fn exhausted_outweighs_out_of_range() {
    let fixture = Fixture::with_pools(vec![
        pool("large", &zone("z1"), 40 * GIB),
        pool("small", &zone("z1"), 2 * GIB),
    ]);
    fixture.create_as(sized(in_pool("filler", "large"), 30 * GIB));
    refused!(fixture.engine.create_volume(&sized(volume("a"), 20 * GIB)), Error::Exhausted(_));
}

#[test]
fn a_copy_stays_on_the_pool_of_its_source() {
    let fixture = three_pools();
    let origin = fixture.create_as(in_pool("origin", "slow"));
    let snapshot = fixture.snapshot("s", &origin);
    assert_eq!(placed(&fixture, restored("a", &snapshot)), "slow");
    assert_eq!(placed(&fixture, cloned("b", &origin)), "slow");
    let elsewhere =
        CreateVolume { parameters: parameters(&[("pool", "fast")]), ..restored("c", &snapshot) };
    refused!(
        fixture.engine.create_volume(&elsewhere),
        Error::Invalid { field: "volume_content_source", .. }
    );
    let unreachable = CreateVolume {
        topology: Some(TopologyRequirement::new(places(&["z1"]), vec![]).unwrap()),
        ..restored("d", &snapshot)
    };
    refused!(fixture.engine.create_volume(&unreachable), Error::Exhausted(_));
}

#[test]
fn existing_volume_is_found_on_any_pool() {
    let fixture = three_pools();
    let id = fixture.create_as(in_pool("a", "slow"));
    fixture.create_as(in_pool("b", "fast"));
    // Would go to `fast` if it were not there yet.
    refused!(fixture.engine.create_volume(&volume("a")), Error::Conflict { .. });
    assert_eq!(fixture.create_as(in_pool("a", "slow")), id);
    assert_eq!(fixture.names(), ["a", "b"]);
}
