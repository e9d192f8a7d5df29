//! Publications that another mount hides: still in use, and there again when that is unmounted.

use orlop_engine::request::PublishVolume;
use orlop_model::AccessMode::*;
use orlop_model::{DeviceAccess, Error, Host, NodeRecord, Result};

use crate::bench::*;

const ABOVE: &str = "/targets";
const READER: &str = "/elsewhere/reader";

#[track_caller]
fn refused_for_cover<T: std::fmt::Debug>(outcome: Result<T>) {
    let error = refused!(outcome, Error::Precondition(_)).to_string();
    assert!(error.contains(TARGET) && error.contains("unmount what covers"), "{error}");
}

/// Its number would go to another volume, and the workload would find that at its path.
#[test]
fn a_raw_volume_keeps_its_device() {
    for record_is_lost in [false, true] {
        let bench = Bench::new();
        let id = bench.create_as(block_volume("raw"));
        bench.engine.stage_volume(&stage_block(&id)).unwrap();
        bench.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
        let device = bench.device(&id);
        bench.host.cover(&path(ABOVE));
        if record_is_lost {
            bench.host.save_node_record(&id, &NodeRecord::default()).unwrap();
            refused_for_cover(bench.engine.delete_volume(&id));
            bench.engine.stage_volume(&stage_block(&id)).unwrap();
        }
        for _ in 0..2 {
            refused_for_cover(bench.unpublish(&id, TARGET));
            refused_for_cover(bench.unstage(&id));
            refused!(bench.engine.delete_volume(&id), Error::Precondition(_));
        }
        let reader = PublishVolume { read_only: true, ..publish_block(&id, READER) };
        refused_for_cover(bench.engine.publish_volume(&reader));
        assert_eq!(bench.device(&id), device);

        bench.host.uncover(&path(ABOVE));
        bench.unpublish(&id, TARGET).unwrap();
        bench.unstage(&id).unwrap();
        bench.assert_node_is_clean();
    }
}

#[test]
fn a_reader_keeps_its_device() {
    let bench = Bench::new();
    let id = bench.create_as(block_volume("raw"));
    bench.engine.stage_volume(&stage_block(&id)).unwrap();
    let reader = PublishVolume { read_only: true, ..publish_block(&id, TARGET) };
    bench.engine.publish_volume(&reader).unwrap();
    let device = bench.attached(&id, DeviceAccess::ReadOnly);
    bench.host.cover(&path(ABOVE));
    refused_for_cover(bench.engine.publish_volume(&publish_block(&id, READER)));
    refused_for_cover(bench.unpublish(&id, TARGET));
    assert!(device.is_some());
    assert_eq!(bench.attached(&id, DeviceAccess::ReadOnly), device);
}

#[test]
fn a_filesystem_is_not_half_unstaged() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    bench.host.cover(&path(ABOVE));
    refused_for_cover(bench.unpublish(&id, TARGET));
    refused_for_cover(bench.unstage(&id));
    // The path does not show the volume, so the same call again cannot be answered with OK.
    refused_for_cover(bench.engine.publish_volume(&publish(&id, TARGET)));
    assert!(bench.host.mounts().contains(&path(STAGING)));
    bench.host.uncover(&path(ABOVE));
    bench.unpublish(&id, TARGET).unwrap();
    bench.unstage(&id).unwrap();
    bench.assert_node_is_clean();
}

/// The mode allows one path only, and the hidden one is a path.
#[test]
fn a_single_writer_gets_no_second_path() {
    let bench = Bench::new();
    let capability = mount(None, SingleNodeSingleWriter);
    let mut new = volume("v");
    new.capabilities = only(capability.clone());
    let id = bench.create_as(new);
    let mut staged = stage(&id);
    staged.capability = capability.clone();
    bench.engine.stage_volume(&staged).unwrap();
    let at = |target| PublishVolume { capability: capability.clone(), ..publish(&id, target) };
    bench.engine.publish_volume(&at(TARGET)).unwrap();
    bench.host.cover(&path(ABOVE));
    refused_for_cover(bench.engine.publish_volume(&at(READER)));
}

#[test]
fn an_inline_volume_is_not_removed() {
    let bench = Bench::new();
    for capability in [block(SingleNodeWriter), mount(None, SingleNodeWriter)] {
        let request = crate::inline::inline_as(TARGET, capability);
        bench.engine.publish_volume(&request).unwrap();
        bench.host.cover(&path(ABOVE));
        for _ in 0..2 {
            refused_for_cover(bench.engine.unpublish_volume(&request.volume, &path(TARGET)));
        }
        assert_eq!(bench.names().len(), 1);
        bench.host.uncover(&path(ABOVE));
        bench.engine.unpublish_volume(&request.volume, &path(TARGET)).unwrap();
        bench.assert_node_is_clean();
    }
}
