//! Publications that another mount hides: still in use, and there again when that is unmounted.

use orlop_engine::request::PublishVolume;
use orlop_model::AccessMode::*;
use orlop_model::{DeviceAccess, Error, HostRecords, NodeRecord, Result};

use crate::fixture::*;

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
        let fixture = Fixture::new();
        let id = fixture.create_as(block_volume("raw"));
        fixture.engine.stage_volume(&stage_block(&id)).unwrap();
        fixture.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
        let device = fixture.device(&id);
        fixture.host.cover(&path(ABOVE));
        if record_is_lost {
            fixture.host.save_node_record(&id, &NodeRecord::default()).unwrap();
            refused_for_cover(fixture.engine.delete_volume(&id));
            fixture.engine.stage_volume(&stage_block(&id)).unwrap();
        }
        for _ in 0..2 {
            refused_for_cover(fixture.unpublish(&id, TARGET));
            refused_for_cover(fixture.unstage(&id));
            refused!(fixture.engine.delete_volume(&id), Error::Precondition(_));
        }
        let reader = PublishVolume { read_only: true, ..publish_block(&id, READER) };
        refused_for_cover(fixture.engine.publish_volume(&reader));
        assert_eq!(fixture.device(&id), device);

        fixture.host.uncover(&path(ABOVE));
        fixture.unpublish(&id, TARGET).unwrap();
        fixture.unstage(&id).unwrap();
        fixture.assert_node_is_clean();
    }
}

#[test]
fn a_reader_keeps_its_device() {
    let fixture = Fixture::new();
    let id = fixture.create_as(block_volume("raw"));
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    let reader = PublishVolume { read_only: true, ..publish_block(&id, TARGET) };
    fixture.engine.publish_volume(&reader).unwrap();
    let device = fixture.attached(&id, DeviceAccess::ReadOnly);
    fixture.host.cover(&path(ABOVE));
    refused_for_cover(fixture.engine.publish_volume(&publish_block(&id, READER)));
    refused_for_cover(fixture.unpublish(&id, TARGET));
    assert!(device.is_some());
    assert_eq!(fixture.attached(&id, DeviceAccess::ReadOnly), device);
}

#[test]
fn a_filesystem_is_not_half_unstaged() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    fixture.host.cover(&path(ABOVE));
    refused_for_cover(fixture.unpublish(&id, TARGET));
    refused_for_cover(fixture.unstage(&id));
    // The path does not show the volume, so the same call again cannot be answered with OK.
    refused_for_cover(fixture.engine.publish_volume(&publish(&id, TARGET)));
    assert!(fixture.host.mounts().contains(&path(STAGING)));
    fixture.host.uncover(&path(ABOVE));
    fixture.unpublish(&id, TARGET).unwrap();
    fixture.unstage(&id).unwrap();
    fixture.assert_node_is_clean();
}

/// The mode allows one path only, and the hidden one is a path.
#[test]
fn a_single_writer_gets_no_second_path() {
    let fixture = Fixture::new();
    let capability = mount(None, SingleNodeSingleWriter);
    let mut new = volume("v");
    new.capabilities = only(capability.clone());
    let id = fixture.create_as(new);
    let mut staged = stage(&id);
    staged.capability = capability.clone();
    fixture.engine.stage_volume(&staged).unwrap();
    let at = |target| PublishVolume { capability: capability.clone(), ..publish(&id, target) };
    fixture.engine.publish_volume(&at(TARGET)).unwrap();
    fixture.host.cover(&path(ABOVE));
    refused_for_cover(fixture.engine.publish_volume(&at(READER)));
}

#[test]
fn an_inline_volume_is_not_removed() {
    let fixture = Fixture::new();
    for capability in [block(SingleNodeWriter), mount(None, SingleNodeWriter)] {
        let request = crate::inline::inline_as(TARGET, capability);
        fixture.engine.publish_volume(&request).unwrap();
        fixture.host.cover(&path(ABOVE));
        for _ in 0..2 {
            refused_for_cover(fixture.engine.unpublish_volume(&request.volume, &path(TARGET)));
        }
        assert_eq!(fixture.names().len(), 1);
        fixture.host.uncover(&path(ABOVE));
        fixture.engine.unpublish_volume(&request.volume, &path(TARGET)).unwrap();
        fixture.assert_node_is_clean();
    }
}
