use std::fs;

use orlop_model::{ContentSource, DeviceAccess, Pool, Provisioning};

use super::super::testbed::*;
use super::super::{ImagePool, ImagePoolConfig};
use super::*;

const BYTES: u64 = 512 << 20;

fn config(bed: &Bed) -> ImagePoolConfig {
    ImagePoolConfig { managed_size: Some(BYTES), ..bed.config() }
}

fn is_mounted(bed: &Bed) -> bool {
    let mounted = mounts::mount_at(&bed.pool_path().join(MOUNT_POINT));
    mounted.unwrap().is_some()
}

fn devices(bed: &Bed) -> usize {
    devices_of_pool_at(&bed.pool_path()).len()
}

#[test]
fn a_managed_pool_lives_in_its_image() {
    let Some(bed) = Bed::plain() else { return };
    let pool = ImagePool::open(config(&bed)).unwrap();
    assert!(pool.directory.shares_extents());
    pool.health().check().unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    scribble(&data_of(&pool, &record.id), 1, MIB);
    let before = read(&data_of(&pool, &record.id));
    let from = ContentSource::Volume(record.id.clone());
    let copy = create(&pool, &copy_of(&pool, "copy", from, 32 * MIB));
    assert!(read(&data_of(&pool, &copy.id)) == before);
    assert!(data_of(&pool, &record.id).starts_with(bed.pool_path().join(MOUNT_POINT)));
    let largest = pool.provisioner().capacity(Provisioning::Thin).unwrap().largest_volume;
    assert!(largest < BYTES - 64 * MIB);

    pool.close();
    assert!(!is_mounted(&bed));
    assert_eq!(devices(&bed), 0);
    assert!(pool.health().check().is_err());
    drop(pool);
    // The mark says that it is managed.
    let pool = bed.open();
    assert_eq!(pool.catalogue().volumes(None, 0).unwrap().len(), 2);
    assert!(read(&data_of(&pool, &record.id)) == before);
    assert!(listing(&bed, "staging").is_empty());
}

#[test]
fn what_a_crash_left_mounted_is_used_again() {
    let Some(bed) = Bed::plain() else { return };
    let pool = ImagePool::open(config(&bed)).unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    let access = DeviceAccess::ReadWrite;
    let device = pool.devices().ensure_attached(&record.id, access).unwrap();
    drop(pool);
    assert!(is_mounted(&bed));
    assert_eq!(devices(&bed), 2);

    let pool = ImagePool::open(config(&bed)).unwrap();
    assert_eq!(devices(&bed), 2);
    assert_eq!(pool.devices().attached(&record.id, access).unwrap(), Some(device));
    // In use: it stays.
    pool.close();
    assert!(is_mounted(&bed));
    pool.health().check().unwrap();
    pool.devices().ensure_detached(&record.id, access).unwrap();
    pool.close();
    assert!(!is_mounted(&bed));
    assert_eq!(devices(&bed), 0);
}

#[test]
fn an_image_grows_and_does_not_shrink() {
    let Some(bed) = Bed::plain() else { return };
    let pool = ImagePool::open(config(&bed)).unwrap();
    let before = pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes;
    drop(pool);
    for (bytes, gained) in [(2 * BYTES, BYTES), (BYTES, BYTES)] {
        let mut config = config(&bed);
        config.managed_size = Some(bytes);
        let pool = ImagePool::open(config).unwrap();
        let after = pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes;
        assert!(after.abs_diff(before + gained) < 64 * MIB, "{before} {after}");
        assert_eq!(fs::metadata(image_in(&bed.pool_path())).unwrap().len(), 2 * BYTES);
    }
}

#[test]
fn growth_that_a_crash_interrupted_is_finished() {
    let Some(bed) = Bed::plain() else { return };
    let pool = ImagePool::open(config(&bed)).unwrap();
    let before = pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes;
    drop(pool);
    let image = OpenOptions::new().write(true).open(image_in(&bed.pool_path())).unwrap();
    file::set_length(&image, 2 * BYTES).unwrap();
    let pool = bed.open();
    let after = pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes;
    assert!(after.abs_diff(before + BYTES) < 64 * MIB);
}

#[test]
fn a_power_cut_finds_a_grown_image_whole() {
    let Some(bed) = Bed::plain() else { return };
    let pool = ImagePool::open(config(&bed)).unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    // In use, so it stays mounted from start to start, and growth comes upon growth.
    pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite).unwrap();
    drop(pool);
    for step in 1..=5 {
        let bytes = BYTES + step * 16 * MIB;
        let pool =
            ImagePool::open(ImagePoolConfig { managed_size: Some(bytes), ..bed.config() }).unwrap();
        let managed = pool.directory.managed().unwrap();
        let device = managed.device.path();
        assert!(filesystem::growth_is_written(managed.root(), &device, FsKind::Xfs).unwrap());
    }
}

#[test]
fn an_image_that_was_left_frozen_is_thawed() {
    let Some(bed) = Bed::plain() else { return };
    let pool = ImagePool::open(config(&bed)).unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite).unwrap();
    drop(pool);
    filesystem::freeze(&mount_point_in(&bed.pool_path())).unwrap();
    let pool = ImagePool::open(config(&bed)).unwrap();
    create(&pool, &volume_of(&pool, "b", 32 * MIB));
}

#[test]
fn kinds_do_not_change() {
    let Some(bed) = Bed::plain() else { return };
    drop(bed.open());
    let refused = ImagePool::open(config(&bed)).unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
}

#[test]
fn a_lost_image_is_not_made_again() {
    let Some(bed) = Bed::plain() else { return };
    let pool = ImagePool::open(config(&bed)).unwrap();
    pool.close();
    drop(pool);
    fs::remove_file(image_in(&bed.pool_path())).unwrap();
    let refused = ImagePool::open(config(&bed)).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
}

#[test]
fn an_image_made_before_a_crash_is_used() {
    let Some(bed) = Bed::plain() else { return };
    let pool = ImagePool::open(config(&bed)).unwrap();
    pool.close();
    drop(pool);
    // As a crash leaves it between the image and the mark.
    for name in ["orlop.pool", "served-by.json"] {
        fs::remove_file(bed.pool_path().join(name)).unwrap();
    }
    fs::remove_dir(mount_point_in(&bed.pool_path())).unwrap();
    let refused = ImagePool::open(bed.config()).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    ImagePool::open(config(&bed)).unwrap().health().check().unwrap();
}

#[test]
fn an_image_too_small_for_xfs_is_refused() {
    let Some(bed) = Bed::plain() else { return };
    let mut config = config(&bed);
    config.managed_size = Some(64 * MIB);
    let refused = ImagePool::open(config).unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
    assert!(!bed.pool_path().join("orlop.pool").exists());
}

#[test]
fn deleted_bytes_are_free_around_the_image() {
    let Some(bed) = Bed::plain() else { return };
    let pool = ImagePool::open(config(&bed)).unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 128 * MIB));
    scribble(&data_of(&pool, &record.id), 1, 64 * MIB);
    let image = image_in(&bed.pool_path());
    let full = file::allocated_bytes(&image).unwrap();
    assert!(full >= 128 * MIB);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    pool.close();
    assert!(file::allocated_bytes(&image).unwrap() < full - 96 * MIB);
}
