use std::fs;

use orlop_model::{Error, IoLimits, Pool};
use orlop_sys::file::allocated_bytes;

use super::*;
use crate::image::testbed::*;

#[test]
fn change_persists_after_reopening() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    let limits = IoLimits { read_iops: Some(100), ..IoLimits::default() };
    let changed = pool
        .catalogue()
        .update_volume(&record.id, &mut |record| {
            record.limits = limits;
            Ok(())
        })
        .unwrap();
    assert_eq!(changed.limits, limits);
    drop(pool);
    assert_eq!(testbed.open().catalogue().volume(&record.id).unwrap(), Some(changed));
}

#[test]
fn unsaved_change_is_not_applied() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    let home = pool.catalogue.volume_index().directory_of(&record.id);
    fs::rename(home.directory(), testbed.pool_path().join("elsewhere")).unwrap();
    let refused = pool.catalogue().update_volume(&record.id, &mut |record| {
        record.ephemeral = true;
        Ok(())
    });
    assert!(matches!(refused, Err(Error::Failed { .. })));
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record));
    let missing = pool.catalogue().update_volume(&volume_id(&pool, "missing"), &mut |_| Ok(()));
    assert!(matches!(missing, Err(Error::NoSuchVolume(_))));
}

#[test]
fn volumes_grow_and_never_shrink() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let thin = create(&pool, &volume_of(&pool, "thin", 32 * MIB));
        let thick = create(&pool, &thick_volume_of(&pool, "thick", 32 * MIB));
        for record in [&thin, &thick] {
            scribble(&data_of(&pool, &record.id), 1, MIB);
            let before = read(&data_of(&pool, &record.id));
            let grown = pool.provisioner().ensure_capacity(&record.id, 48 * MIB).unwrap();
            assert_eq!(grown.capacity_bytes, 48 * MIB);
            let again = pool.provisioner().ensure_capacity(&record.id, 16 * MIB).unwrap();
            assert_eq!(again, grown);
            let after = read(&data_of(&pool, &record.id));
            assert_eq!(u64::try_from(after.len()).unwrap(), 48 * MIB);
            assert!(after[..before.len()] == before);
            assert!(is_zero(&after[before.len()..]));
        }
        assert!(allocated_bytes(&data_of(&pool, &thin.id)).unwrap() < 8 * MIB);
        assert!(allocated_bytes(&data_of(&pool, &thick.id)).unwrap() >= 48 * MIB);
        drop(pool);
        let reopened = testbed.open().catalogue().volume(&thin.id).unwrap().unwrap();
        assert_eq!(reopened.capacity_bytes, 48 * MIB);
    }
}

#[test]
fn growth_must_fit() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &thick_volume_of(&pool, "a", 32 * MIB));
    let left = pool.provisioner().capacity(Provisioning::Thick).unwrap().largest_volume;
    let too_much = pool.provisioner().ensure_capacity(&record.id, 32 * MIB + left + MIB);
    assert!(matches!(too_much, Err(Error::Exhausted(_))), "{too_much:?}");
    let never = pool.provisioner().ensure_capacity(&record.id, 1 << 50);
    assert!(matches!(never, Err(Error::OutOfRange(_))));
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
    let most = pool.provisioner().ensure_capacity(&record.id, 32 * MIB + left).unwrap();
    assert_eq!(most.capacity_bytes, 32 * MIB + left);
}

/// As a crash leaves it between the data and the record of an expansion.
fn grow_data_alone(pool: &crate::image::ImagePool, record: &VolumeRecord, bytes: u64) {
    pool.provisioner.grow_data(record, bytes).unwrap();
    let data = fs::metadata(data_of(pool, &record.id)).unwrap();
    assert_eq!(data.len(), bytes);
}

#[test]
fn interrupted_growth_is_never_undone_and_can_be_finished() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let thin = create(&pool, &volume_of(&pool, "thin", 32 * MIB));
        let thick = create(&pool, &thick_volume_of(&pool, "thick", 32 * MIB));
        for record in [&thin, &thick] {
            grow_data_alone(&pool, record, 64 * MIB);
            let length = || fs::metadata(data_of(&pool, &record.id)).unwrap().len();
            let between = pool.provisioner().ensure_capacity(&record.id, 48 * MIB).unwrap();
            assert_eq!((between.capacity_bytes, length()), (48 * MIB, 64 * MIB));
            let finished = pool.provisioner().ensure_capacity(&record.id, 64 * MIB).unwrap();
            assert_eq!((finished.capacity_bytes, length()), (64 * MIB, 64 * MIB));
            assert!(is_zero(&read(&data_of(&pool, &record.id))));
        }
    }
}

#[test]
fn interrupted_growth_is_charged_once() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &thick_volume_of(&pool, "a", 32 * MIB));
    let all = 32 * MIB + pool.provisioner().capacity(Provisioning::Thick).unwrap().largest_volume;
    grow_data_alone(&pool, &record, all);
    drop(pool);
    assert_eq!(
        testbed.open().provisioner().ensure_capacity(&record.id, all).unwrap().capacity_bytes,
        all
    );
}

#[test]
fn failed_growth_keeps_the_old_size() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &thick_volume_of(&pool, "a", 32 * MIB));
    grow_data_alone(&pool, &record, 64 * MIB);
    let free = testbed.free();
    let refused = pool.provisioner.grow_data(&record, 1 << 40);
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    assert_eq!(fs::metadata(data_of(&pool, &record.id)).unwrap().len(), 64 * MIB);
    assert!(testbed.free().abs_diff(free) <= MIB);
}

#[test]
fn unrecorded_growth_is_invisible() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    let obstacle =
        pool.catalogue.volume_index().directory_of(&record.id).directory().join(".record.json.new");
    fs::create_dir(&obstacle).unwrap();
    assert!(pool.provisioner().ensure_capacity(&record.id, 64 * MIB).is_err());
    fs::remove_dir(&obstacle).unwrap();
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
    let device =
        pool.devices().ensure_attached(&record.id, orlop_model::DeviceAccess::ReadWrite).unwrap();
    assert_eq!(orlop_sys::loopdev::size(&device.path).unwrap(), 32 * MIB);
    let taken = snapshot(&pool, "s", &record);
    assert_eq!(taken.size_bytes, 32 * MIB);
    pool.provisioner().ensure_capacity(&record.id, 64 * MIB).unwrap();
    assert_eq!(pool.devices().refresh_device(&record.id).unwrap(), 64 * MIB);
}
