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

/// With what can be promised, measured again; btrfs frees space when it is synced.
fn reopened(testbed: &Testbed) -> (ImagePool, u64) {
    orlop_sys::file::sync_filesystem(&testbed.pool_path()).unwrap();
    let pool = testbed.open();
    let capacity = pool.provisioner().capacity(Provisioning::Thin).unwrap();
    (pool, capacity.available_bytes)
}

#[test]
fn group_delete_removes_members_and_frees_space() {
    // Not where others write too, for free space is compared.
    for testbed in Testbed::sharing().into_iter().chain(Testbed::ext4()) {
        let pool = testbed.open();
        let volumes = two_volumes(&pool);
        let alone = snapshot(&pool, "alone", &volumes[0]);
        drop(pool);
        let (pool, before) = reopened(&testbed);
        let group = try_take_group(&pool, &group_of(&pool, "g", &volumes)).unwrap();
        for _ in 0..2 {
            pool.provisioner().ensure_no_group_snapshot(&group.id).unwrap();
        }
        assert_eq!(pool.catalogue().group_snapshot(&group.id).unwrap(), None);
        assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), std::slice::from_ref(&alone));
        assert!(listing(&testbed, "trash").is_empty());
        drop(pool);
        let (pool, after) = reopened(&testbed);
        assert!(before.abs_diff(after) < 4 * MIB, "{before} {after}");
        assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), [alone]);
        assert_eq!(pool.catalogue().group_snapshot(&group.id).unwrap(), None);
    }
}

#[test]
fn member_is_not_deleted_alone() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let group = group(&pool);
        let refused = pool.provisioner().ensure_no_snapshot(&group.members[0]);
        assert!(matches!(refused, Err(Error::Invalid { field: "snapshot_id", .. })), "{refused:?}");
        assert_eq!(pool.catalogue().snapshots(None, 0).unwrap().len(), 2);
    }
}

#[test]
fn crash_after_record_removal_is_cleaned_up_at_open() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let volumes = two_volumes(&pool);
        let group = try_take_group(&pool, &group_of(&pool, "g", &volumes)).unwrap();
        let alone = snapshot(&pool, "alone", &volumes[0]);
        let record = pool.catalogue.group_snapshot_index().path_of(&group.id);
        drop(pool);
        fs::write(record.with_extension("unfinished"), "").unwrap();
        fs::remove_file(record).unwrap();
        let node = "node".parse().unwrap();
        let inspection = ImagePool::inspect(&testbed.config(), &node).unwrap().unwrap();
        let codes: Vec<_> = inspection.findings.iter().map(|finding| finding.code).collect();
        assert!(codes.is_empty(), "{codes:?}");
        drop(inspection);
        let pool = testbed.open();
        assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), [alone]);
        assert_eq!(listing(&testbed, "snapshots").len(), 1);
        for directory in ["trash", "group-snapshots"] {
            assert!(listing(&testbed, directory).is_empty(), "{directory}");
        }
        pool.provisioner().ensure_no_group_snapshot(&group.id).unwrap();
    }
}

#[test]
fn crash_before_record_removal_keeps_the_group() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let group = group(&pool);
    let record = pool.catalogue.group_snapshot_index().path_of(&group.id);
    drop(pool);
    fs::write(record.with_extension("unfinished"), "").unwrap();
    let pool = testbed.open();
    assert_eq!(pool.catalogue().group_snapshot(&group.id).unwrap(), Some(group));
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap().len(), 2);
    assert_eq!(listing(&testbed, "group-snapshots").len(), 1);
}

#[test]
fn members_without_a_group_record_are_quarantined() {
    let Some(testbed) = Testbed::xfs() else { return };
    for whole_directory in [false, true] {
        let pool = testbed.open();
        let group = group(&pool);
        let data = read(&snapshot_data_of(&pool, &group.members[0]));
        let record = pool.catalogue.group_snapshot_index().path_of(&group.id);
        drop(pool);
        let kept = testbed.pool_path().join("kept");
        let from = if whole_directory { record.parent().unwrap() } else { &record };
        fs::rename(from, &kept).unwrap();
        let pool = testbed.open();
        assert!(pool.catalogue().snapshots(None, 0).unwrap().is_empty());
        drop(pool);
        assert_eq!(listing(&testbed, "set-aside").len(), 2);

        // With all of it moved back the group is whole again.
        if whole_directory {
            fs::remove_dir(from).unwrap();
        }
        fs::rename(&kept, from).unwrap();
        for member in &group.members {
            let aside = testbed.pool_path().join(format!("set-aside/{member}.0"));
            fs::rename(aside, testbed.pool_path().join(format!("snapshots/{member}"))).unwrap();
        }
        let pool = testbed.open();
        assert_eq!(pool.catalogue().group_snapshot(&group.id).unwrap().as_ref(), Some(&group));
        assert!(read(&snapshot_data_of(&pool, &group.members[0])) == data);
    }
}

#[test]
fn group_with_lost_members_can_be_deleted() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let group = group(&pool);
    let home = pool.catalogue.snapshot_index().directory_of(&group.members[0]);
    drop(pool);
    orlop_sys::file::remove_tree(home.directory()).unwrap();
    let pool = testbed.open();
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap().len(), 1);
    pool.provisioner().ensure_no_group_snapshot(&group.id).unwrap();
    assert!(listing(&testbed, "snapshots").is_empty());
    assert!(listing(&testbed, "group-snapshots").is_empty());
}

#[test]
fn damaged_group_record_keeps_its_members() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let volumes = two_volumes(&pool);
    let new = group_of(&pool, "g", &volumes);
    let group = try_take_group(&pool, &new).unwrap();
    let record = pool.catalogue.group_snapshot_index().path_of(&group.id);
    drop(pool);
    fs::write(&record, "{").unwrap();
    let pool = testbed.open();
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
fn group_with_a_damaged_member_is_not_deleted() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let group = group(&pool);
    let home = pool.catalogue.snapshot_index().directory_of(&group.members[1]);
    drop(pool);
    fs::write(home.record(), "{").unwrap();
    let pool = testbed.open();
    let refused = pool.provisioner().ensure_no_group_snapshot(&group.id);
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert_eq!(pool.catalogue().group_snapshot(&group.id).unwrap(), Some(group));
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap().len(), 1);
}
