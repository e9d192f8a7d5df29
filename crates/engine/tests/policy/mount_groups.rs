//! `volume_mount_group` where several workloads share a volume.

use orlop_engine::request::{PublishVolume, StageVolume};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{Error, VolumeCapability, VolumeId};

use crate::bench::*;

fn of_group(group: u32) -> VolumeCapability {
    mount_with(None, SingleNodeMultiWriter, &[], Some(group))
}

fn stage_for(id: &VolumeId, group: u32) -> StageVolume {
    StageVolume { capability: of_group(group), ..stage(id) }
}

fn publish_for(id: &VolumeId, target: &str, group: u32) -> PublishVolume {
    PublishVolume { capability: of_group(group), ..publish(id, target) }
}

fn shared_volume(bench: &Bench) -> VolumeId {
    let mut request = volume("v");
    request.capabilities = only(mount(None, SingleNodeMultiWriter));
    bench.create_as(request)
}

#[test]
fn files_are_given_to_one_group_at_a_time() {
    let bench = Bench::new();
    let id = shared_volume(&bench);
    let group = || bench.host.group(&path(STAGING));
    bench.engine.stage_volume(&stage_for(&id, 1)).unwrap();
    bench.engine.publish_volume(&publish_for(&id, TARGET, 1)).unwrap();
    refused!(
        bench.engine.publish_volume(&publish_for(&id, OTHER_TARGET, 2)),
        Error::Precondition(_)
    );
    assert_eq!(group(), Some(1));
    bench.unpublish(&id, TARGET).unwrap();
    bench.engine.publish_volume(&publish_for(&id, OTHER_TARGET, 2)).unwrap();
    assert_eq!(group(), Some(2));

    // A repeated stage takes nothing from those who have it now, whichever group it names.
    for repeated in [1, 2] {
        bench.engine.stage_volume(&stage_for(&id, repeated)).unwrap();
        assert_eq!(group(), Some(2));
    }
    refused!(bench.engine.stage_volume(&stage_for(&id, 3)), Error::Conflict { .. });
}

#[test]
fn a_workload_without_a_group_minds_none() {
    let bench = Bench::new();
    let id = shared_volume(&bench);
    let without = mount(None, SingleNodeMultiWriter);
    let request = StageVolume { capability: without.clone(), ..stage(&id) };
    bench.engine.stage_volume(&request).unwrap();
    let request = PublishVolume { capability: without, ..publish(&id, TARGET) };
    bench.engine.publish_volume(&request).unwrap();
    assert_eq!(bench.host.group(&path(STAGING)), None);
    bench.engine.publish_volume(&publish_for(&id, OTHER_TARGET, 2)).unwrap();
    assert_eq!(bench.host.group(&path(STAGING)), Some(2));
}

#[test]
fn a_group_that_cannot_be_given_publishes_nothing() {
    let bench = Bench::new();
    let id = shared_volume(&bench);
    bench.engine.stage_volume(&stage_for(&id, 1)).unwrap();
    bench.host.fail_next(Op::SetGroup, Error::failed("give to a group", "EIO"));
    bench.engine.publish_volume(&publish_for(&id, TARGET, 2)).unwrap_err();
    assert_eq!(bench.host.mounts(), [path(STAGING)]);
    assert_eq!(bench.node_record(&id).publications, []);
    bench.engine.publish_volume(&publish_for(&id, TARGET, 2)).unwrap();
    assert_eq!(bench.host.group(&path(STAGING)), Some(2));
}
