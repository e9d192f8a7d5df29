use std::fs::{self, File, OpenOptions};

use orlop_model::{ContentSource, DeviceAccess, Pool, Provisioning};

use super::super::testbed::by_hand::{Bound, ByHand, refused, refused_for};
use super::super::testbed::*;
use super::super::{ImagePool, ImagePoolConfig};
use super::*;

const BYTES: u64 = 512 << 20;

fn config(testbed: &Testbed) -> ImagePoolConfig {
    ImagePoolConfig { managed_size: Some(BYTES), ..testbed.config() }
}

fn is_mounted(testbed: &Testbed) -> bool {
    let mounted = mounts::mount_at(&testbed.pool_path().join(MOUNT_POINT));
    mounted.unwrap().is_some()
}

fn devices(testbed: &Testbed) -> usize {
    devices_of_pool_at(&testbed.pool_path()).len()
}

#[test]
fn managed_pool_stores_everything_in_its_image() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = ImagePool::open(config(&testbed)).unwrap();
    assert!(pool.directory.shares_extents());
    pool.health().check().unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    scribble(&data_of(&pool, &record.id), 1, MIB);
    let before = read(&data_of(&pool, &record.id));
    let from = ContentSource::Volume(record.id.clone());
    let copy = create(&pool, &copy_of(&pool, "copy", from, 32 * MIB));
    assert!(read(&data_of(&pool, &copy.id)) == before);
    assert!(data_of(&pool, &record.id).starts_with(testbed.pool_path().join(MOUNT_POINT)));
    let largest = pool.provisioner().capacity(Provisioning::Thin).unwrap().largest_volume;
    assert!(largest < BYTES - 64 * MIB);

    pool.close();
    assert!(!is_mounted(&testbed));
    assert_eq!(devices(&testbed), 0);
    assert!(pool.health().check().is_err());
    drop(pool);
    // The mark says that it is managed.
    let pool = testbed.open();
    assert_eq!(pool.catalogue().volumes(None, 0).unwrap().len(), 2);
    assert!(read(&data_of(&pool, &record.id)) == before);
    assert!(listing(&testbed, "staging").is_empty());
}

#[test]
fn mount_left_by_a_crash_is_reused() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = ImagePool::open(config(&testbed)).unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    let access = DeviceAccess::ReadWrite;
    let device = pool.devices().ensure_attached(&record.id, access).unwrap();
    drop(pool);
    assert!(is_mounted(&testbed));
    assert_eq!(devices(&testbed), 2);

    let pool = ImagePool::open(config(&testbed)).unwrap();
    assert_eq!(devices(&testbed), 2);
    assert_eq!(pool.devices().attached(&record.id, access).unwrap(), Some(device));
    // In use: it stays.
    pool.close();
    assert!(is_mounted(&testbed));
    pool.health().check().unwrap();
    pool.devices().ensure_detached(&record.id, access).unwrap();
    pool.close();
    assert!(!is_mounted(&testbed));
    assert_eq!(devices(&testbed), 0);
}

#[test]
fn an_image_grows_and_does_not_shrink() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = ImagePool::open(config(&testbed)).unwrap();
    let before = pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes;
    drop(pool);
    for (bytes, gained) in [(2 * BYTES, BYTES), (BYTES, BYTES)] {
        let mut config = config(&testbed);
        config.managed_size = Some(bytes);
        let pool = ImagePool::open(config).unwrap();
        let after = pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes;
        assert!(after.abs_diff(before + gained) < 64 * MIB, "{before} {after}");
        assert_eq!(fs::metadata(image_in(&testbed.pool_path())).unwrap().len(), 2 * BYTES);
    }
}

#[test]
fn growth_interrupted_by_a_crash_is_finished() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = ImagePool::open(config(&testbed)).unwrap();
    let before = pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes;
    drop(pool);
    let image = OpenOptions::new().write(true).open(image_in(&testbed.pool_path())).unwrap();
    file::set_length(&image, 2 * BYTES).unwrap();
    let pool = testbed.open();
    let after = pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes;
    assert!(after.abs_diff(before + BYTES) < 64 * MIB);
}

#[test]
fn grown_image_survives_a_power_cut() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = ImagePool::open(config(&testbed)).unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    // In use, so it stays mounted from start to start, and growth comes upon growth.
    pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite).unwrap();
    drop(pool);
    for step in 1..=5 {
        let bytes = BYTES + step * 16 * MIB;
        let pool =
            ImagePool::open(ImagePoolConfig { managed_size: Some(bytes), ..testbed.config() })
                .unwrap();
        let managed = pool.directory.managed().unwrap();
        let device = managed.device.path();
        assert!(filesystem::growth_is_written(managed.root(), &device, FsKind::Xfs).unwrap());
    }
}

#[test]
fn frozen_image_is_thawed() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = ImagePool::open(config(&testbed)).unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite).unwrap();
    drop(pool);
    filesystem::freeze(&mount_point_in(&testbed.pool_path())).unwrap();
    let pool = ImagePool::open(config(&testbed)).unwrap();
    create(&pool, &volume_of(&pool, "b", 32 * MIB));
}

#[test]
fn plain_pool_does_not_become_managed() {
    let Some(testbed) = Testbed::plain() else { return };
    drop(testbed.open());
    let refused = ImagePool::open(config(&testbed)).unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
}

#[test]
fn lost_image_is_not_recreated() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = ImagePool::open(config(&testbed)).unwrap();
    pool.close();
    drop(pool);
    fs::remove_file(image_in(&testbed.pool_path())).unwrap();
    let refused = ImagePool::open(config(&testbed)).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
}

#[test]
fn image_created_before_a_crash_is_used() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = ImagePool::open(config(&testbed)).unwrap();
    pool.close();
    drop(pool);
    // As a crash leaves it between the image and the mark.
    for name in ["orlop.pool", "served-by.json"] {
        fs::remove_file(testbed.pool_path().join(name)).unwrap();
    }
    fs::remove_dir(mount_point_in(&testbed.pool_path())).unwrap();
    let refused = ImagePool::open(testbed.config()).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    ImagePool::open(config(&testbed)).unwrap().health().check().unwrap();
}

#[test]
fn an_image_too_small_for_xfs_is_refused() {
    let Some(testbed) = Testbed::plain() else { return };
    let mut config = config(&testbed);
    config.managed_size = Some(64 * MIB);
    let refused = ImagePool::open(config).unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
    assert!(!testbed.pool_path().join("orlop.pool").exists());
}

#[test]
fn deleted_bytes_are_free_around_the_image() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = ImagePool::open(config(&testbed)).unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 128 * MIB));
    scribble(&data_of(&pool, &record.id), 1, 64 * MIB);
    let image = image_in(&testbed.pool_path());
    let full = file::allocated_bytes(&image).unwrap();
    assert!(full >= 128 * MIB);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    pool.close();
    assert!(file::allocated_bytes(&image).unwrap() < full - 96 * MIB);
}

fn made(testbed: &Testbed) -> PathBuf {
    let pool = ImagePool::open(config(testbed)).unwrap();
    create(&pool, &volume_of(&pool, "a", 32 * MIB));
    pool.close();
    image_in(&testbed.pool_path())
}

fn inspect(testbed: &Testbed) -> Result<()> {
    ImagePool::inspect(&testbed.config(), &"node".parse().unwrap()).map(drop)
}

/// Mounted twice, the filesystem in the image would be destroyed.
#[test]
fn an_image_with_a_device_by_hand_is_not_mounted() {
    let Some(testbed) = Testbed::plain() else { return };
    let image = made(&testbed);
    for read_only in [false, true] {
        let device = ByHand::attach(&image, read_only);
        refused_for(ImagePool::open(config(&testbed)), &device);
        refused_for(inspect(&testbed), &device);
        assert!(!is_mounted(&testbed));
    }
    let other = testbed.pool_path().with_extension("other");
    File::create(&other).unwrap();
    let bound = Bound::new(&image, &other);
    let device = ByHand::attach(&other, false);
    refused_for(ImagePool::open(config(&testbed)), &device);
    assert_eq!(devices(&testbed), 0);
    drop(device);
    drop(bound);
    ImagePool::open(config(&testbed)).unwrap().close();
}

#[test]
fn an_image_that_a_program_writes_to_is_not_mounted() {
    let Some(testbed) = Testbed::plain() else { return };
    let image = made(&testbed);
    let program = OpenOptions::new().write(true).open(&image).unwrap();
    for message in [refused(ImagePool::open(config(&testbed))), refused(inspect(&testbed))] {
        assert!(message.contains(&format!("process {} ", std::process::id())), "{message}");
    }
    assert!(!is_mounted(&testbed));
    assert_eq!(devices(&testbed), 0);
    drop(program);
    // As a backup does.
    let _program = File::open(&image).unwrap();
    ImagePool::open(config(&testbed)).unwrap().close();
}

/// A pool in use is served on: what is there already cannot be undone by refusing.
#[test]
fn an_image_in_use_is_opened_beside_a_device_by_hand() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = ImagePool::open(config(&testbed)).unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    drop(pool);
    let device = ByHand::attach(&image_in(&testbed.pool_path()), true);
    let pool = ImagePool::open(config(&testbed)).unwrap();
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record));
    let inspection =
        ImagePool::inspect(&testbed.config(), &"node".parse().unwrap()).unwrap().unwrap();
    let [finding] = &inspection.findings[..] else { panic!("{}", inspection.findings.len()) };
    assert_eq!(finding.code, "foreign-device");
    assert!(finding.problem.contains(device.path().to_str().unwrap()), "{}", finding.problem);
    drop(inspection);
    pool.close();
    drop(device);
}

#[test]
fn an_image_that_is_a_link_is_not_grown() {
    let Some(testbed) = Testbed::plain() else { return };
    let image = made(&testbed);
    let moved = testbed.pool_path().with_extension("moved");
    fs::rename(&image, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &image).unwrap();
    let larger = ImagePoolConfig { managed_size: Some(2 * BYTES), ..testbed.config() };
    ImagePool::open(larger).unwrap_err();
    assert_eq!(fs::metadata(&moved).unwrap().len(), BYTES);
}
