//! What a predecessor that was killed left behind.

use orlop_host::memory::Op;
use orlop_model::{DeviceAccess, Error, Host, NodeRecord, Pool};

use crate::bench::*;

/// A node of it may be where no mount table shows it, and its number would be used again.
#[test]
fn a_device_without_a_record_is_left_alone() {
    let mut bench = Bench::new();
    let [found, recorded] = ["found", "recorded"].map(|name| bench.create(name));
    for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
        bench.pool().devices().ensure_attached(&found, access).unwrap();
    }
    bench.stage(&recorded);
    bench.restart();
    assert_eq!(bench.pool().devices().attached_volumes().unwrap().len(), 2);
    assert_eq!(bench.engine.unrecorded(bench.pool().id()).unwrap(), std::slice::from_ref(&found));
    bench.unstage(&recorded).unwrap();
    // Nothing uses it: what was only found is no reason to keep a volume.
    bench.engine.delete_volume(&found).unwrap();
    bench.assert_node_is_clean();
}

#[test]
fn a_volume_in_use_without_a_record_is_not_deleted() {
    let bench = Bench::new();
    let [mounted, raw] = [bench.create("mounted"), bench.create_as(block_volume("raw"))];
    bench.stage(&mounted);
    bench.publish(&mounted);
    bench.engine.stage_volume(&stage_block(&raw)).unwrap();
    bench.engine.publish_volume(&publish_block(&raw, OTHER_TARGET)).unwrap();
    for id in [&mounted, &raw] {
        bench.host.save_node_record(id, &NodeRecord::default()).unwrap();
        refused!(bench.engine.delete_volume(id), Error::Precondition(_));
        assert!(bench.attached(id, DeviceAccess::ReadWrite).is_some());
    }
    refused!(bench.unstage(&mounted), Error::Precondition(_));
    assert_eq!(bench.host.mounts().len(), 3, "nothing is taken from the workload");
}

#[test]
fn what_is_in_use_is_left_alone() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    let device = bench.device(&id);
    bench.restart();
    assert_eq!(bench.device(&id), device);
    assert_eq!(bench.host.mounts().len(), 2);
}

#[test]
fn a_device_whose_record_cannot_be_read_is_left_alone() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.host.fail_next(Op::ReadRecord, Error::damaged("the record", "torn"));
    bench.restart();
    assert!(bench.attached(&id, DeviceAccess::ReadWrite).is_some());
}

/// Killed after the record and the device, before the mount.
#[test]
fn an_interrupted_stage_is_finished_by_the_repeated_call() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.host.ensure_unmounted(&path(STAGING)).unwrap();
    bench.restart();
    bench.stage(&id);
    assert_eq!(bench.host.mounts(), [path(STAGING)]);
    bench.unstage(&id).unwrap();
    bench.assert_node_is_clean();
}

#[test]
fn an_interrupted_stage_is_undone_by_unstage() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.host.ensure_unmounted(&path(STAGING)).unwrap();
    bench.restart();
    bench.unstage(&id).unwrap();
    bench.assert_node_is_clean();
    bench.engine.delete_volume(&id).unwrap();
}

/// Killed after the unmount, before the record was taken away.
#[test]
fn an_interrupted_unpublish_is_finished_by_the_repeated_call() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    bench.host.ensure_unmounted(&path(TARGET)).unwrap();
    bench.restart();
    bench.unpublish(&id, TARGET).unwrap();
    assert!(bench.node_record(&id).publications.is_empty());
    assert!(!bench.host.has_target(&path(TARGET)));
    bench.unstage(&id).unwrap();
    bench.assert_node_is_clean();
}

#[test]
fn a_record_of_something_that_is_gone_does_no_harm() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    let record = bench.node_record(&id);
    bench.host.reboot();
    bench.pool().reboot();
    bench.host.save_node_record(&id, &record).unwrap();
    bench.restart();
    bench.engine.delete_volume(&id).unwrap();
    assert_eq!(bench.node_record(&id), NodeRecord::default());
}

#[test]
fn records_that_are_lost_take_nothing_from_a_workload_with_them() {
    let mut bench = Bench::new();
    let [mounted, raw] = [bench.create("mounted"), bench.create_as(block_volume("raw"))];
    bench.stage(&mounted);
    bench.publish(&mounted);
    bench.engine.stage_volume(&stage_block(&raw)).unwrap();
    bench.engine.publish_volume(&publish_block(&raw, OTHER_TARGET)).unwrap();
    for id in [&mounted, &raw] {
        bench.host.save_node_record(id, &NodeRecord::default()).unwrap();
    }
    bench.restart();
    for (id, target) in [(&mounted, TARGET), (&raw, OTHER_TARGET)] {
        assert!(bench.attached(id, DeviceAccess::ReadWrite).is_some());
        bench.unpublish(id, target).unwrap();
        assert!(!bench.host.has_target(&path(target)));
    }
    bench.unstage(&mounted).unwrap();
    assert!(bench.attached(&mounted, DeviceAccess::ReadWrite).is_none());
}

#[test]
fn a_stage_that_was_killed_after_its_mount_is_completed() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    // As if the call had been one with a group, and had died between the mount and the group.
    let mut wanted = stage(&id);
    wanted.capability = mount_with(None, wanted.capability.mode, &[], Some(1234));
    let mut node = bench.node_record(&id);
    node.stage.as_mut().unwrap().capability = wanted.capability.clone();
    bench.host.save_node_record(&id, &node).unwrap();
    bench.restart();
    assert_eq!(bench.host.group(&path(STAGING)), None);
    bench.engine.stage_volume(&wanted).unwrap();
    assert_eq!(bench.host.group(&path(STAGING)), Some(1234));
}
