//! What the next daemon finds, after one that was killed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use orlop_model::{
    Catalogue, ContentSource, DeviceAccess, Devices, Provisioner, SnapshotRecord, VolumeRecord,
};

use crate::lvm::LvmPool;
use crate::lvm::layout::word_tag;
use crate::lvm::testbed::{MIB, TestPool};

fn lv(pool: &TestPool, name: &impl std::fmt::Display) -> String {
    pool.opened.lvm.group().lv(name)
}

/// As if it had been killed before the step that follows.
fn mark(pool: &TestPool, name: &impl std::fmt::Display, from: &str, to: &str) {
    let (from, to) = (word_tag(from), word_tag(to));
    pool.bed.run("lvchange", &["--deltag", &from, "--addtag", &to, &lv(pool, name)]);
}

fn volumes(pool: &TestPool) -> Vec<VolumeRecord> {
    let all = pool.opened.catalogue.volumes(None, 0).unwrap();
    all.into_iter().map(|(_, record)| record.unwrap()).collect()
}

#[test]
fn what_was_begun_is_finished_or_removed_and_the_rest_stays() {
    let Some(pool) = TestPool::new(128 * MIB) else { return };
    let (kept, deleted) = (pool.create("kept", 8 * MIB), pool.create("deleted", 8 * MIB));
    pool.write(&kept.id, 5);
    let taken = pool.snapshot("taken", &kept).unwrap();
    // A deletion that has removed nothing yet.
    mark(&pool, &deleted.id, "whole", "deleted");
    // Copies that were taken and not committed.
    let source = ContentSource::Snapshot(taken.id.clone());
    let mut half =
        pool.provisioner().begin_volume(&pool.new_volume("half", 8 * MIB, Some(source))).unwrap();
    half.capture().unwrap();
    std::mem::forget(half);
    let mut half = pool.provisioner().begin_snapshot(&pool.new_snapshot("half", &kept)).unwrap();
    half.capture().unwrap();
    std::mem::forget(half);
    // A group whose record was deleted, and its members were not.
    let group = pool.new_group("g", &[&kept, &deleted]);
    let group = pool.provisioner().begin_group_snapshot(&group).unwrap().commit().unwrap();
    pool.opened.catalogue.group_snapshot_records().remove(&group.id).unwrap();
    assert_eq!(pool.lv_names().len(), 7);

    let pool = pool.reopen();
    assert_eq!(volumes(&pool), std::slice::from_ref(&kept));
    let snapshots: Vec<SnapshotRecord> = pool.opened.catalogue.snapshots(None, 0).unwrap();
    assert_eq!(snapshots, std::slice::from_ref(&taken));
    assert_eq!(pool.lv_names().len(), 2);
    // In use all the time.
    let device = pool.opened.devices.attached(&kept.id, DeviceAccess::ReadWrite).unwrap().unwrap();
    let attached = pool.opened.devices.attached_volumes().unwrap();
    assert_eq!(attached, std::slice::from_ref(&kept.id));
    File::options().write(true).open(&device.path).unwrap().write_all_at(&[6; 4096], MIB).unwrap();
    assert_eq!((pool.read(&kept.id), pool.read_snapshot(&taken.id)), (6, 5));
}

#[test]
fn expansion_is_repeated_after_each_of_its_steps() {
    let Some(pool) = TestPool::new(128 * MIB) else { return };
    let volume = pool.create("a", 8 * MIB);
    let device = pool.attach(&volume.id);
    // The logical volume has grown, and its record has not.
    pool.bed.run("lvextend", &["--size", "16m", &lv(&pool, &volume.id)]);
    let pool = pool.reopen();
    assert_eq!(volumes(&pool)[0].capacity_bytes, 8 * MIB);
    let grown = pool.provisioner().ensure_capacity(&volume.id, 16 * MIB).unwrap();
    assert_eq!(grown.capacity_bytes, 16 * MIB);
    // The record has grown, and the device has not.
    let pool = pool.reopen();
    let size = || {
        std::fs::File::open(&device)
            .and_then(|mut it| std::io::Seek::seek(&mut it, std::io::SeekFrom::End(0)))
    };
    assert_eq!(size().unwrap(), 8 * MIB);
    assert_eq!(pool.opened.devices.refresh_device(&volume.id).unwrap(), 16 * MIB);
    assert_eq!(size().unwrap(), 16 * MIB);
}

#[test]
fn after_a_reboot_nothing_is_active_and_all_can_be_used() {
    let Some(pool) = TestPool::new(128 * MIB) else { return };
    let volume = pool.create("a", 8 * MIB);
    pool.write(&volume.id, 3);
    pool.detach(&volume.id);
    pool.opened.close();
    pool.bed.run("vgchange", &["--activate", "n", &pool.bed.group]);
    assert!(!pool.bed.lvm().report().unwrap().lv("tp").unwrap().is_active());
    let pool = pool.reopen();
    let report = pool.opened.lvm.report().unwrap();
    assert!(report.lv("tp").unwrap().is_active());
    assert!(!report.lv(&volume.id.to_string()).unwrap().is_active());
    assert_eq!(pool.read(&volume.id), 3);
}

#[test]
fn what_is_not_orlops_is_never_touched() {
    let Some(pool) = TestPool::new(128 * MIB) else { return };
    let volume = pool.create("a", 8 * MIB);
    pool.write(&volume.id, 4);
    // A snapshot by hand, of a name that ours would have: LVM does not copy tags.
    let (named, other) = (pool.snapshot_id("by hand"), "by-hand");
    let origin = lv(&pool, &volume.id);
    for name in [&named.to_string(), other] {
        pool.bed.run("lvcreate", &["--snapshot", "--name", name, &origin]);
    }
    let foreign_volume = pool.volume_id("foreign").to_string();
    let thin = format!("{}/tp", pool.bed.group);
    let arguments = ["--virtualsize", "8m", "--thinpool", &thin, "--name", &foreign_volume];
    pool.bed.run("lvcreate", &arguments);
    let before = pool.lv_names();
    assert_eq!(before.len(), 4);

    let pool = pool.reopen();
    assert_eq!(pool.lv_names(), before);
    assert_eq!(volumes(&pool), std::slice::from_ref(&volume));
    assert_eq!(pool.opened.catalogue.snapshot(&named).unwrap(), None);
    // To make one of that name is refused, and to delete it does nothing.
    let refused =
        pool.provisioner().begin_volume(&pool.new_volume("foreign", 8 * MIB, None)).unwrap();
    let refused = refused.commit().unwrap_err().to_string();
    assert!(refused.contains("is not Orlop's"), "{refused}");
    assert!(pool.snapshot("by hand", &volume).is_err());
    pool.provisioner().ensure_no_volume(&pool.volume_id("foreign")).unwrap();
    pool.provisioner().ensure_no_snapshot(&named).unwrap();
    assert_eq!(pool.lv_names(), before);
    pool.provisioner().ensure_no_volume(&volume.id).unwrap();
    assert_eq!(pool.lv_names().len(), 3);
    // For the volume group to be removed.
    pool.bed.run("vgchange", &["--activate", "n", &pool.bed.group]);
}

#[test]
fn renamed_group_and_thin_pool_are_served_under_their_new_names() {
    let Some(pool) = TestPool::new(64 * MIB) else { return };
    let volume = pool.create("a", 8 * MIB);
    pool.write(&volume.id, 9);
    pool.opened.close();
    pool.bed.run("lvrename", &[&pool.bed.group, "tp", "pool"]);
    let missing = LvmPool::open(pool.bed.config(true)).unwrap_err().to_string();
    assert!(missing.contains("a thin pool tp, and its thin pool pool was"), "{missing}");
    let mut config = pool.bed.config(false);
    config.thin_pool = "pool".to_owned();
    let opened = LvmPool::open(config).unwrap();
    assert_eq!(opened.info.id, pool.opened.info.id);
    let device = opened.devices.attached(&volume.id, DeviceAccess::ReadWrite).unwrap();
    assert!(device.is_some(), "it is attached still");
    opened.close();
    pool.bed.run("lvrename", &[&pool.bed.group, "pool", "tp"]);

    // With a volume in use.
    let renamed = format!("{}-x", pool.bed.group);
    pool.bed.run("vgrename", &[&pool.bed.group, &renamed]);
    let missing = LvmPool::open(pool.bed.config(true));
    assert!(matches!(missing, Err(orlop_model::Error::Unreachable { .. })), "{missing:?}");
    let mut config = pool.bed.config(false);
    config.group = renamed.clone();
    let opened = LvmPool::open(config).unwrap();
    assert!(opened.devices.attached(&volume.id, DeviceAccess::ReadWrite).unwrap().is_some());
    opened.devices.ensure_no_device(&volume.id).unwrap();
    opened.close();
    pool.bed.run("vgrename", &[&renamed, &pool.bed.group]);
}
