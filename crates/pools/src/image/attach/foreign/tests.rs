use std::fs::File;

use orlop_model::{ContentSource, Pool, SnapshotRecord, VolumeRecord};

use super::*;
use crate::image::ImagePool;
use crate::image::testbed::by_hand::{Bound, ByHand, refused, refused_for};
use crate::image::testbed::*;

const RW: DeviceAccess = DeviceAccess::ReadWrite;
const RO: DeviceAccess = DeviceAccess::ReadOnly;
fn copy(pool: &ImagePool, source: &VolumeRecord) -> Result<VolumeRecord> {
    let source = ContentSource::Volume(source.id.clone());
    try_create(pool, &copy_of(pool, "copy", source, 16 * MIB))
}

#[test]
fn foreign_writable_device_blocks_every_use() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
        scribble(&data_of(&pool, &record.id), 1, MIB);
        let before = read(&data_of(&pool, &record.id));
        let device = ByHand::attach(&data_of(&pool, &record.id), false);
        refused_for(pool.devices().ensure_attached(&record.id, RW), &device);
        refused_for(pool.devices().ensure_attached(&record.id, RO), &device);
        refused_for(pool.provisioner().ensure_no_volume(&record.id), &device);
        refused_for(pool.provisioner().ensure_reclaimed(&record.id), &device);
        refused_for(copy(&pool, &record), &device);
        refused_for(
            pool.provisioner().begin_snapshot(&snapshot_of(&pool, "s", &record)).map(drop),
            &device,
        );
        let group = group_of(&pool, "g", std::slice::from_ref(&record));
        refused_for(try_take_group(&pool, &group), &device);
        assert!(read(&data_of(&pool, &record.id)) == before);
        // Another volume is none of its business.
        let other = create(&pool, &volume_of(&pool, "b", 16 * MIB));
        pool.devices().ensure_attached(&other.id, RW).unwrap();
        pool.provisioner().ensure_no_volume(&other.id).unwrap();

        drop(device);
        pool.devices().ensure_attached(&record.id, RW).unwrap();
        snapshot(&pool, "s", &record);
        pool.provisioner().ensure_no_volume(&record.id).unwrap();
    }
}

#[test]
fn foreign_read_only_device_blocks_writers() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let device = ByHand::attach(&data_of(&pool, &record.id), true);
    refused_for(pool.devices().ensure_attached(&record.id, RW), &device);
    refused_for(pool.provisioner().ensure_no_volume(&record.id), &device);
    pool.devices().ensure_attached(&record.id, RO).unwrap();
    pool.provisioner().ensure_reclaimed(&record.id).unwrap();
    snapshot(&pool, "s", &record);
    copy(&pool, &record).unwrap();
    drop(device);
    pool.devices().ensure_attached(&record.id, RW).unwrap();
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
}

/// A device that is there when it comes is not searched for again, and detaching it is always right.
#[test]
fn volume_in_use_is_detached_despite_a_foreign_device() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let own = pool.devices().ensure_attached(&record.id, RW).unwrap();
    let device = ByHand::attach(&data_of(&pool, &record.id), false);
    assert_eq!(pool.devices().ensure_attached(&record.id, RW).unwrap(), own);
    refused_for(pool.devices().ensure_attached(&record.id, RO), &device);
    pool.devices().ensure_detached(&record.id, RW).unwrap();
    refused_for(pool.provisioner().ensure_no_volume(&record.id), &device);
    refused_for(pool.devices().ensure_attached(&record.id, RW), &device);
}

#[test]
fn foreign_device_is_found_through_a_bind_mount() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let data = data_of(&pool, &record.id);
    let point = testbed.pool_path().with_extension("point");
    fs::create_dir(&point).unwrap();
    for shown in [testbed.pool_path().as_path(), data.parent().unwrap()] {
        let _bound = Bound::new(shown, &point);
        let device = ByHand::attach(&point.join(data.strip_prefix(shown).unwrap()), true);
        refused_for(pool.devices().ensure_attached(&record.id, RW), &device);
        refused_for(pool.provisioner().ensure_no_volume(&record.id), &device);
    }
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
}

#[test]
fn foreign_device_is_found_under_any_name() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let data = data_of(&pool, &record.id);
    let other = testbed.pool_path().with_extension("other");
    fs::hard_link(&data, &other).unwrap();
    let device = ByHand::attach(&other, false);
    fs::remove_file(&other).unwrap();
    refused_for(pool.devices().ensure_attached(&record.id, RW), &device);
    drop(device);

    File::create(&other).unwrap();
    let _bound = Bound::new(&data, &other);
    let device = ByHand::attach(&other, false);
    refused_for(pool.provisioner().ensure_no_volume(&record.id), &device);
    drop(device);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
}

#[test]
fn program_writing_the_file_blocks_use() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let program = File::options().write(true).open(data_of(&pool, &record.id)).unwrap();
    for message in [
        refused(pool.devices().ensure_attached(&record.id, RW)),
        refused(pool.provisioner().ensure_no_volume(&record.id)),
    ] {
        assert!(message.contains(&format!("process {} ", std::process::id())), "{message}");
    }
    drop(program);
    pool.devices().ensure_attached(&record.id, RW).unwrap();
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
}

/// As a backup does.
#[test]
fn program_reading_the_file_blocks_nothing() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let _program = File::open(data_of(&pool, &record.id)).unwrap();
    pool.devices().ensure_attached(&record.id, RW).unwrap();
    snapshot(&pool, "s", &record);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
}

fn restore(pool: &ImagePool, source: &SnapshotRecord) -> Result<VolumeRecord> {
    let source = ContentSource::Snapshot(source.id.clone());
    try_create(pool, &copy_of(pool, "restored", source, 16 * MIB))
}

/// What is written to a snapshot would be in the volume, half of it perhaps.
#[test]
fn a_snapshot_that_is_written_to_is_not_restored() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
        let taken = snapshot(&pool, "s", &record);
        let data = snapshot_data_of(&pool, &taken.id);
        let device = ByHand::attach(&data, false);
        refused_for(restore(&pool, &taken), &device);
        drop(device);
        let reader = ByHand::attach(&data, true);
        restore(&pool, &taken).unwrap();
        drop(reader);
        pool.provisioner().ensure_no_volume(&volume_id(&pool, "restored")).unwrap();
        let program = File::options().write(true).open(&data).unwrap();
        let message = refused(restore(&pool, &taken));
        assert!(message.contains(&format!("process {} ", std::process::id())), "{message}");
        drop(program);
        restore(&pool, &taken).unwrap();
        pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    }
}

/// Where a copy takes a while, a program may have come and gone by its end.
#[test]
fn copying_fails_if_the_source_is_written_to() {
    for testbed in [Testbed::ext4(), Testbed::plain()].into_iter().flatten() {
        let pool = testbed.open();
        if pool.directory.shares_extents() {
            continue;
        }
        let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
        scribble(&data_of(&pool, &record.id), 1, MIB);
        let of_volume = ContentSource::Volume(record.id.clone());
        let (of_snapshot, of_copy) =
            (snapshot_of(&pool, "s", &record), copy_of(&pool, "copy", of_volume, 16 * MIB));
        let begun = || {
            (
                pool.provisioner().begin_snapshot(&of_snapshot).unwrap(),
                pool.provisioner().begin_volume(&of_copy).unwrap(),
            )
        };
        let (mut snapshot, mut copy) = begun();
        let device = ByHand::attach(&data_of(&pool, &record.id), false);
        refused_for(snapshot.capture(), &device);
        refused_for(copy.capture(), &device);
        drop(device);

        (snapshot, copy) = begun();
        scribble(&data_of(&pool, &record.id), 2, MIB);
        for message in [refused(snapshot.capture()), refused(copy.capture())] {
            assert!(message.contains("while it was copied"), "{message}");
        }
        drop((snapshot, copy));
        for directory in ["snapshots", "staging"] {
            assert!(listing(&testbed, directory).is_empty(), "{directory}");
        }
        let (snapshot, copy) = begun();
        snapshot.commit().unwrap();
        copy.commit().unwrap();
    }
}

/// The directory of a volume may be a link to another disk.
#[test]
fn device_on_another_disk_is_known_after_a_restart() {
    let (Some(testbed), Some(other)) = (Testbed::xfs(), Testbed::ext4()) else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let home = data_of(&pool, &record.id).parent().unwrap().to_owned();
    let there = other.pool_path().with_extension("there");
    fs::create_dir(&there).unwrap();
    for name in ["data", "record.json"] {
        fs::copy(home.join(name), there.join(name)).unwrap();
    }
    orlop_sys::file::remove_tree(&home).unwrap();
    std::os::unix::fs::symlink(&there, &home).unwrap();
    let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
    drop(pool);
    let pool = testbed.open();
    assert_eq!(pool.devices().attached(&record.id, RW).unwrap(), Some(device.clone()));
    assert_eq!(pool.devices().ensure_attached(&record.id, RW).unwrap(), device);
    pool.devices().ensure_detached(&record.id, RW).unwrap();
}

#[test]
fn files_of_other_volumes_are_ignored() {
    let text = "v-01234567-0123456789abcdef0123456789abcdef";
    let other = text.replace("abcdef", "fedcba");
    let may_be = |file: String| is_named_as(text, Path::new(&file));
    assert!(may_be(format!("/pool/volumes/{text}/data")));
    assert!(may_be("/mnt/data".to_owned()));
    assert!(may_be("/data".to_owned()));
    assert!(!may_be(format!("/pool/volumes/{other}/data")));
    assert!(!may_be(format!("/pool/trash/{other}.1/data")));
    assert!(!may_be("/mnt/disk.img".to_owned()));
}
