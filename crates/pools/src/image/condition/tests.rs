use std::fs;

use orlop_model::{DeviceAccess, Error, Pool};
use orlop_sys::file::set_length;
use orlop_sys::mounts::{self, BindAccess};

use super::super::testbed::*;

#[test]
fn missing_and_short_data_is_told_and_never_attached() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    let [short, missing, gone] =
        ["short", "missing", "gone"].map(|name| create(&pool, &volume_of(&pool, name, 64 * MIB)));
    let file = fs::File::options().write(true).open(data_of(&pool, &short.id)).unwrap();
    set_length(&file, MIB).unwrap();
    fs::remove_file(data_of(&pool, &missing.id)).unwrap();
    let home = pool.store.volumes.home(&gone.id);
    orlop_sys::file::remove_tree(home.directory()).unwrap();

    for (record, told) in
        [(&short, "1048576 bytes"), (&missing, "data is missing"), (&gone, "directory is missing")]
    {
        let condition = pool.condition(&record.id).unwrap();
        assert!(condition.abnormal);
        assert!(condition.message.contains(told), "{}", condition.message);
        assert_eq!(pool.volume(&record.id).unwrap().as_ref(), Some(record));
        let refused = pool.ensure_attached(&record.id, DeviceAccess::ReadWrite);
        assert!(matches!(refused, Err(Error::Damaged { .. })));
    }
    let unknown = volume_id(&pool, "unknown");
    assert!(matches!(pool.condition(&unknown), Err(Error::NoSuchVolume(_))));

    let well = create(&pool, &volume_of(&pool, "well", 64 * MIB));
    let told = pool.conditions(&[short.id, unknown, well.id.clone()]);
    assert_eq!(told.iter().map(|told| told.abnormal).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(told[2], pool.condition(&well.id).unwrap());
}

#[test]
fn a_pool_that_is_well_says_so() {
    for bed in Bed::all() {
        let pool = bed.open();
        pool.check_health().unwrap();
        let record = create(&pool, &volume_of(&pool, "a", MIB));
        let condition = pool.condition(&record.id).unwrap();
        assert!(!condition.abnormal);
        assert!(!condition.message.is_empty());
    }
}

#[test]
fn a_pool_that_went_away_is_noticed() {
    let Some(bed) = Bed::plain() else { return };
    let pool = bed.open();
    let record = create(&pool, &volume_of(&pool, "a", MIB));
    let elsewhere = bed.pool_path().with_extension("moved");
    fs::rename(bed.pool_path(), &elsewhere).unwrap();
    assert!(matches!(pool.check_health(), Err(Error::Failed { .. })));
    assert!(pool.condition(&record.id).unwrap().abnormal);
    let refused = pool.begin_volume(&volume_of(&pool, "b", MIB)).err();
    assert!(matches!(refused, Some(Error::Failed { .. })), "{refused:?}");
    fs::rename(&elsewhere, bed.pool_path()).unwrap();
    pool.check_health().unwrap();
}

#[test]
fn a_read_only_filesystem_is_noticed() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    let record = create(&pool, &volume_of(&pool, "a", MIB));
    // The pool's lock keeps its filesystem from being remounted, so the way to it is.
    let path = bed.pool_path();
    mounts::bind(&path, &path, BindAccess::ReadOnly).unwrap();
    let unwell = pool.check_health().unwrap_err().to_string();
    assert!(unwell.contains("read-only"), "{unwell}");
    assert!(pool.condition(&record.id).unwrap().abnormal);
    let refused = pool.update_volume(&record.id, &mut |_| Ok(())).unwrap_err();
    assert!(refused.to_string().contains("read-only"), "{refused}");
    mounts::ensure_unmounted(&path).unwrap();
    pool.check_health().unwrap();
}
