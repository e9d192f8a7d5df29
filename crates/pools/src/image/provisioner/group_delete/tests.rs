use std::fs;

use orlop_model::{Error, Pool, Provisioning, VolumeRecord};

use super::*;
use crate::image::ImagePool;
use crate::image::testbed::*;

fn two_volumes(pool: &ImagePool) -> [VolumeRecord; 2] {
    ["a", "b"].map(|name| {
        let record = create(pool, &volume_of(pool, name, 32 * MIB));
        scribble(&data_of(pool, &record.id), 1, 4 * MIB);
        record
    })
}

fn group(pool: &ImagePool) -> GroupSnapshotRecord {
    try_take_group(pool, &group_of(pool, "g", &two_volumes(pool))).unwrap()
}

/// With what can be promised, measured anew; btrfs frees space when it is synced.
fn reopened(bed: &Bed) -> (ImagePool, u64) {
    orlop_sys::file::sync_filesystem(&bed.pool_path()).unwrap();
    let pool = bed.open();
    let capacity = pool.provisioner().capacity(Provisioning::Thin).unwrap();
    (pool, capacity.available_bytes)
}

#[test]
fn a_group_goes_with_all_its_members_and_its_space() {
    // Not where others write too, for free space is compared.
    for bed in Bed::sharing().into_iter().chain(Bed::ext4()) {
        let pool = bed.open();
        let volumes = two_volumes(&pool);
        let alone = snapshot(&pool, "alone", &volumes[0]);
        drop(pool);
        let (pool, before) = reopened(&bed);
        let group = try_take_group(&pool, &group_of(&pool, "g", &volumes)).unwrap();
        for _ in 0..2 {
            pool.provisioner().ensure_no_group_snapshot(&group.id).unwrap();
        }
        assert_eq!(pool.catalogue().group_snapshot(&group.id).unwrap(), None);
        assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), std::slice::from_ref(&alone));
        assert!(listing(&bed, "trash").is_empty());
        drop(pool);
        let (pool, after) = reopened(&bed);
        assert!(before.abs_diff(after) < 4 * MIB, "{before} {after}");
        assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), [alone]);
        assert_eq!(pool.catalogue().group_snapshot(&group.id).unwrap(), None);
    }
}

#[test]
fn a_member_is_not_deleted_alone() {
    for bed in Bed::all() {
        let pool = bed.open();
        let group = group(&pool);
        let refused = pool.provisioner().ensure_no_snapshot(&group.members[0]);
        assert!(matches!(refused, Err(Error::Invalid { field: "snapshot_id", .. })), "{refused:?}");
        assert_eq!(pool.catalogue().snapshots(None, 0).unwrap().len(), 2);
    }
}

#[test]
fn a_crash_after_the_record_is_gone_ends_in_the_sweep() {
    for bed in Bed::all() {
        let pool = bed.open();
        let volumes = two_volumes(&pool);
        let group = try_take_group(&pool, &group_of(&pool, "g", &volumes)).unwrap();
        let alone = snapshot(&pool, "alone", &volumes[0]);
        let record = pool.catalogue.group_snapshot_index().path_of(&group.id);
        drop(pool);
        fs::write(record.with_extension("unfinished"), "").unwrap();
        fs::remove_file(record).unwrap();
        let node = "node".parse().unwrap();
        let inspection = ImagePool::inspect(&bed.config(), &node).unwrap().unwrap();
        let codes: Vec<_> = inspection.findings.iter().map(|finding| finding.code).collect();
        assert!(codes.is_empty(), "{codes:?}");
        drop(inspection);
        let pool = bed.open();
        assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), [alone]);
        assert_eq!(listing(&bed, "snapshots").len(), 1);
        for directory in ["trash", "group-snapshots"] {
            assert!(listing(&bed, directory).is_empty(), "{directory}");
        }
        pool.provisioner().ensure_no_group_snapshot(&group.id).unwrap();
    }
}

#[test]
fn a_crash_before_the_record_is_gone_keeps_the_group() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    let group = group(&pool);
    let record = pool.catalogue.group_snapshot_index().path_of(&group.id);
    drop(pool);
    fs::write(record.with_extension("unfinished"), "").unwrap();
    let pool = bed.open();
    assert_eq!(pool.catalogue().group_snapshot(&group.id).unwrap(), Some(group));
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap().len(), 2);
    assert_eq!(listing(&bed, "group-snapshots").len(), 1);
}

#[test]
fn members_of_a_group_that_lost_its_record_are_set_aside() {
    let Some(bed) = Bed::xfs() else { return };
    for whole_directory in [false, true] {
        let pool = bed.open();
        let group = group(&pool);
        let data = read(&snapshot_data_of(&pool, &group.members[0]));
        let record = pool.catalogue.group_snapshot_index().path_of(&group.id);
        drop(pool);
        let kept = bed.pool_path().join("kept");
        let from = if whole_directory { record.parent().unwrap() } else { &record };
        fs::rename(from, &kept).unwrap();
        let pool = bed.open();
        assert!(pool.catalogue().snapshots(None, 0).unwrap().is_empty());
        drop(pool);
        assert_eq!(listing(&bed, "set-aside").len(), 2);

        // With all of it moved back the group is whole again.
        if whole_directory {
            fs::remove_dir(from).unwrap();
        }
        fs::rename(&kept, from).unwrap();
        for member in &group.members {
            let aside = bed.pool_path().join(format!("set-aside/{member}.0"));
            fs::rename(aside, bed.pool_path().join(format!("snapshots/{member}"))).unwrap();
        }
        let pool = bed.open();
        assert_eq!(pool.catalogue().group_snapshot(&group.id).unwrap().as_ref(), Some(&group));
        assert!(read(&snapshot_data_of(&pool, &group.members[0])) == data);
    }
}

#[test]
fn a_group_that_lost_members_can_still_be_deleted() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    let group = group(&pool);
    let home = pool.catalogue.snapshot_index().directory_of(&group.members[0]);
    drop(pool);
    orlop_sys::file::remove_tree(home.directory()).unwrap();
    let pool = bed.open();
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap().len(), 1);
    pool.provisioner().ensure_no_group_snapshot(&group.id).unwrap();
    assert!(listing(&bed, "snapshots").is_empty());
    assert!(listing(&bed, "group-snapshots").is_empty());
}

#[test]
fn a_damaged_record_keeps_its_members() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    let volumes = two_volumes(&pool);
    let new = group_of(&pool, "g", &volumes);
    let group = try_take_group(&pool, &new).unwrap();
    let record = pool.catalogue.group_snapshot_index().path_of(&group.id);
    drop(pool);
    fs::write(&record, "{").unwrap();
    let pool = bed.open();
    let is_damaged = |error: Option<Error>| {
        assert!(matches!(error, Some(Error::Damaged { .. })), "{error:?}");
    };
    is_damaged(pool.catalogue().group_snapshot(&group.id).err());
    is_damaged(pool.provisioner().ensure_no_group_snapshot(&group.id).err());
    is_damaged(pool.provisioner().begin_group_snapshot(&new).err());
    assert!(pool.provisioner().ensure_no_snapshot(&group.members[0]).is_err());
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap().len(), 2);
    assert_eq!(fs::read_to_string(record).unwrap(), "{");
}

#[test]
fn a_group_with_a_damaged_member_is_left_as_it_is() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    let group = group(&pool);
    let home = pool.catalogue.snapshot_index().directory_of(&group.members[1]);
    drop(pool);
    fs::write(home.record(), "{").unwrap();
    let pool = bed.open();
    let refused = pool.provisioner().ensure_no_group_snapshot(&group.id);
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert_eq!(pool.catalogue().group_snapshot(&group.id).unwrap(), Some(group));
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap().len(), 1);
}
