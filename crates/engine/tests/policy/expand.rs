//! Growing on the pool, then on the node.

use orlop_engine::request::{NodeExpand, PublishVolume, StageVolume, VolumeRef};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{DeviceAccess, Error, FsType, Host, NameDigest, VolumeId};

use crate::bench::*;

fn on_node(id: &VolumeId, at: &str) -> NodeExpand {
    NodeExpand { volume: issued(id), path: path(at), range: None, capability: None }
}

/// Grown on the pool, so that the device could show it.
fn grow(bench: &Bench, id: &VolumeId, bytes: u64) {
    bench.engine.expand_volume(id, &range(bytes, 0), None).unwrap();
    for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
        if let Some(device) = bench.attached(id, access) {
            bench.host.set_device_size(&device, bytes);
        }
    }
}

#[test]
fn a_volume_grows_and_never_shrinks() {
    let bench = Bench::new();
    let id = bench.create("v");
    let expand = |required, limit| {
        bench.engine.expand_volume(&id, &range(required, limit), None).map(|now| now.capacity_bytes)
    };
    assert_eq!(expand(2 * GIB, 0).unwrap(), 2 * GIB);
    assert_eq!(expand(2 * GIB, 0).unwrap(), 2 * GIB, "CE-02");
    assert_eq!(expand(GIB, 0).unwrap(), 2 * GIB, "CE-03");
    assert_eq!(expand(2 * GIB + 1, 0).unwrap(), 2 * GIB + MIB);
    refused!(expand(3 * GIB + 1, 3 * GIB + 2), Error::OutOfRange(_));
    refused!(expand(0, GIB), Error::OutOfRange(_));
    refused!(expand(1 << 50, 0), Error::OutOfRange(_) | Error::Exhausted(_));
    assert_eq!(bench.record(&id).capacity_bytes, 2 * GIB + MIB);
}

#[test]
fn the_node_always_follows() {
    let bench = Bench::new();
    let id = bench.create("v");
    let answer = bench.engine.expand_volume(&id, &range(2 * GIB, 0), None).unwrap();
    assert!(answer.node_expansion_required);
}

#[test]
fn what_the_volume_is_not_made_for_is_invalid() {
    let bench = Bench::new();
    let id = bench.create("v");
    let raw = block(SingleNodeWriter);
    refused!(
        bench.engine.expand_volume(&id, &range(2 * GIB, 0), Some(&raw)),
        Error::Invalid { .. }
    );
    bench.stage(&id);
    let request = NodeExpand { capability: Some(raw), ..on_node(&id, STAGING) };
    refused!(bench.engine.expand_node_volume(&request), Error::Invalid { .. });
    assert_eq!(bench.record(&id).capacity_bytes, GIB);
}

#[test]
fn unknown_volumes_are_not_found() {
    let bench = Bench::new();
    let never = VolumeId::new(bench.create("v").pool().clone(), NameDigest::of_text("never made"));
    refused!(bench.engine.expand_volume(&never, &range(GIB, 0), None), Error::NoSuchVolume(_));
    refused!(bench.engine.expand_node_volume(&on_node(&never, STAGING)), Error::NoSuchVolume(_));
    let foreign = NodeExpand { volume: VolumeRef::parse("not-ours"), ..on_node(&never, STAGING) };
    refused!(bench.engine.expand_node_volume(&foreign), Error::NoSuchVolume(_));
}

#[test]
fn a_mounted_filesystem_fills_its_grown_device() {
    for fs in FsType::ALL {
        let bench = Bench::new();
        let id = bench.create_as(volume_of("v", fs));
        bench.stage(&id);
        bench.publish(&id);
        for (bytes, at) in [(2 * GIB, STAGING), (3 * GIB, TARGET)] {
            grow(&bench, &id, bytes);
            assert_eq!(bench.engine.expand_node_volume(&on_node(&id, at)).unwrap(), bytes);
            assert_eq!(bench.host.filesystem_size(&bench.device(&id)), bytes, "{fs} at {at}");
            assert_eq!(bench.engine.expand_node_volume(&on_node(&id, at)).unwrap(), bytes, "NE-02");
        }
    }
}

#[test]
fn a_volume_that_grew_at_rest_is_grown_when_it_is_staged() {
    for fs in FsType::ALL {
        let bench = Bench::new();
        let id = bench.create_as(volume_of("v", fs));
        bench.stage(&id);
        let device = bench.device(&id);
        bench.unstage(&id).unwrap();
        grow(&bench, &id, 2 * GIB);
        bench.host.set_device_size(&device, 2 * GIB);
        bench.stage(&id);
        assert_eq!(bench.host.filesystem_size(&bench.device(&id)), 2 * GIB, "{fs}");
    }
}

#[test]
fn a_filesystem_that_will_not_grow_now_says_so() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    grow(&bench, &id, 2 * GIB);
    bench.host.fail_next(Op::GrowMounted, Error::precondition("not while mounted"));
    refused!(bench.engine.expand_node_volume(&on_node(&id, STAGING)), Error::Precondition(_));
    bench.engine.expand_node_volume(&on_node(&id, STAGING)).unwrap();
}

#[test]
fn a_raw_device_has_no_filesystem_to_grow() {
    let bench = Bench::new();
    let id = bench.create_as(block_volume("v"));
    bench.engine.stage_volume(&stage_block(&id)).unwrap();
    bench.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    grow(&bench, &id, 2 * GIB);
    assert_eq!(bench.engine.expand_node_volume(&on_node(&id, TARGET)).unwrap(), 2 * GIB);
    assert_eq!(bench.host.count(Op::GrowMounted), 0);
}

#[test]
fn the_node_grants_nothing_that_the_controller_did_not() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    let wanting = |required, limit| NodeExpand {
        range: Some(range(required, limit)),
        ..on_node(&id, STAGING)
    };
    refused!(bench.engine.expand_node_volume(&wanting(2 * GIB, 0)), Error::OutOfRange(_));
    refused!(bench.engine.expand_node_volume(&wanting(MIB, GIB - 1)), Error::OutOfRange(_));
    bench.engine.expand_node_volume(&wanting(MIB, 0)).unwrap();
    bench.engine.expand_node_volume(&wanting(GIB, GIB)).unwrap();
}

#[test]
fn a_volume_is_grown_where_it_is_and_nowhere_else() {
    let bench = Bench::new();
    let id = bench.create("v");
    refused!(bench.engine.expand_node_volume(&on_node(&id, STAGING)), Error::NotAtPath { .. });
    bench.stage(&id);
    refused!(bench.engine.expand_node_volume(&on_node(&id, TARGET)), Error::NotAtPath { .. });
    bench.host.ensure_unmounted(&path(STAGING)).unwrap();
    refused!(bench.engine.expand_node_volume(&on_node(&id, STAGING)), Error::Precondition(_));
}

#[test]
fn a_volume_that_is_staged_to_be_read_grows_later() {
    let bench = Bench::new();
    let id = bench.create("v");
    let reading = StageVolume { capability: mount(None, SingleNodeReaderOnly), ..stage(&id) };
    bench.engine.stage_volume(&reading).unwrap();
    grow(&bench, &id, 2 * GIB);
    refused!(bench.engine.expand_node_volume(&on_node(&id, STAGING)), Error::Precondition(_));
    bench.unstage(&id).unwrap();
    bench.engine.stage_volume(&reading).unwrap();
    assert_eq!(bench.host.filesystem_size(&bench.device(&id)), 2 * GIB);
}

#[test]
fn a_reader_of_a_writable_stage_does_not_stop_growth() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench
        .engine
        .publish_volume(&PublishVolume { read_only: true, ..publish(&id, TARGET) })
        .unwrap();
    grow(&bench, &id, 2 * GIB);
    bench.engine.expand_node_volume(&on_node(&id, TARGET)).unwrap();
    assert_eq!(bench.host.filesystem_size(&bench.device(&id)), 2 * GIB);
}
