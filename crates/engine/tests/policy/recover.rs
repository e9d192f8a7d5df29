//! What a predecessor that was killed left behind.

use orlop_host::memory::Op;
use orlop_model::{DeviceAccess, Error, HostMounts, HostRecords, NodeRecord, Pool};

use crate::fixture::*;

/// A node of it may be where no mount table shows it, and its number would be used again.
#[test]
fn a_device_without_a_record_is_left_alone() {
    let mut fixture = Fixture::new();
    let [found, recorded] = ["found", "recorded"].map(|name| fixture.create(name));
    for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
        fixture.pool().devices().ensure_attached(&found, access).unwrap();
    }
    fixture.stage(&recorded);
    fixture.restart();
    assert_eq!(fixture.pool().devices().attached_volumes().unwrap().len(), 2);
    assert_eq!(
        fixture.engine.unrecorded(fixture.pool().id()).unwrap(),
        std::slice::from_ref(&found)
    );
    fixture.unstage(&recorded).unwrap();
    // Nothing uses it: what was only found is no reason to keep a volume.
    fixture.engine.delete_volume(&found).unwrap();
    fixture.assert_node_is_clean();
}

#[test]
fn a_volume_in_use_without_a_record_is_not_deleted() {
    let fixture = Fixture::new();
    let [mounted, raw] = [fixture.create("mounted"), fixture.create_as(block_volume("raw"))];
    fixture.stage(&mounted);
    fixture.publish(&mounted);
    fixture.engine.stage_volume(&stage_block(&raw)).unwrap();
    fixture.engine.publish_volume(&publish_block(&raw, OTHER_TARGET)).unwrap();
    for id in [&mounted, &raw] {
        fixture.host.save_node_record(id, &NodeRecord::default()).unwrap();
        refused!(fixture.engine.delete_volume(id), Error::Precondition(_));
        assert!(fixture.attached(id, DeviceAccess::ReadWrite).is_some());
    }
    refused!(fixture.unstage(&mounted), Error::Precondition(_));
    assert_eq!(fixture.host.mounts().len(), 3, "nothing is taken from the workload");
}

#[test]
fn devices_in_use_are_left_alone() {
    let mut fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    let device = fixture.device(&id);
    fixture.restart();
    assert_eq!(fixture.device(&id), device);
    assert_eq!(fixture.host.mounts().len(), 2);
}

#[test]
fn a_device_whose_record_cannot_be_read_is_left_alone() {
    let mut fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.host.fail_next(Op::ReadRecord, Error::damaged("the record", "torn"));
    fixture.restart();
    assert!(fixture.attached(&id, DeviceAccess::ReadWrite).is_some());
}

/// Killed after the record and the device, before the mount.
#[test]
fn interrupted_stage_is_finished_by_a_repeated_call() {
    let mut fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.host.ensure_unmounted(&path(STAGING)).unwrap();
    fixture.restart();
    fixture.stage(&id);
    assert_eq!(fixture.host.mounts(), [path(STAGING)]);
    fixture.unstage(&id).unwrap();
    fixture.assert_node_is_clean();
}

#[test]
fn an_interrupted_stage_is_undone_by_unstage() {
    let mut fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.host.ensure_unmounted(&path(STAGING)).unwrap();
    fixture.restart();
    fixture.unstage(&id).unwrap();
    fixture.assert_node_is_clean();
    fixture.engine.delete_volume(&id).unwrap();
}

/// Killed after the unmount, before the record was removed.
#[test]
fn interrupted_unpublish_is_finished_by_a_repeat() {
    let mut fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    fixture.host.ensure_unmounted(&path(TARGET)).unwrap();
    fixture.restart();
    fixture.unpublish(&id, TARGET).unwrap();
    assert!(fixture.node_record(&id).publications.is_empty());
    assert!(!fixture.host.has_target(&path(TARGET)));
    fixture.unstage(&id).unwrap();
    fixture.assert_node_is_clean();
}

#[test]
fn record_of_a_vanished_mount_is_harmless() {
    let mut fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    let record = fixture.node_record(&id);
    fixture.host.reboot();
    fixture.pool().reboot();
    fixture.host.save_node_record(&id, &record).unwrap();
    fixture.restart();
    fixture.engine.delete_volume(&id).unwrap();
    assert_eq!(fixture.node_record(&id), NodeRecord::default());
}

#[test]
fn lost_records_do_not_disturb_a_workload() {
    let mut fixture = Fixture::new();
    let [mounted, raw] = [fixture.create("mounted"), fixture.create_as(block_volume("raw"))];
    fixture.stage(&mounted);
    fixture.publish(&mounted);
    fixture.engine.stage_volume(&stage_block(&raw)).unwrap();
    fixture.engine.publish_volume(&publish_block(&raw, OTHER_TARGET)).unwrap();
    for id in [&mounted, &raw] {
        fixture.host.save_node_record(id, &NodeRecord::default()).unwrap();
    }
    fixture.restart();
    for (id, target) in [(&mounted, TARGET), (&raw, OTHER_TARGET)] {
        assert!(fixture.attached(id, DeviceAccess::ReadWrite).is_some());
        fixture.unpublish(id, target).unwrap();
        assert!(!fixture.host.has_target(&path(target)));
    }
    fixture.unstage(&mounted).unwrap();
    assert!(fixture.attached(&mounted, DeviceAccess::ReadWrite).is_none());
}

#[test]
fn stage_killed_after_its_mount_is_completed() {
    let mut fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    // As if the call had been one with a group, and had died between the mount and the group.
    let mut wanted = stage(&id);
    wanted.capability = mount_with(None, wanted.capability.mode, &[], Some(1234));
    let mut node = fixture.node_record(&id);
    node.stage.as_mut().unwrap().capability = wanted.capability.clone();
    fixture.host.save_node_record(&id, &node).unwrap();
    fixture.restart();
    assert_eq!(fixture.host.group(&path(STAGING)), None);
    fixture.engine.stage_volume(&wanted).unwrap();
    assert_eq!(fixture.host.group(&path(STAGING)), Some(1234));
}
