//! In the guest of tests/guest, as volumes have to become devices.

use orlop_model::{BehindDevice, Catalogue, ControllerPublication, ReaderState, Remedy};

use super::*;
use crate::lvm::layout::word_tag;
use crate::lvm::testbed::{MIB, TestPool};

fn node() -> NodeId {
    "n1".parse().unwrap()
}

fn inspect(pool: &TestPool) -> Inspection {
    LvmPool::inspect(&pool.bed.config(false), &node()).unwrap().unwrap()
}

fn codes(inspection: &Inspection) -> Vec<(&str, bool)> {
    let is_repairable = |finding: &Finding| matches!(finding.remedy, Remedy::Repair(_));
    inspection.findings.iter().map(|finding| (finding.code, is_repairable(finding))).collect()
}

#[test]
fn sound_pool_has_no_findings_and_is_in_use_while_it_is_open() {
    let Some(pool) = TestPool::new(64 * MIB) else { return };
    let volume = pool.create("a", 8 * MIB);
    pool.snapshot("s", &volume).unwrap();
    pool.attach(&volume.id);
    let found = inspect(&pool);
    assert_eq!((codes(&found), found.in_use), (vec![], true));
    assert_eq!((found.volumes.len(), found.snapshots), (1, 1));
    assert!(found.holds_volume(&volume.id).unwrap());
    assert!(!found.holds_volume(&pool.volume_id("b")).unwrap());
    let [device] = found.devices.as_slice() else { panic!("{:?}", found.devices) };
    assert_eq!((&device.volume, device.behind), (&volume.id, BehindDevice::Volume));
    assert_eq!(found.last_owner.as_ref().unwrap().name, "test");

    pool.opened.close();
    let alone = inspect(&pool);
    assert!(!alone.in_use);
    let refused = LvmPool::open(pool.bed.config(false)).unwrap_err().to_string();
    assert!(refused.contains("another process uses this pool"), "{refused}");
    drop(alone);
    LvmPool::open(pool.bed.config(false)).unwrap();
}

#[test]
fn what_contradicts_the_records_is_found_and_repaired() {
    let Some(pool) = TestPool::new(128 * MIB) else { return };
    let group = pool.bed.group.as_str();
    let lv = |name: &dyn std::fmt::Display| format!("{group}/{name}");
    let [kept, damaged, short, unfinished] =
        ["kept", "damaged", "short", "unfinished"].map(|name| pool.create(name, 16 * MIB));
    let published = &mut |record: &mut VolumeRecord| {
        let publication = ControllerPublication {
            read_only: false,
            capability: record.capabilities.iter().next().unwrap().clone(),
            leaving: false,
            reader: ReaderState::default(),
        };
        record.published.insert("n2".parse().unwrap(), publication);
        Ok(())
    };
    pool.opened.catalogue.update_volume(&kept.id, published).unwrap();
    let tags = ["--deltag", &word_tag("whole"), "--addtag", &word_tag("deleted")];
    pool.bed.run("lvchange", &[&tags[..], &[&lv(&unfinished.id)]].concat());
    pool.bed.run("lvchange", &["--addtag", "orlop1:draft", &lv(&damaged.id)]);
    pool.bed.run("lvreduce", &["--force", "--size", "8m", &lv(&short.id)]);
    pool.bed.create_lv(&pool.volume_id("foreign").to_string(), 1, &[]);
    pool.bed.run("lvrename", &[group, &pool.create("renamed", MIB).id.to_string(), "renamed"]);
    let member = pool.provisioner();
    let new = pool.new_group("g", &[&kept]);
    orlop_model::Provisioner::begin_group_snapshot(member, &new).unwrap().commit().unwrap();
    pool.opened.catalogue.group_snapshot_records().remove(&new.id).unwrap();

    // Beside the daemon, what is half-made is no finding.
    assert!(inspect(&pool).findings.iter().all(|finding| finding.code != "leftover"));
    pool.opened.close();
    let mut found = inspect(&pool);
    let mut all = codes(&found);
    all.sort_unstable();
    assert_eq!(
        all,
        [
            ("data-short", false),
            ("foreign", false),
            ("foreign-publication", true),
            ("leftover", true),
            ("leftover", true),
            ("record-damaged", false),
            ("stray", false),
        ]
    );
    for finding in std::mem::take(&mut found.findings) {
        if let Remedy::Repair(repair) = finding.remedy {
            repair.perform().unwrap();
        }
    }
    drop(found);
    let mut left = inspect(&pool).findings;
    left.retain(|finding| matches!(finding.remedy, Remedy::Repair(_)));
    assert!(left.is_empty());
    let opened = LvmPool::open(pool.bed.config(false)).unwrap();
    assert!(opened.catalogue.volume(&kept.id).unwrap().unwrap().published.is_empty());
    assert!(opened.catalogue.volume(&damaged.id).is_err());
    let names = pool.lv_names();
    assert!(!names.contains(&unfinished.id.to_string()), "{names:?}");
    assert!(names.contains(&"renamed".to_owned()), "{names:?}");
}

#[test]
fn suspended_device_is_resumed() {
    let Some(pool) = TestPool::new(64 * MIB) else { return };
    let volume = pool.create("a", 8 * MIB);
    pool.attach(&volume.id);
    std::mem::forget(pool.opened.devices.suspend(&volume.id).unwrap());
    pool.opened.close();
    let mut found = inspect(&pool);
    assert_eq!(codes(&found), [("suspended", true)]);
    if let Some(Finding { remedy: Remedy::Repair(repair), .. }) = found.findings.pop() {
        repair.perform().unwrap();
    }
    drop(found);
    assert_eq!(codes(&inspect(&pool)), []);
}
