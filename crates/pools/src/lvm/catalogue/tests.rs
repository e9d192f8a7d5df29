//! On logical volumes of real LVM that stand for thin ones.

use super::*;
use crate::lvm::testbed::{Testbed, group_snapshot, pool_id, snapshot, volume};

const THIN_POOL: &str = "tp";

fn load(bed: &Testbed) -> LvmCatalogue {
    let lvm = Arc::new(bed.lvm());
    let report = lvm.report().unwrap();
    LvmCatalogue::load(&lvm, &pool_id(), &report, report.lv(THIN_POOL).unwrap())
}

fn one_extent(bed: &Testbed) -> [&str; 6] {
    ["-an", "-Wn", "-Zn", "--extents", "1", &bed.group]
}

#[test]
fn members_are_visible_once_their_group_is() {
    let Some(bed) = Testbed::new(1) else { return };
    bed.create_lv(THIN_POOL, 1, &[]);
    let catalogue = load(&bed);
    let group = group_snapshot("g", &[]).id;
    let (alone, member) = (snapshot("alone", None), snapshot("member", Some(&group)));
    for record in [&alone, &member] {
        catalogue.snapshot_objects().create_whole(record, &one_extent(&bed)).unwrap();
    }
    let listed = || catalogue.snapshots(None, 0).unwrap().len();
    assert_eq!((catalogue.snapshot(&member.id).unwrap(), listed()), (None, 1));
    catalogue
        .group_snapshot_records()
        .save(&group_snapshot("g", std::slice::from_ref(&member)))
        .unwrap();
    assert_eq!((catalogue.snapshot(&member.id).unwrap(), listed()), (Some(member.clone()), 2));

    // The next daemon finds both, or neither.
    let next = load(&bed);
    next.remove_unfinished();
    assert_eq!(next.snapshots(None, 0).unwrap().len(), 2);
    next.group_snapshot_records().remove(&group).unwrap();
    let next = load(&bed);
    next.remove_unfinished();
    assert_eq!(next.snapshots(None, 0).unwrap(), [alone]);
    assert!(bed.lvm().report().unwrap().lv(&member.id.to_string()).is_none());
}

#[test]
fn drafts_of_an_earlier_daemon_are_removed() {
    let Some(bed) = Testbed::new(1) else { return };
    bed.create_lv(THIN_POOL, 1, &[]);
    let (catalogue, kept) = (load(&bed), volume("kept"));
    catalogue.volume_objects().create_whole(&kept, &one_extent(&bed)).unwrap();
    catalogue.volume_objects().create_draft(&volume("draft").id, &one_extent(&bed)).unwrap();
    catalogue
        .snapshot_objects()
        .create_draft(&snapshot("draft", None).id, &one_extent(&bed))
        .unwrap();
    let next = load(&bed);
    next.remove_unfinished();
    assert_eq!(next.volumes(None, 0).unwrap(), [(kept.id.clone(), Ok(kept))]);
    assert_eq!(bed.lvm().report().unwrap().volumes.len(), 2);
}

#[test]
fn refused_change_of_a_record_is_not_written() {
    let Some(bed) = Testbed::new(1) else { return };
    bed.create_lv(THIN_POOL, 1, &[]);
    let (catalogue, record) = (load(&bed), volume("a"));
    catalogue.volume_objects().create_whole(&record, &one_extent(&bed)).unwrap();
    let refuse = |record: &mut VolumeRecord| {
        record.capacity_bytes = 7;
        Err(orlop_model::Error::Stopping)
    };
    assert!(catalogue.update_volume(&record.id, &mut { refuse }).is_err());
    assert_eq!(load(&bed).volume(&record.id).unwrap(), Some(record.clone()));
    let changed = catalogue.update_volume(&record.id, &mut |record| {
        record.growing = true;
        Ok(())
    });
    assert!(changed.unwrap().growing);
    assert!(load(&bed).volume(&record.id).unwrap().unwrap().growing);
}
