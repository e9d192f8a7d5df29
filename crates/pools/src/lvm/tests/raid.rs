//! A volume with copies that loses a disk.

use orlop_model::{Catalogue, Error, Health, HealthReason, LvmLayout, Provisioner, RaidLevel};

use super::fixture::{Pool, check, fill};
use crate::lvm::testbed::{MIB, Testbed};

#[test]
fn mirror_that_loses_a_disk_goes_on_and_is_repaired() {
    let Some(bed) = Testbed::with_devices(2) else { return };
    // LVM would put its metadata on the other disk.
    let create = ["--type", "thin-pool", "--size", "32m", "--name", "tp", &bed.group];
    bed.run("lvcreate", &[&create[..], &[&bed.first_disk()]].concat());
    let config = bed.config(true);
    let mut pool = Pool::open(bed, config);
    let layout = LvmLayout { raid: Some(RaidLevel::Raid1), ..LvmLayout::default() };
    let made = pool.thick("a", 32 * MIB, layout);
    let device = pool.device(&made.id);
    fill(&device, 1, 0, 16 * MIB);

    pool.bed.break_disk();
    fill(&device, 2, 16 * MIB, 32 * MIB);
    check(&device, 1, 0, 16 * MIB);
    let reasons = || {
        let condition = pool.opened.health.condition(&made.id).unwrap();
        condition.problems().iter().map(|problem| problem.reason).collect::<Vec<_>>()
    };
    pool.opened.lvm.forget_reports();
    assert_eq!(reasons(), [HealthReason::RedundancyLost, HealthReason::PoolReadOnly]);
    // Records can be written, so the volume can be staged and published; nothing is made.
    let published = |record: &mut orlop_model::VolumeRecord| {
        record.limits.read_iops = Some(7);
        Ok(())
    };
    pool.opened.catalogue.update_volume(&made.id, &mut { published }).unwrap();
    let refused = pool.try_thin("b", 4 * MIB);
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");

    // As the message says.
    let group = pool.opened.lvm.group().clone();
    let path = pool.bed.plug_in_new();
    pool.bed.run("vgextend", &[&pool.bed.group, &path]);
    pool.bed.run("lvconvert", &["--repair", &group.lv(&made.id)]);
    pool.bed.run("vgreduce", &["--removemissing", &pool.bed.group]);
    let pool = pool.reopen();
    let condition = pool.opened.health.condition(&made.id).unwrap();
    assert!(!condition.is_abnormal(), "{condition:?}");
    check(&device, 1, 0, 16 * MIB);
    check(&device, 2, 16 * MIB, 32 * MIB);
    pool.opened.provisioner.ensure_capacity(&made.id, 40 * MIB).unwrap();
    drop(device);
}
