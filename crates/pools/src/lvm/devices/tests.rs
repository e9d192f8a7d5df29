//! In the guest of tests/guest, as volumes have to become devices.

use std::fs::File;
use std::os::unix::fs::FileExt;

use orlop_model::VolumeRecord;

use super::*;
use crate::lvm::open::OpenedGroup;
use crate::lvm::testbed::{MIB, Testbed, volume};

/// A pool with one volume, which is detached when it goes out of scope.
struct Attached {
    opened: OpenedGroup,
    id: VolumeId,
    bed: Testbed,
}

impl Attached {
    fn new() -> Option<Self> {
        let bed = Testbed::with_devices(1)?;
        bed.create_thin_pool("tp", 64 * MIB);
        let opened = OpenedGroup::open(&bed.config(true)).unwrap();
        let mut record = volume("a");
        record.id = VolumeId::new(opened.id.clone(), record.id.digest().clone());
        // LVM makes 8 MiB of it.
        record.capacity_bytes = 5 * MIB;
        let thin_pool = format!("{}/tp", bed.group);
        let arguments =
            ["--setactivationskip", "y", "--virtualsize", "5m", "--thinpool", &thin_pool];
        opened.catalogue.volume_objects().create_whole(&record, &arguments).unwrap();
        Some(Self { opened, id: record.id, bed })
    }

    fn devices(&self) -> &LinearDevices {
        &self.opened.devices
    }

    fn is_active(&self) -> bool {
        self.bed.lvm().report().unwrap().lv(&self.id.to_string()).unwrap().is_active()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.devices().ensure_no_device(&self.id);
    }
}

fn size(device: &Device) -> u64 {
    let sectors = format!("/sys/dev/block/{}:{}/size", device.major, device.minor);
    fs::read_to_string(sectors).unwrap().trim().parse::<u64>().unwrap() * 512
}

#[test]
fn device_is_as_large_as_the_record_says() {
    let Some(pool) = Attached::new() else { return };
    assert!(!pool.is_active());
    let device = pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    assert_eq!(size(&device), 5 * MIB);
    let again = pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    assert_eq!(again, device);
    let open = File::options().write(true).open(&device.path).unwrap();

    pool.bed.run("lvextend", &["--size", "11m", &pool.bed.lvm().group().lv(&pool.id)]);
    let volumes = pool.opened.catalogue.volume_objects();
    let record = volumes.require(&pool.id).unwrap();
    volumes.replace(&VolumeRecord { capacity_bytes: 11 * MIB, ..record }).unwrap();
    assert_eq!(size(&device), 5 * MIB);
    assert_eq!(pool.devices().refresh_device(&pool.id).unwrap(), 11 * MIB);
    assert_eq!(size(&device), 11 * MIB, "what has it open sees that");
    open.write_all_at(&[1; 4096], 10 * MIB).unwrap();
}

#[test]
fn device_in_use_stays_and_another_goes() {
    let Some(pool) = Attached::new() else { return };
    let (devices, id) = (pool.devices(), &pool.id);
    let writable = devices.ensure_attached(id, DeviceAccess::ReadWrite).unwrap();
    let read_only = devices.ensure_attached(id, DeviceAccess::ReadOnly).unwrap();
    assert_ne!(writable, read_only);
    // Opening succeeds, as for any read-only block device; writing does not.
    let refused = File::options().write(true).open(&read_only.path).and_then(|device| {
        device.write_all_at(&[1; 4096], 0)?;
        device.sync_all()
    });
    assert!(refused.is_err());

    let open = File::open(&writable.path).unwrap();
    let in_use = devices.ensure_detached(id, DeviceAccess::ReadWrite);
    assert!(matches!(in_use, Err(Error::Precondition(_))), "{in_use:?}");
    devices.ensure_detached(id, DeviceAccess::ReadOnly).unwrap();
    assert_eq!(devices.attached(id, DeviceAccess::ReadOnly).unwrap(), None);
    assert!(pool.is_active() && devices.attached(id, DeviceAccess::ReadWrite).unwrap().is_some());
    drop(open);
    devices.ensure_detached(id, DeviceAccess::ReadWrite).unwrap();
    devices.ensure_detached(id, DeviceAccess::ReadWrite).unwrap();
    assert!(!pool.is_active());
}

#[test]
fn volume_that_a_killed_daemon_suspended_is_resumed() {
    let Some(pool) = Attached::new() else { return };
    assert!(pool.devices().suspend(&pool.id).unwrap().is_none(), "it is not attached");
    let device = pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    let suspended = || device_mapper::suspended(&prefix(&pool.opened.id)).unwrap().len();
    let guard = pool.devices().suspend(&pool.id).unwrap();
    assert_eq!(suspended(), 1);
    drop(guard);
    assert_eq!(suspended(), 0);

    // As if it were killed then.
    std::mem::forget(pool.devices().suspend(&pool.id).unwrap());
    assert_eq!(suspended(), 1);
    OpenedGroup::open(&pool.bed.config(false)).unwrap();
    assert_eq!(suspended(), 0);
    File::options().write(true).open(&device.path).unwrap().write_all_at(&[1; 4096], 0).unwrap();
}
