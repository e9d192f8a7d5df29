use std::fs::File;
use std::os::unix::fs::FileExt;

use orlop_model::Pool;

use super::*;
use crate::image::testbed::*;

fn fill(pool: &crate::image::ImagePool, id: &VolumeId) {
    let file = File::options().write(true).open(data_of(pool, id)).unwrap();
    file.write_all_at(&pattern(1, MIB), 0).unwrap();
    file.write_all_at(&vec![0; 8 << 20], MIB).unwrap();
    file.write_all_at(&pattern(2, MIB), 9 * MIB).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn zeroes_of_a_thin_volume_are_freed() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
        assert!(pool.provisioner().used_bytes(&record.id).unwrap() < MIB);
        fill(&pool, &record.id);
        let before = read(&data_of(&pool, &record.id));
        assert!(pool.provisioner().used_bytes(&record.id).unwrap() >= 10 * MIB);
        for _ in 0..2 {
            pool.provisioner().ensure_reclaimed(&record.id).unwrap();
            assert!(pool.provisioner().used_bytes(&record.id).unwrap() <= 3 * MIB);
            assert!(read(&data_of(&pool, &record.id)) == before);
        }
    }
}

#[test]
fn a_thick_volume_keeps_its_space() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &thick_volume_of(&pool, "a", 16 * MIB));
    fill(&pool, &record.id);
    pool.provisioner().ensure_reclaimed(&record.id).unwrap();
    assert!(pool.provisioner().used_bytes(&record.id).unwrap() >= 16 * MIB);
}

#[test]
fn a_volume_in_use_is_left_alone() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    fill(&pool, &record.id);
    let before = pool.provisioner().used_bytes(&record.id).unwrap();
    pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite).unwrap();
    let refused = pool.provisioner().ensure_reclaimed(&record.id);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    assert_eq!(pool.provisioner().used_bytes(&record.id).unwrap(), before);
    pool.devices().ensure_detached(&record.id, DeviceAccess::ReadWrite).unwrap();
    pool.provisioner().ensure_reclaimed(&record.id).unwrap();
    assert!(pool.provisioner().used_bytes(&record.id).unwrap() < before);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    assert!(matches!(pool.provisioner().used_bytes(&record.id), Err(Error::NoSuchVolume(_))));
    assert!(matches!(pool.provisioner().ensure_reclaimed(&record.id), Err(Error::NoSuchVolume(_))));
}
