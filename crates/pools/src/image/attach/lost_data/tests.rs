use orlop_model::{Device, Pool};
use orlop_sys::tool;

use super::super::super::testbed::*;
use super::*;

const RW: DeviceAccess = DeviceAccess::ReadWrite;
const RO: DeviceAccess = DeviceAccess::ReadOnly;

#[track_caller]
fn assert_only_copy(outcome: Result<()>, device: &Device) {
    let Err(Error::Precondition(text)) = outcome else { panic!("{outcome:?}") };
    let device = device.path.display();
    assert!(text.as_str().contains(&format!("dd if={device} ")), "{text}");
    assert!(text.as_str().contains(&format!("'losetup --detach {device}'")), "{text}");
}

#[test]
fn the_last_device_on_lost_data_is_not_detached() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let devices = pool.devices();
        let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
        let id = &record.id;
        let writable = devices.ensure_attached(id, RW).unwrap();
        devices.ensure_attached(id, RO).unwrap();
        devices.check_detachable(id).unwrap();
        fs::remove_file(data_of(&pool, id)).unwrap();
        assert!(devices.check_detachable(id).is_err());
        // The other one keeps the file.
        devices.ensure_detached(id, RO).unwrap();
        for outcome in [
            devices.ensure_detached(id, RW),
            devices.try_detach_unused(id, RW),
            devices.check_detachable(id),
        ] {
            assert_only_copy(outcome, &writable);
        }
        let refused = pool.provisioner().ensure_no_volume(id);
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(devices.attached(id, RW).unwrap().as_ref(), Some(&writable));
        tool::run("losetup", ["--detach".as_ref(), writable.path.as_os_str()]).unwrap();
        devices.ensure_detached(id, RW).unwrap();
        pool.provisioner().ensure_no_volume(id).unwrap();
    }
}

/// The path of the pool leads to nothing then, as it does when a disk is unplugged.
#[test]
fn a_pool_that_is_removed_as_a_whole_leaves_the_devices() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
    orlop_sys::file::remove_tree(&testbed.pool_path()).unwrap();
    assert_only_copy(pool.devices().ensure_detached(&record.id, RW), &device);
    tool::run("losetup", ["--detach".as_ref(), device.path.as_os_str()]).unwrap();
    pool.devices().ensure_detached(&record.id, RW).unwrap();
}

#[test]
fn replaced_data_is_neither_copied_nor_grown() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let id = &record.id;
    let device = pool.devices().ensure_attached(id, RW).unwrap();
    let data = data_of(&pool, id);
    fs::copy(&data, data.with_extension("restored")).unwrap();
    fs::rename(data.with_extension("restored"), &data).unwrap();
    let damaged = |outcome: Result<()>| match outcome {
        Err(Error::Damaged { reason, .. }) => {
            assert!(reason.contains(device.path.to_str().unwrap()), "{reason}");
        }
        other => panic!("{other:?}"),
    };
    damaged(pool.devices.check_shows_data(id));
    damaged(pool.devices.check_still("copy", id));
    damaged(pool.provisioner().ensure_capacity(id, 32 * MIB).map(drop));
    damaged(pool.devices().refresh_device(id).map(drop));
    let condition = pool.health().condition(id).unwrap();
    assert!(condition.is_abnormal() && condition.message().len() <= 128, "{condition:?}");
    assert!(condition.message().contains(device.path.to_str().unwrap()), "{condition:?}");
    tool::run("losetup", ["--detach".as_ref(), device.path.as_os_str()]).unwrap();
    assert!(!pool.health().condition(id).unwrap().is_abnormal());
    pool.provisioner().ensure_capacity(id, 32 * MIB).unwrap();
}
