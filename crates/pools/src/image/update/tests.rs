use std::fs;

use orlop_model::{Error, IoLimits, Pool};
use orlop_sys::file::allocated_bytes;

use super::super::testbed::*;
use super::*;

#[test]
fn a_change_is_there_after_reopening() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    let limits = IoLimits { read_iops: Some(100), ..IoLimits::default() };
    let changed = pool.update_volume(&record.id, &mut |record| record.limits = limits).unwrap();
    assert_eq!(changed.limits, limits);
    drop(pool);
    assert_eq!(bed.open().volume(&record.id).unwrap(), Some(changed));
}

#[test]
fn a_change_that_cannot_be_saved_is_not_made() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    let home = pool.store.volumes.home(&record.id);
    fs::rename(home.directory(), bed.pool_path().join("elsewhere")).unwrap();
    let refused = pool.update_volume(&record.id, &mut |record| record.ephemeral = true);
    assert!(matches!(refused, Err(Error::Failed { .. })));
    assert_eq!(pool.volume(&record.id).unwrap(), Some(record));
    let missing = pool.update_volume(&volume_id(&pool, "missing"), &mut |_| {});
    assert!(matches!(missing, Err(Error::NoSuchVolume(_))));
}

#[test]
fn volumes_grow_and_never_shrink() {
    for bed in Bed::all() {
        let pool = bed.open();
        let thin = create(&pool, &volume_of(&pool, "thin", 32 * MIB));
        let thick = create(&pool, &thick_volume_of(&pool, "thick", 32 * MIB));
        for record in [&thin, &thick] {
            scribble(&data_of(&pool, &record.id), 1, MIB);
            let before = read(&data_of(&pool, &record.id));
            let grown = pool.ensure_capacity(&record.id, 48 * MIB).unwrap();
            assert_eq!(grown.capacity_bytes, 48 * MIB);
            let again = pool.ensure_capacity(&record.id, 16 * MIB).unwrap();
            assert_eq!(again, grown);
            let after = read(&data_of(&pool, &record.id));
            assert_eq!(u64::try_from(after.len()).unwrap(), 48 * MIB);
            assert!(after[..before.len()] == before);
            assert!(is_zero(&after[before.len()..]));
        }
        assert!(allocated_bytes(&data_of(&pool, &thin.id)).unwrap() < 8 * MIB);
        assert!(allocated_bytes(&data_of(&pool, &thick.id)).unwrap() >= 48 * MIB);
        drop(pool);
        let reopened = bed.open().volume(&thin.id).unwrap().unwrap();
        assert_eq!(reopened.capacity_bytes, 48 * MIB);
    }
}

#[test]
fn growth_must_fit() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    let record = create(&pool, &thick_volume_of(&pool, "a", 32 * MIB));
    let left = pool.capacity(Provisioning::Thick).unwrap().largest_volume;
    let too_much = pool.ensure_capacity(&record.id, 32 * MIB + left + MIB);
    assert!(matches!(too_much, Err(Error::Exhausted(_))), "{too_much:?}");
    let never = pool.ensure_capacity(&record.id, 1 << 50);
    assert!(matches!(never, Err(Error::OutOfRange(_))));
    assert_eq!(pool.volume(&record.id).unwrap(), Some(record.clone()));
    let most = pool.ensure_capacity(&record.id, 32 * MIB + left).unwrap();
    assert_eq!(most.capacity_bytes, 32 * MIB + left);
}
