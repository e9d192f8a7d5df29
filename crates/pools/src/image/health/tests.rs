use std::fs;

use orlop_model::{DeviceAccess, Error, HealthReason, Pool, Problem};
use orlop_sys::file::set_length;
use orlop_sys::mounts::{self, BindAccess};

use super::super::testbed::*;

fn reasons(problems: &[Problem]) -> Vec<HealthReason> {
    problems.iter().map(|problem| problem.reason).collect()
}

#[test]
fn missing_or_short_data_is_reported_and_not_attached() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let [short, missing, gone] =
        ["short", "missing", "gone"].map(|name| create(&pool, &volume_of(&pool, name, 64 * MIB)));
    let file = fs::File::options().write(true).open(data_of(&pool, &short.id)).unwrap();
    set_length(&file, MIB).unwrap();
    fs::remove_file(data_of(&pool, &missing.id)).unwrap();
    let home = pool.catalogue.volume_index().directory_of(&gone.id);
    orlop_sys::file::remove_tree(home.directory()).unwrap();

    for (record, expected, reason) in [
        (&short, "1048576 bytes", HealthReason::BackingFileTruncated),
        (&missing, "data is missing", HealthReason::BackingFileMissing),
        (&gone, "directory is missing", HealthReason::BackingFileMissing),
    ] {
        let condition = pool.health().condition(&record.id).unwrap();
        assert_eq!(reasons(condition.problems()), [reason]);
        assert!(condition.is_abnormal());
        assert!(condition.message().contains(expected), "{}", condition.message());
        assert_eq!(pool.catalogue().volume(&record.id).unwrap().as_ref(), Some(record));
        let refused = pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite);
        assert!(matches!(refused, Err(Error::Damaged { .. })));
    }
    let unknown = volume_id(&pool, "unknown");
    assert!(matches!(pool.health().condition(&unknown), Err(Error::NoSuchVolume(_))));

    let well = create(&pool, &volume_of(&pool, "well", 64 * MIB));
    let conditions = pool.health().conditions(&[short.id, unknown, well.id.clone()]);
    assert!(conditions[0].as_ref().unwrap().is_abnormal());
    assert!(matches!(conditions[1], Err(Error::NoSuchVolume(_))));
    assert!(!conditions[2].as_ref().unwrap().is_abnormal());
    assert_eq!(conditions[2], pool.health().condition(&well.id));
}

#[test]
fn healthy_pool_reports_healthy() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        pool.health().check().unwrap();
        let record = create(&pool, &volume_of(&pool, "a", MIB));
        let condition = pool.health().condition(&record.id).unwrap();
        assert!(!condition.is_abnormal());
        assert!(!condition.message().is_empty());
    }
}

#[test]
fn vanished_pool_is_detected() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", MIB));
    let elsewhere = testbed.pool_path().with_extension("moved");
    fs::rename(testbed.pool_path(), &elsewhere).unwrap();
    assert!(matches!(pool.health().check(), Err(Error::Failed { .. })));
    let condition = pool.health().condition(&record.id).unwrap();
    assert_eq!(reasons(condition.problems()), [HealthReason::PoolUnreachable]);
    assert_eq!(pool.health().problems(), condition.problems());
    let refused = pool.provisioner().begin_volume(&volume_of(&pool, "b", MIB)).err();
    assert!(matches!(refused, Some(Error::Unreachable { .. })), "{refused:?}");
    fs::rename(&elsewhere, testbed.pool_path()).unwrap();
    pool.health().check().unwrap();
    assert_eq!(pool.health().problems(), []);
}

/// What lies below the mount point of a disk may look like an empty pool.
#[test]
fn replaced_pool_directory_is_not_modified() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = testbed.open();
    let volumes = ["a", "b"].map(|name| create(&pool, &volume_of(&pool, name, MIB)));
    let group = volume_group(&pool, "g", &volumes);
    pool.catalogue().save_volume_group(&group, None).unwrap();
    let taken = try_take_group(&pool, &group_of(&pool, "s", &volumes)).unwrap();
    let elsewhere = testbed.pool_path().with_extension("moved");
    fs::rename(testbed.pool_path(), &elsewhere).unwrap();
    for directory in ["volumes", "snapshots", "groups", "group-snapshots", "staging", "trash"] {
        fs::create_dir_all(testbed.pool_path().join(directory)).unwrap();
    }
    for refused in [
        pool.catalogue().save_volume_group(&group, Some(&group)),
        pool.catalogue().ensure_no_volume_group(&group.id),
        pool.provisioner().ensure_no_group_snapshot(&taken.id),
    ] {
        assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
    }
    assert!(listing(&testbed, "groups").is_empty());
    orlop_sys::file::remove_tree(&testbed.pool_path()).unwrap();
    fs::rename(&elsewhere, testbed.pool_path()).unwrap();
    pool.provisioner().ensure_no_group_snapshot(&taken.id).unwrap();
    pool.catalogue().ensure_no_volume_group(&group.id).unwrap();
}

#[test]
fn read_only_filesystem_is_detected() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", MIB));
    // The pool's lock keeps its filesystem from being remounted, so the way to it is.
    let path = testbed.pool_path();
    mounts::bind(&path, &path, BindAccess::ReadOnly).unwrap();
    let error = pool.health().check().unwrap_err().to_string();
    assert!(error.contains("read-only"), "{error}");
    assert!(pool.health().condition(&record.id).unwrap().is_abnormal());
    let refused = pool.catalogue().update_volume(&record.id, &mut |_| Ok(())).unwrap_err();
    assert!(refused.to_string().contains("read-only"), "{refused}");
    mounts::ensure_unmounted(&path).unwrap();
    pool.health().check().unwrap();
}
