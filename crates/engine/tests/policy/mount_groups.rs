//! `volume_mount_group` where several workloads share a volume.

use orlop_engine::request::{PublishVolume, StageVolume};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{Error, VolumeCapability, VolumeId};

use crate::fixture::*;

fn of_group(group: u32) -> VolumeCapability {
    mount_with(None, SingleNodeMultiWriter, &[], Some(group))
}

fn stage_for(id: &VolumeId, group: u32) -> StageVolume {
    StageVolume { capability: of_group(group), ..stage(id) }
}

fn publish_for(id: &VolumeId, target: &str, group: u32) -> PublishVolume {
    PublishVolume { capability: of_group(group), ..publish(id, target) }
}

fn shared_volume(fixture: &Fixture) -> VolumeId {
    let mut request = volume("v");
    request.capabilities = only(mount(None, SingleNodeMultiWriter));
    fixture.create_as(request)
}

#[test]
fn volume_mount_group_is_one_at_a_time() {
    let fixture = Fixture::new();
    let id = shared_volume(&fixture);
    let group = || fixture.host.group(&path(STAGING));
    fixture.engine.stage_volume(&stage_for(&id, 1)).unwrap();
    fixture.engine.publish_volume(&publish_for(&id, TARGET, 1)).unwrap();
    refused!(
        fixture.engine.publish_volume(&publish_for(&id, OTHER_TARGET, 2)),
        Error::Precondition(_)
    );
    assert_eq!(group(), Some(1));
    fixture.unpublish(&id, TARGET).unwrap();
    fixture.engine.publish_volume(&publish_for(&id, OTHER_TARGET, 2)).unwrap();
    assert_eq!(group(), Some(2));

    // A repeated stage takes nothing from those who have it now, whichever group it names.
    for repeated in [1, 2] {
        fixture.engine.stage_volume(&stage_for(&id, repeated)).unwrap();
        assert_eq!(group(), Some(2));
    }
    refused!(fixture.engine.stage_volume(&stage_for(&id, 3)), Error::Conflict { .. });
}

#[test]
fn workload_without_a_group_accepts_any() {
    let fixture = Fixture::new();
    let id = shared_volume(&fixture);
    let without = mount(None, SingleNodeMultiWriter);
    let request = StageVolume { capability: without.clone(), ..stage(&id) };
    fixture.engine.stage_volume(&request).unwrap();
    let request = PublishVolume { capability: without, ..publish(&id, TARGET) };
    fixture.engine.publish_volume(&request).unwrap();
    assert_eq!(fixture.host.group(&path(STAGING)), None);
    fixture.engine.publish_volume(&publish_for(&id, OTHER_TARGET, 2)).unwrap();
    assert_eq!(fixture.host.group(&path(STAGING)), Some(2));
}

#[test]
fn failed_group_change_publishes_nothing() {
    let fixture = Fixture::new();
    let id = shared_volume(&fixture);
    fixture.engine.stage_volume(&stage_for(&id, 1)).unwrap();
    fixture.host.fail_next(Op::SetGroup, Error::failed("give to a group", "EIO"));
    fixture.engine.publish_volume(&publish_for(&id, TARGET, 2)).unwrap_err();
    assert_eq!(fixture.host.mounts(), [path(STAGING)]);
    assert_eq!(fixture.node_record(&id).publications, []);
    fixture.engine.publish_volume(&publish_for(&id, TARGET, 2)).unwrap();
    assert_eq!(fixture.host.group(&path(STAGING)), Some(2));
}
