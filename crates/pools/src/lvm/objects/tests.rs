//! On logical volumes of real LVM, which are thick and have no devices: their tags are as those of others.

use orlop_model::VolumeRecord;

use super::*;
use crate::lvm::testbed::{Testbed, pool_id, volume, volume_id, volume_with_long_record};

const ONE_EXTENT: [&str; 5] = ["-an", "-Wn", "-Zn", "--extents", "1"];

fn load(bed: &Testbed) -> Objects<VolumeRecord> {
    let lvm = Arc::new(bed.lvm());
    let report = lvm.report().unwrap();
    Objects::load(&lvm, &pool_id(), &report)
}

fn create_draft(bed: &Testbed, objects: &Objects<VolumeRecord>, name: &str) {
    objects.create_draft(&volume_id(name), &[&ONE_EXTENT[..], &[&bed.group]].concat()).unwrap();
}

/// As the next daemon finds it.
fn found(bed: &Testbed, name: &str) -> Result<Option<VolumeRecord>> {
    load(bed).get(&volume_id(name))
}

#[test]
fn volume_passes_through_all_its_states() {
    let Some(bed) = Testbed::new(1) else { return };
    let (objects, first) = (load(&bed), volume_with_long_record("a"));
    create_draft(&bed, &objects, "a");
    assert_eq!(objects.get(&first.id).unwrap(), None);
    assert_eq!(load(&bed).unfinished(), std::slice::from_ref(&first.id));

    objects.commit(&first).unwrap();
    assert_eq!(objects.get(&first.id).unwrap(), Some(first.clone()));
    assert_eq!(found(&bed, "a").unwrap(), Some(first.clone()));

    let second = VolumeRecord { capacity_bytes: 5, ..volume("a") };
    objects.replace(&second).unwrap();
    assert_eq!(found(&bed, "a").unwrap(), Some(second));

    objects.ensure_gone(&first.id).unwrap();
    objects.ensure_gone(&first.id).unwrap();
    assert_eq!(objects.get(&first.id).unwrap(), None);
    assert!(bed.lvm().report().unwrap().volumes.is_empty());
}

#[test]
fn volume_is_created_with_its_record_in_one_command() {
    let Some(bed) = Testbed::new(1) else { return };
    let (objects, record) = (load(&bed), volume("a"));
    let before = bed.lvm().report().unwrap().group.revision;
    objects.create_whole(&record, &[&ONE_EXTENT[..], &[&bed.group]].concat()).unwrap();
    assert_eq!(bed.lvm().report().unwrap().group.revision, before + 1);
    assert_eq!(objects.get(&record.id).unwrap(), Some(record.clone()));
    assert_eq!(found(&bed, "a").unwrap(), Some(record));
}

#[test]
fn what_was_not_finished_is_replaced_or_removed() {
    let Some(bed) = Testbed::new(1) else { return };
    create_draft(&bed, &load(&bed), "a");
    let objects = load(&bed);
    create_draft(&bed, &objects, "a");
    objects.commit(&volume("a")).unwrap();

    // Killed after it was marked as deleted.
    let lv = bed.lvm().group().lv(&volume_id("a"));
    bed.run("lvchange", &["--deltag", "orlop1:whole", "--addtag", "orlop1:deleted", &lv]);
    let objects = load(&bed);
    assert_eq!(objects.get(&volume_id("a")).unwrap(), None);
    assert!(objects.commit(&volume("a")).is_err(), "what is deleted stays so");
    for id in objects.unfinished() {
        objects.ensure_gone(&id).unwrap();
    }
    assert!(bed.lvm().report().unwrap().volumes.is_empty());
}

#[test]
fn what_is_not_ours_is_never_touched() {
    let Some(bed) = Testbed::new(1) else { return };
    let name = volume_id("a").to_string();
    bed.create_lv(&name, 1, &["backup".to_owned()]);
    let of_another_pool = "v-89abcdef-0123456789abcdef0123456789abcdef";
    bed.create_lv(of_another_pool, 1, &["orlop1:draft".to_owned()]);
    let objects = load(&bed);
    assert!(objects.unfinished().is_empty());
    objects.ensure_gone(&volume_id("a")).unwrap();
    let taken = objects.create_draft(&volume_id("a"), &[&ONE_EXTENT[..], &[&bed.group]].concat());
    assert!(matches!(taken, Err(Error::Precondition(_))), "{taken:?}");
    objects.ensure_gone(&volume_id("a")).unwrap();
    let report = bed.lvm().report().unwrap();
    assert!(report.lv(&name).is_some() && report.lv(of_another_pool).is_some());
}

#[test]
fn damaged_volume_is_reported_and_kept() {
    let Some(bed) = Testbed::new(1) else { return };
    let (objects, record) = (load(&bed), volume_with_long_record("a"));
    create_draft(&bed, &objects, "a");
    objects.commit(&record).unwrap();
    let tags = tags_of(RECORD, &record).unwrap();
    bed.run("lvchange", &["--deltag", &tags[1], &bed.lvm().group().lv(&record.id)]);

    let objects = load(&bed);
    let damaged =
        |result: Result<()>| assert!(matches!(result, Err(Error::Damaged { .. })), "{result:?}");
    damaged(objects.get(&record.id).map(drop));
    damaged(objects.ensure_gone(&record.id));
    damaged(objects.replace(&record));
    damaged(objects.create_draft(&record.id, &[]));
    let page = objects.page(None, 0);
    assert!(
        matches!(page.as_slice(), [(id, Err(Error::Damaged { .. }))] if *id == record.id),
        "{page:?}"
    );
    assert_eq!(objects.records().count(), 0);
}

#[test]
fn failed_command_is_followed_by_what_is_there() {
    let Some(bed) = Testbed::new(1) else { return };
    let (objects, record) = (load(&bed), volume("a"));
    create_draft(&bed, &objects, "a");
    objects.commit(&record).unwrap();
    // Removed by hand: the change fails, and then the volume is known to be gone.
    bed.run("lvremove", &[bed.lvm().group().lv(&record.id)]);
    assert!(objects.replace(&record).is_err());
    assert_eq!(objects.get(&record.id).unwrap(), None);
}

#[test]
fn pages_follow_the_order_of_ids() {
    let Some(bed) = Testbed::new(1) else { return };
    let objects = load(&bed);
    for name in ["a", "b", "c"] {
        create_draft(&bed, &objects, name);
        objects.commit(&volume(name)).unwrap();
    }
    create_draft(&bed, &objects, "draft");
    let ids = |page: Vec<(_, Result<VolumeRecord>)>| {
        page.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    let all = ids(objects.page(None, 0));
    assert_eq!(all.len(), 3);
    assert!(all.is_sorted());
    assert_eq!(ids(objects.page(None, 2)), all[..2]);
    assert_eq!(ids(objects.page(Some(&all[0]), 2)), all[1..]);
}
