//! In tags of a logical volume that is no thin pool, and takes tags as one does.

use orlop_model::{GroupSnapshotRecord, VolumeGroupRecord};

use super::*;
use crate::lvm::testbed::{Testbed, group_snapshot, pool_id, snapshot};

const THIN_POOL: &str = "tp";

fn load<R: TaggedRecord>(bed: &Testbed) -> PoolRecords<R> {
    let lvm = Arc::new(bed.lvm());
    let report = lvm.report().unwrap();
    PoolRecords::load(&lvm, &pool_id(), report.lv(THIN_POOL).unwrap())
}

fn tags(bed: &Testbed) -> Vec<String> {
    bed.lvm().report().unwrap().lv(THIN_POOL).unwrap().tags.clone()
}

#[test]
fn records_are_saved_replaced_and_removed() {
    let Some(bed) = Testbed::new(1) else { return };
    bed.create_lv(THIN_POOL, 1, &["backup".to_owned()]);
    let records = load::<GroupSnapshotRecord>(&bed);
    let members: Vec<_> = (0..50).map(|number| snapshot(&number.to_string(), None)).collect();
    let (long, short) = (group_snapshot("a", &members), group_snapshot("a", &members[..1]));
    records.save(&long).unwrap();
    assert!(tags(&bed).len() > 2, "a long record takes several tags");
    assert_eq!(load(&bed).get(&long.id).unwrap(), Some(long.clone()));
    records.save(&short).unwrap();
    assert_eq!(records.get(&long.id).unwrap(), Some(short.clone()));
    assert_eq!(load(&bed).get(&long.id).unwrap(), Some(short.clone()));

    let other = group_snapshot("b", &[]);
    records.save(&other).unwrap();
    assert_eq!(records.page(None, 0).len(), 2);
    assert_eq!(records.page(Some(&short.id.clone().min(other.id.clone())), 0).len(), 1);
    assert_eq!(load::<VolumeGroupRecord>(&bed).page(None, 0), [], "of another kind");
    records.remove(&short.id).unwrap();
    records.remove(&short.id).unwrap();
    records.remove(&other.id).unwrap();
    assert_eq!(tags(&bed), ["backup"]);
}

#[test]
fn failed_change_is_followed_by_what_is_there() {
    let Some(bed) = Testbed::new(1) else { return };
    bed.create_lv(THIN_POOL, 1, &[]);
    let (records, record) = (load::<GroupSnapshotRecord>(&bed), group_snapshot("a", &[]));
    records.save(&record).unwrap();
    bed.run("lvremove", &[bed.lvm().group().lv(&THIN_POOL)]);
    assert!(records.remove(&record.id).is_err());
    assert!(!records.holds(&record.id));
}

#[test]
fn damaged_record_is_reported_and_kept() {
    let Some(bed) = Testbed::new(1) else { return };
    bed.create_lv(THIN_POOL, 1, &[]);
    let record = group_snapshot("a", &[]);
    load(&bed).save(&record).unwrap();
    let (tag, lv) = (tags(&bed).remove(0), bed.lvm().group().lv(&THIN_POOL));
    bed.run("lvchange", &["--deltag", &tag, "--addtag", &tag.replace("name=a", "name=b"), &lv]);
    let records = load::<GroupSnapshotRecord>(&bed);
    assert!(records.holds(&record.id));
    for refused in
        [records.get(&record.id).map(drop), records.save(&record), records.remove(&record.id)]
    {
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    }
    assert_eq!(tags(&bed).len(), 1);
}
