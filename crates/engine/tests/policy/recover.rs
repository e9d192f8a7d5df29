//! What a predecessor that was killed left behind.

use orlop_host::memory::Op;
use orlop_model::{DeviceAccess, Error, Host, NodeRecord, Pool};

use crate::bench::*;

#[test]
fn a_device_that_nobody_recorded_is_released() {
    let mut bench = Bench::new();
    let id = bench.create("v");
    for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
        bench.pool().ensure_attached(&id, access).unwrap();
    }
    bench.restart();
    bench.assert_node_is_clean();
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
