//! In thin pools of real LVM; in the guest of tests/guest, as volumes have to become devices.

mod content;
mod many;
mod space;

use std::fs::File;
use std::os::unix::fs::FileExt;

use orlop_model::{Catalogue, ContentSource};
use orlop_sys::tool;

use super::*;
use crate::lvm::device_mapper;
use crate::lvm::testbed::{MIB, TestPool as Pool};

fn suspended(pool: &Pool) -> Vec<String> {
    device_mapper::suspended(&format!("orlop-v-{}", pool.opened.info.id)).unwrap()
}

#[test]
fn volume_is_made_grown_and_removed() {
    let Some(pool) = Pool::new(128 * MIB) else { return };
    let made = pool.create("a", 10 * MIB);
    let report = pool.opened.lvm.report().unwrap();
    let lv = report.lv(&made.id.to_string()).unwrap();
    // Whole extents of 4 MiB.
    assert_eq!((lv.size, lv.is_active()), (12 * MIB, false));
    pool.write(&made.id, 7);

    let grown = pool.provisioner().ensure_capacity(&made.id, 11 * MIB).unwrap();
    assert_eq!(grown.capacity_bytes, 11 * MIB, "within the last extent");
    let grown = pool.provisioner().ensure_capacity(&made.id, 20 * MIB).unwrap();
    assert_eq!(pool.provisioner().ensure_capacity(&made.id, 15 * MIB).unwrap(), grown);
    let pool = pool.reopen();
    assert_eq!(pool.opened.catalogue.volume(&made.id).unwrap(), Some(grown));
    assert_eq!(pool.opened.lvm.report().unwrap().lv(&made.id.to_string()).unwrap().size, 20 * MIB);

    pool.provisioner().ensure_no_volume(&made.id).unwrap();
    pool.provisioner().ensure_no_volume(&made.id).unwrap();
    assert_eq!(pool.lv_names(), [""; 0]);
}

#[test]
fn snapshots_and_copies_do_not_need_their_source() {
    let Some(pool) = Pool::new(128 * MIB) else { return };
    let source = pool.create("a", 16 * MIB);
    pool.write(&source.id, 1);
    let first = pool.snapshot("s1", &source).unwrap();
    pool.write(&source.id, 2);
    let second = pool.snapshot("s2", &source).unwrap();
    assert!(second.created > first.created);
    let copy = pool.copy("copy", 16 * MIB, ContentSource::Volume(source.id.clone())).unwrap();
    pool.write(&source.id, 3);
    pool.provisioner().ensure_no_volume(&source.id).unwrap();

    let larger = pool.copy("larger", 24 * MIB, ContentSource::Snapshot(first.id.clone())).unwrap();
    pool.provisioner().ensure_no_snapshot(&first.id).unwrap();
    assert_eq!((pool.read(&larger.id), pool.read(&copy.id)), (1, 2));
    assert_eq!(pool.read_snapshot(&second.id), 2);
    pool.write(&larger.id, 9);
    let report = pool.opened.lvm.report().unwrap();
    assert_eq!(report.lv(&larger.id.to_string()).unwrap().size, 24 * MIB);
    assert!(report.lv(&second.id.to_string()).unwrap().is_read_only());

    let refused = pool.copy("smaller", 8 * MIB, ContentSource::Snapshot(second.id));
    assert!(matches!(refused, Err(Error::OutOfRange(_))), "{refused:?}");
}

/// As the engine freezes it. Linux before 6.8 lets nothing else freeze it then.
#[test]
fn volume_with_a_frozen_filesystem_is_snapshotted() {
    let Some(pool) = Pool::new(192 * MIB) else { return };
    let source = pool.create("a", 64 * MIB);
    let device = pool.attach(&source.id).display().to_string();
    tool::run("mkfs.ext4", ["-q", &device]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let point = directory.path().display().to_string();
    tool::run("mount", [&device, &point]).unwrap();
    std::fs::write(directory.path().join("before"), "x").unwrap();
    tool::run("fsfreeze", ["--freeze", &point]).unwrap();
    let taken = pool.snapshot("s", &source);
    let frozen = tool::run("fsfreeze", ["--unfreeze", &point]);
    std::fs::write(directory.path().join("after"), "x").unwrap();
    let in_use = pool.provisioner().ensure_no_volume(&source.id);
    tool::run("umount", [&point]).unwrap();

    assert!(frozen.is_ok(), "{frozen:?}");
    assert!(matches!(in_use, Err(Error::Precondition(_))), "{in_use:?}");
    assert_eq!(pool.opened.catalogue.volume(&source.id).unwrap(), Some(source.clone()));
    let source_of_copy = ContentSource::Snapshot(taken.unwrap().id);
    let copy = pool.copy("copy", 64 * MIB, source_of_copy).unwrap();
    let device = pool.attach(&copy.id).display().to_string();
    // Clean, as its journal need not be replayed.
    tool::run("e2fsck", ["-f", "-n", &device]).unwrap();
    tool::run("mount", ["-o", "ro,noload", &device, &point]).unwrap();
    let held = ["before", "after"].map(|file| directory.path().join(file).exists());
    tool::run("umount", [&point]).unwrap();
    assert_eq!(held, [true, false]);
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
}

#[test]
fn group_snapshot_is_there_with_all_its_members_or_not_at_all() {
    let Some(pool) = Pool::new(128 * MIB) else { return };
    let (a, b) = (pool.create("a", 8 * MIB), pool.create("b", 8 * MIB));
    pool.write(&a.id, 1);
    pool.write(&b.id, 2);
    let new = pool.new_group("g", &[&a, &b]);
    let mut draft = pool.provisioner().begin_group_snapshot(&new).unwrap();
    draft.capture().unwrap();
    assert_eq!(suspended(&pool), [""; 0]);
    pool.write(&b.id, 3);
    assert_eq!(pool.opened.catalogue.snapshots(None, 0).unwrap(), []);
    let group = draft.commit().unwrap();
    let members = pool.opened.catalogue.snapshots(None, 0).unwrap();
    assert_eq!(members.len(), 2);
    let refused = pool.provisioner().ensure_no_snapshot(&members[0].id);
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    let of =
        |source: &VolumeRecord| members.iter().find(|member| member.source == source.id).unwrap();
    assert_eq!((pool.read_snapshot(&of(&a).id), pool.read_snapshot(&of(&b).id)), (1, 2));

    let pool = pool.reopen();
    assert_eq!(pool.opened.catalogue.group_snapshot(&group.id).unwrap(), Some(group.clone()));
    pool.provisioner().ensure_no_group_snapshot(&group.id).unwrap();
    pool.provisioner().ensure_no_group_snapshot(&group.id).unwrap();
    assert_eq!(pool.lv_names().len(), 2);

    // A member that cannot be made: its name is taken.
    let new = pool.new_group("h", &[&a, &b]);
    pool.bed.create_lv(&new.members[1].id.to_string(), 1, &[]);
    let mut draft = pool.provisioner().begin_group_snapshot(&new).unwrap();
    assert!(draft.capture().is_err());
    assert_eq!(suspended(&pool), [""; 0]);
    drop(draft);
    assert_eq!(pool.lv_names().len(), 3);

    // All members are whole, and the record of the group cannot be written.
    let mut draft =
        pool.provisioner().begin_group_snapshot(&pool.new_group("i", &[&a, &b])).unwrap();
    draft.capture().unwrap();
    pool.bed.run("lvrename", &[&pool.bed.group, "tp", "elsewhere"]);
    let refused = draft.commit();
    pool.bed.run("lvrename", &[&pool.bed.group, "elsewhere", "tp"]);
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(pool.lv_names().len(), 3);
    assert_eq!(pool.opened.catalogue.snapshots(None, 0).unwrap(), []);
}

/// LVM would refuse to copy the first one while writers of all wait.
#[test]
fn no_volume_is_suspended_while_a_disk_is_missing() {
    let Some(mut pool) = Pool::new(64 * MIB) else { return };
    let source = pool.create("a", 8 * MIB);
    let new = pool.new_group("g", &[&source]);
    drop(pool.provisioner().begin_group_snapshot(&new).unwrap());
    // One that the pool's settings do not let LVM see.
    let disk = pool.bed.plug_in_new();
    pool.bed.run("vgextend", &[&pool.bed.group, &disk]);
    let begun = pool.provisioner().begin_group_snapshot(&new).map(drop);
    pool.bed.run("vgreduce", &[&pool.bed.group, &disk]);
    assert!(matches!(begun, Err(Error::Unreachable { .. })), "{begun:?}");
}

#[test]
fn dropped_drafts_leave_nothing() {
    let Some(pool) = Pool::new(64 * MIB) else { return };
    let source = pool.create("a", 8 * MIB);
    let new = pool.new_volume("copy", 8 * MIB, Some(ContentSource::Volume(source.id.clone())));
    let mut draft = pool.provisioner().begin_volume(&new).unwrap();
    draft.capture().unwrap();
    assert_eq!(pool.lv_names().len(), 2);
    drop(draft);
    let mut draft = pool.provisioner().begin_snapshot(&pool.new_snapshot("s", &source)).unwrap();
    draft.capture().unwrap();
    drop(draft);
    assert_eq!(pool.lv_names().len(), 1);

    // One that finds its name taken removes nothing.
    let taken = pool.snapshot("s", &source).unwrap();
    let refused = pool.snapshot("s", &source);
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    assert_eq!(pool.opened.catalogue.snapshot(&taken.id).unwrap(), Some(taken));
    let refused =
        pool.provisioner().begin_volume(&pool.new_volume("a", 8 * MIB, None)).unwrap().commit();
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    assert_eq!(pool.lv_names().len(), 2);
    let available = || pool.opened.capacity.available(Provisioning::Thin).unwrap().available_bytes;
    assert_eq!(available(), 56 * MIB, "no reservation is left");
}

#[test]
fn no_more_is_promised_than_there_is() {
    let Some(pool) = Pool::new(64 * MIB) else { return };
    let source = pool.create("a", 40 * MIB);
    let refused = |new: &NewVolume| match pool.provisioner().begin_volume(new) {
        Err(Error::Exhausted(reason)) => reason.as_str().to_owned(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{} was made", new.id),
    };
    assert!(refused(&pool.new_volume("b", 25 * MIB, None)).contains("24.0 MiB of its"));
    let begun = pool.provisioner().begin_volume(&pool.new_volume("b", 24 * MIB, None)).unwrap();
    refused(&pool.new_volume("c", MIB, None));
    drop(begun);
    let grown = pool.provisioner().ensure_capacity(&source.id, 65 * MIB);
    assert!(matches!(grown, Err(Error::Exhausted(_))), "{grown:?}");

    // All of it is written: nothing new is made, and what is there can be removed.
    let (all, rest) = (pool.create("d", 24 * MIB), pool.attach(&source.id));
    for (device, bytes) in [(pool.attach(&all.id), 24 * MIB), (rest, 40 * MIB)] {
        let device = File::options().write(true).open(device).unwrap();
        for offset in (0..bytes).step_by(1 << 20) {
            device.write_all_at(&[1; 1 << 20], offset).unwrap();
        }
        device.sync_all().unwrap();
    }
    let full = pool.snapshot("s", &source).unwrap_err().to_string();
    assert!(full.contains("below its floor"), "{full}");
    assert!(pool.opened.capacity.shortage().unwrap().is_some());
    pool.provisioner().ensure_no_volume(&all.id).unwrap();
    assert_eq!(pool.opened.capacity.shortage().unwrap(), None);
    pool.snapshot("s", &source).unwrap();
}
