//! In the guest of tests/guest, as volumes have to become devices.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use orlop_model::{Provisioner, VolumeRecord};

use super::*;
use crate::lvm::LvmPool;
use crate::lvm::testbed::{LIMIT, MIB, Testbed, volume};

/// A pool with one volume, which is detached when it goes out of scope.
struct Attached {
    opened: LvmPool,
    id: VolumeId,
    bed: Testbed,
}

impl Attached {
    fn new() -> Option<Self> {
        let bed = Testbed::with_devices(1)?;
        bed.create_thin_pool("tp", 64 * MIB);
        let opened = LvmPool::open(bed.config(true)).unwrap();
        let mut record = volume("a");
        record.id = VolumeId::new(opened.info.id.clone(), record.id.digest().clone());
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
    let suspended = || device_mapper::suspended(&prefix(&pool.opened.info.id)).unwrap().len();
    let guard = pool.devices().suspend(&pool.id).unwrap();
    assert_eq!(suspended(), 1);
    drop(guard);
    assert_eq!(suspended(), 0);

    // As if it were killed then.
    std::mem::forget(pool.devices().suspend(&pool.id).unwrap());
    assert_eq!(suspended(), 1);
    pool.opened.close();
    LvmPool::open(pool.bed.config(false)).unwrap();
    assert_eq!(suspended(), 0);
    File::options().write(true).open(&device.path).unwrap().write_all_at(&[1; 4096], 0).unwrap();
}

/// As the helper process does, when the pipe ends that the daemon holds.
#[test]
fn thaw_helper_resumes_what_a_killed_daemon_suspended() {
    let Some(pool) = Attached::new() else { return };
    let device = pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    let suspended = || device_mapper::suspended(&prefix(&pool.opened.info.id)).unwrap().len();
    std::mem::forget(pool.devices().suspend(&pool.id).unwrap());
    assert_eq!(suspended(), 1);
    let message = format!("+{}\0", device.path.display());
    orlop_sys::thaw_helper::run(format!("{message}-{}\0", device.path.display()).as_bytes());
    assert_eq!(suspended(), 1, "it was unregistered");
    orlop_sys::thaw_helper::run(message.as_bytes());
    assert_eq!(suspended(), 0);
}

#[test]
fn logical_volume_in_use_by_hand_is_not_attached_or_deleted() {
    let Some(pool) = Attached::new() else { return };
    let lv = pool.bed.lvm().group().lv(&pool.id);
    pool.bed.run("lvchange", &["--activate", "y", "--ignoreactivationskip", &lv]);
    let path = pool.bed.lvm().group().device_path(&pool.id.to_string());
    let open = File::open(&path).unwrap();
    let refused = pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap_err();
    assert!(matches!(&refused, Error::Precondition(_)), "{refused:?}");
    assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
    let refused = pool.opened.provisioner.ensure_no_volume(&pool.id);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    assert!(pool.opened.catalogue.volume_objects().require(&pool.id).is_ok(), "it is whole still");
    drop(open);
    pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    // Opened by hand while it is attached: the device goes, and the rest stays.
    let open = File::open(&path).unwrap();
    pool.devices().ensure_detached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    assert!(pool.is_active());
    assert_eq!(pool.devices().attached_volumes().unwrap(), []);
    drop(open);
}

#[test]
fn device_with_a_bound_node_is_in_use() {
    let Some(pool) = Attached::new() else { return };
    let device = pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let point = directory.path().join("node");
    File::create(&point).unwrap();
    let (from, to) = (device.path.display().to_string(), point.display().to_string());
    orlop_sys::tool::run("mount", ["--bind", &from, &to]).unwrap();
    let refused = pool.devices().try_detach_unused(&pool.id, DeviceAccess::ReadWrite);
    orlop_sys::tool::run("umount", [&to]).unwrap();
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    pool.devices().try_detach_unused(&pool.id, DeviceAccess::ReadWrite).unwrap();
    assert_eq!(pool.devices().attached(&pool.id, DeviceAccess::ReadWrite).unwrap(), None);
}

#[test]
fn missing_nodes_are_made_when_the_pool_is_opened() {
    let Some(pool) = Attached::new() else { return };
    let device = pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    let lv = pool.bed.lvm().group().device_path(&pool.id.to_string());
    for node in [&device.path, &lv] {
        fs::remove_file(node).unwrap();
    }
    pool.opened.close();
    let next = LvmPool::open(pool.bed.config(false)).unwrap();
    let found = next.devices.attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    assert_eq!(found, Some(device));
    assert!(lv.exists());
}

#[test]
fn node_of_a_device_that_is_gone_is_no_device() {
    let Some(pool) = Attached::new() else { return };
    let device = pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    let name = DeviceAccess::ReadOnly.mapped_name(&pool.id);
    // As of a device whose number another one has by now.
    let stale = device_mapper::path_of(&name);
    let number = (device.major.to_string(), device.minor.to_string());
    let stale = stale.display().to_string();
    orlop_sys::tool::run("mknod", [&stale, "b", &number.0, &number.1]).unwrap();
    let found = pool.devices().attached(&pool.id, DeviceAccess::ReadOnly);
    fs::remove_file(&stale).unwrap();
    assert_eq!(found.unwrap(), None);
    assert!(pool.devices().attached(&pool.id, DeviceAccess::ReadWrite).unwrap().is_some());
}

/// As of a copy of the volume group that is in use.
#[test]
fn device_on_something_else_is_not_taken_for_the_volume() {
    let Some(pool) = Attached::new() else { return };
    let name = DeviceAccess::ReadWrite.mapped_name(&pool.id);
    let disk = pool.bed.disk(0);
    let table = format!("0 8 linear {disk} 0");
    orlop_sys::tool::run("dmsetup", ["create", &name, "--table", &table]).unwrap();
    let (devices, id) = (pool.devices(), &pool.id);
    let found = [
        devices.attached(id, DeviceAccess::ReadWrite).map(drop),
        devices.ensure_attached(id, DeviceAccess::ReadWrite).map(drop),
        devices.ensure_detached(id, DeviceAccess::ReadWrite),
        pool.opened.provisioner.ensure_no_volume(id),
    ];
    orlop_sys::tool::run("dmsetup", ["remove", &name]).unwrap();
    for refused in found {
        assert!(matches!(&refused, Err(Error::Precondition(_))), "{refused:?}");
    }
    devices.ensure_attached(id, DeviceAccess::ReadWrite).unwrap();
}

/// As a command of LVM leaves them that was killed.
#[test]
fn logical_volumes_that_lvm_suspended_are_resumed() {
    let Some(pool) = Attached::new() else { return };
    let device = pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    let group = pool.bed.lvm().group().clone();
    let lv = group.device_name(&pool.id.to_string());
    let thin_pool = format!("{}-tpool", group.device_name("tp"));
    for name in [&lv, &thin_pool] {
        orlop_sys::tool::run("dmsetup", ["suspend", "--noflush", "--nolockfs", name]).unwrap();
    }
    let of_group = group.device_name("");
    assert_eq!(device_mapper::suspended(&of_group).unwrap().len(), 2);
    pool.opened.close();
    let opened = LvmPool::open(pool.bed.config(false));
    let left = device_mapper::suspended(&of_group).unwrap();
    left.iter().for_each(|name| device_mapper::resume(name).unwrap());
    assert_eq!(left, [""; 0]);
    opened.unwrap();
    let open = File::options().write(true).open(&device.path).unwrap();
    open.write_all_at(&[1; 4096], 0).unwrap();
    open.sync_all().unwrap();
}

/// A thread that waits for a command of LVM cannot do it.
#[test]
fn volume_that_is_suspended_for_too_long_is_resumed() {
    let Some(pool) = Attached::new() else { return };
    let device = pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    let name = DeviceAccess::ReadWrite.mapped_name(&pool.id);
    let suspended = || device_mapper::suspended(&prefix(&pool.opened.info.id)).unwrap().len();
    let file = commands_lock(&pool.opened.info.id);
    let in_time =
        SuspendedDevice::suspend(name.clone(), device.path.clone(), None, (&file, LIMIT)).unwrap();
    assert_eq!(suspended(), 1);
    assert!(in_time.resume());
    assert_eq!(suspended(), 0);

    let limit = Duration::from_millis(100);
    let too_long =
        SuspendedDevice::suspend(name, device.path.clone(), None, (&file, limit)).unwrap();
    // Waits until it is resumed.
    let open = File::options().write(true).open(&device.path).unwrap();
    open.write_all_at(&[1; 4096], 0).unwrap();
    open.sync_all().unwrap();
    assert_eq!(suspended(), 0);
    assert!(!too_long.resume());
}

/// Where LVM is given no choice of disks it reads the labels of all, and would wait for that of the suspended volume.
#[test]
fn lvm_passes_over_volumes_that_are_suspended() {
    let Some(pool) = Attached::new() else { return };
    let device = pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    // Not all of the machine: those of other tests would be held open.
    let all = [pool.bed.disk(0), device.path.display().to_string()]
        .map(|path| format!("\"a|^{path}$|\","))
        .concat();
    let all = format!("{} devices/filter=[{all}\"r|.*|\"] devices/hints=none", pool.bed.settings());
    let limit = Duration::from_secs(20);
    let lvm = || Lvm::new(pool.bed.group.parse().unwrap(), &all, limit);
    let guard = pool.devices().suspend(&pool.id).unwrap();
    let (unaware, aware) = (lvm(), lvm());
    let note = aware.note_suspended();
    let reports = [unaware.report().map(drop), aware.report().map(drop)];
    drop((note, guard));
    assert!(matches!(reports[0], Err(Error::Unreachable { .. })), "{:?}", reports[0]);
    assert!(reports[1].is_ok(), "{:?}", reports[1]);
    assert!(device.path.exists());
}

#[test]
fn device_on_another_logical_volume_is_not_taken_for_the_volume() {
    let Some(pool) = Attached::new() else { return };
    pool.bed.create_lv("other", 2, &[]);
    let other = pool.bed.lvm().group().lv(&"other");
    pool.bed.run("lvchange", &["--activate", "y", &other]);
    let path = pool.bed.lvm().group().device_path("other").display().to_string();
    let name = DeviceAccess::ReadWrite.mapped_name(&pool.id);
    for table in [format!("0 8 linear {path} 0"), "0 8 zero".to_owned()] {
        orlop_sys::tool::run("dmsetup", ["create", &name, "--table", &table]).unwrap();
        let attached = pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite);
        orlop_sys::tool::run("dmsetup", ["remove", &name]).unwrap();
        assert!(matches!(&attached, Err(Error::Precondition(_))), "{attached:?}");
    }
    pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
}

/// It waits for what is written, and the next daemon begins in the meantime.
#[test]
fn volume_that_is_suspended_after_its_daemon_was_killed_is_resumed() {
    let Some(pool) = Attached::new() else { return };
    pool.devices().ensure_attached(&pool.id, DeviceAccess::ReadWrite).unwrap();
    let name = DeviceAccess::ReadWrite.mapped_name(&pool.id);
    let suspended = || device_mapper::suspended(&prefix(&pool.opened.info.id)).unwrap();
    pool.opened.close();
    let file = commands_lock(&pool.opened.info.id);
    let late = format!("sleep 2; exec dmsetup suspend --nolockfs {name}");
    std::thread::scope(|scope| {
        let running =
            scope.spawn(|| orlop_sys::tool::run_to_end_locking(&file, "sh", ["-c", &late]));
        while orlop_sys::tool::all_ended_within(Duration::ZERO, &file).unwrap() {
            assert!(!running.is_finished());
        }
        let opened = LvmPool::open(pool.bed.config(false));
        assert!(running.join().unwrap().unwrap().status.success());
        let left = suspended();
        left.iter().for_each(|name| device_mapper::resume(name).unwrap());
        opened.unwrap();
        assert_eq!(left, [""; 0]);
    });
}
