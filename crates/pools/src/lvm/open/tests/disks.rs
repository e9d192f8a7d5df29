//! Disks that are missing.

use orlop_model::{DeviceAccess, Devices, Error, Health, Provisioner, Provisioning};

use crate::lvm::LvmPool;
use crate::lvm::testbed::{MIB, TestPool, Testbed};

#[test]
fn pool_whose_disk_is_missing_comes_later() {
    let Some(mut bed) = Testbed::with_devices(2) else { return };
    let create = ["--type", "thin-pool", "--size", "64m", "--name", "tp", &bed.group, &bed.disk(1)];
    bed.run("lvcreate", &create);
    LvmPool::open(bed.config(true)).unwrap();
    bed.run("vgchange", &["--activate", "n", &bed.group]);
    let image = bed.pull_disk();
    let absent = LvmPool::open(bed.config(false)).unwrap_err();
    assert!(matches!(&absent, Error::Unreachable { .. }), "{absent:?}");
    assert!(absent.to_string().contains("pvs"), "{absent}");
    bed.plug_in(&image);
    LvmPool::open(bed.config(false)).unwrap();
}

#[test]
fn disk_that_the_pool_does_not_need_may_be_missing() {
    let Some(bed) = Testbed::with_devices(2) else { return };
    let create = ["--type", "thin-pool", "--size", "64m", "--name", "tp", &bed.group, &bed.disk(0)];
    bed.run("lvcreate", &create);
    let opened = LvmPool::open(bed.config(true)).unwrap();
    let mut pool = TestPool { opened, bed };
    let volume = pool.create("a", 8 * MIB);
    pool.write(&volume.id, 2);
    assert_eq!(pool.opened.health.problems(), []);

    pool.bed.pull_disk();
    let pool = pool.reopen();
    let problems = pool.opened.health.problems();
    assert!(problems.iter().any(|it| it.message.contains("are missing")), "{problems:?}");
    pool.opened.health.check().unwrap();
    assert!(pool.opened.health.condition(&volume.id).unwrap().is_abnormal());
    // What is there can be used.
    assert_eq!(pool.read(&volume.id), 2);
    let device = pool.opened.devices.ensure_attached(&volume.id, DeviceAccess::ReadOnly);
    device.unwrap();
    let refused = pool.provisioner().begin_volume(&pool.new_volume("b", 8 * MIB, None));
    let refused = refused.and_then(orlop_model::Draft::commit);
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
    assert_eq!(pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes, 0);
    pool.opened.devices.ensure_no_device(&volume.id).unwrap();
    pool.bed.run("vgreduce", &["--removemissing", &pool.bed.group]);
}

#[test]
fn exported_group_comes_later() {
    let Some(bed) = Testbed::with_devices(1) else { return };
    bed.create_thin_pool("tp", 64 * MIB);
    LvmPool::open(bed.config(true)).unwrap();
    bed.run("vgchange", &["--activate", "n", &bed.group]);
    bed.run("vgexport", &[&bed.group]);
    let absent = LvmPool::open(bed.config(true)).unwrap_err();
    assert!(matches!(&absent, Error::Unreachable { .. }), "{absent:?}");
    assert!(absent.to_string().contains("vgimport"), "{absent}");
    bed.run("vgimport", &[&bed.group]);
    LvmPool::open(bed.config(false)).unwrap();
}
