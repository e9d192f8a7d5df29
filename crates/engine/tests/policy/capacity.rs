//! GetCapacity: sums over the pools that a request could go to.

use orlop_engine::request::{CapacityAnswer, CapacityQuery, CreateVolume};
use orlop_host::MemoryHost;
use orlop_model::AccessMode::*;
use orlop_model::{Error, FsType, Topology, VolumeParameters};

use crate::fixture::*;

const TIB: u64 = 1 << 40;

fn pools() -> Vec<orlop_pools::MemoryPoolConfig> {
    vec![
        pool("fast", &zone("z1"), 40 * GIB),
        pool("slow", &zone("z2"), 20 * GIB),
        pool("shared", &Topology::default(), 10 * GIB),
    ]
}

fn anything() -> CapacityQuery {
    CapacityQuery { capabilities: None, parameters: VolumeParameters::default(), topology: None }
}

fn ask(fixture: &Fixture, query: &CapacityQuery) -> CapacityAnswer {
    fixture.engine.capacity(query).unwrap()
}

#[test]
fn capacity_sums_pools_and_largest_volume_fits_one() {
    let fixture = Fixture::with_pools(pools());
    let answer = ask(&fixture, &anything());
    assert_eq!((answer.available, answer.maximum_volume), (70 * GIB, 40 * GIB));
    let largest =
        CreateVolume { range: Some(range(answer.maximum_volume, 0)), ..volume("largest") };
    fixture.create_as(largest);
    assert_eq!(ask(&fixture, &anything()).available, 30 * GIB);
    let more = CreateVolume { range: Some(range(20 * GIB + MIB, 0)), ..volume("more") };
    refused!(fixture.engine.create_volume(&more), Error::Exhausted(_) | Error::OutOfRange(_));
}

/// An orchestrator publishes the figure at each change, and asks every minute.
#[test]
fn small_volume_does_not_change_the_capacity() {
    let figures = |bytes| {
        let fixture = Fixture::with_pools(vec![pool("large", &zone("z1"), bytes)]);
        let answer = ask(&fixture, &anything());
        (answer.available, answer.maximum_volume)
    };
    assert_eq!(figures(3 * TIB + 900 * MIB), (3 * TIB, 3 * TIB));
    assert_eq!(figures(3 * TIB + 900 * MIB), figures(3 * TIB + 4096));
}

#[test]
fn topology_and_pool_name_filter_the_capacity() {
    let fixture = Fixture::with_pools(pools());
    let at =
        |name| ask(&fixture, &CapacityQuery { topology: Some(zone(name)), ..anything() }).available;
    assert_eq!((at("z1"), at("z2"), at("z3")), (50 * GIB, 30 * GIB, 10 * GIB));
    let named = |name| CapacityQuery { parameters: parameters(&[("pool", name)]), ..anything() };
    assert_eq!(ask(&fixture, &named("slow")).maximum_volume, 20 * GIB);
    let nowhere = ask(&fixture, &named("nowhere"));
    assert_eq!((nowhere.available, nowhere.maximum_volume), (0, 0));
}

#[test]
fn unsupported_filesystem_has_no_capacity() {
    let fixture = Fixture::on_host(MemoryHost::new(vec![FsType::Ext4]));
    let as_fs = |fs| CapacityQuery {
        capabilities: Some(only(mount(Some(fs), SingleNodeWriter))),
        ..anything()
    };
    assert_eq!(ask(&fixture, &as_fs(FsType::Xfs)).available, 0);
    assert_eq!(ask(&fixture, &as_fs(FsType::Ext4)).available, 100 * GIB);
    let bare = Fixture::on_host(MemoryHost::new(vec![]));
    let default =
        CapacityQuery { capabilities: Some(only(mount(None, SingleNodeWriter))), ..anything() };
    assert_eq!(ask(&bare, &default).available, 0);
    let raw = CapacityQuery { capabilities: Some(only(block(SingleNodeWriter))), ..anything() };
    assert_eq!(ask(&bare, &raw).available, 100 * GIB);
}

#[test]
fn smallest_volume_depends_on_use_and_can_be_created() {
    let fixture = Fixture::new();
    let uses = FsType::ALL.map(|fs| (Some(fs), only(mount(Some(fs), SingleNodeWriter))));
    for (fs, capabilities) in uses.into_iter().chain([(None, only(block(SingleNodeWriter)))]) {
        let query = CapacityQuery { capabilities: Some(capabilities.clone()), ..anything() };
        let smallest = ask(&fixture, &query).minimum_volume;
        assert_eq!(smallest, fs.map_or(MIB, FsType::smallest_volume));
        let limited = |name: &str, limit| CreateVolume {
            name: format!("{name}-{fs:?}").parse().unwrap(),
            range: Some(range(0, limit)),
            capabilities: capabilities.clone(),
            ..volume("v")
        };
        let made = fixture.engine.create_volume(&limited("smallest", smallest)).unwrap();
        assert_eq!(made.record.capacity_bytes, smallest);
        refused!(
            fixture.engine.create_volume(&limited("below", smallest - 1)),
            Error::OutOfRange(_)
        );
    }
}

#[test]
fn capacity_failure_is_an_error_not_zero() {
    let fixture = Fixture::new();
    fixture.pool().fail_next("capacity", Error::failed("statfs", "broken on purpose"));
    refused!(fixture.engine.capacity(&anything()), Error::Failed { .. });
}

#[test]
fn failing_pool_does_not_hide_other_pools() {
    let fixture = Fixture::with_pools(vec![
        pool("sick", &zone("z1"), 100 * GIB),
        pool("well", &zone("z1"), 50 * GIB),
    ]);
    let whole = ask(&fixture, &anything()).available;
    for error in [Error::failed("statfs", "broken on purpose"), unreachable()] {
        fixture.pools[0].fail_next("capacity", error);
        let rest = ask(&fixture, &anything()).available;
        assert!(rest > 0 && rest < whole, "{rest} of {whole}");
    }
    fixture.pools[0].fail_next("capacity", unreachable());
    let query = CapacityQuery { parameters: parameters(&[("pool", "sick")]), ..anything() };
    assert_eq!(ask(&fixture, &query).available, 0);
}

fn unreachable() -> Error {
    Error::unreachable("statfs", "read-only")
}
