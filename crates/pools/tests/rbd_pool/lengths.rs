//! Images that are shorter or longer than the records of their volumes say.

use orlop_model::{ContentSource, DeviceAccess, Error, HealthReason, Pool, Result, VolumeRecord};
use orlop_pools::RbdPool;

use crate::fixture::{Fixture, MIB, byte_at, copy_of, new_snapshot, read, snapshot, volume, write};
use crate::groups::new_group;

const SIZE: u64 = 16 * MIB;

/// All that uses the data of a volume.
fn uses(pool: &RbdPool, record: &VolumeRecord) -> Vec<Result<()>> {
    let source = ContentSource::Volume(record.id.clone());
    vec![
        pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite).map(drop),
        pool.devices().ensure_attached(&record.id, DeviceAccess::ReadOnly).map(drop),
        pool.provisioner().begin_snapshot(&new_snapshot(pool, "s", record)).map(drop),
        pool.provisioner().begin_group_snapshot(&new_group(pool, "g", &[record])).map(drop),
        copy_of(pool, "copy", source, record.capacity_bytes).map(drop),
    ]
}

fn reasons(pool: &RbdPool, record: &VolumeRecord) -> Vec<(HealthReason, String)> {
    let condition = pool.health().condition(&record.id).unwrap();
    condition.problems().iter().map(|one| (one.reason, one.message.clone())).collect()
}

fn findings(fixture: &Fixture) -> Vec<&'static str> {
    RbdPool::inspect(&fixture.config()).unwrap().1.into_iter().map(|one| one.code).collect()
}

#[test]
fn shrunk_image_is_neither_used_nor_grown() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", SIZE);
    let name = record.id.to_string();
    write(&fixture.image(&record.id), 0, 7, SIZE);
    fixture.rbd(&["resize", "--no-progress", "--allow-shrink", "--size", "8M", &name]);
    let mut refused = uses(&pool, &record);
    refused.push(pool.provisioner().ensure_capacity(&record.id, 2 * SIZE).map(drop));
    for refused in refused {
        let Err(Error::Damaged { reason, .. }) = &refused else { panic!("{refused:?}") };
        assert!(reason.contains("rbd resize --size 16777216B"), "{reason}");
    }
    let problems = reasons(&pool, &record);
    assert!(matches!(&problems[..], [(HealthReason::BackingFileTruncated, _)]), "{problems:?}");
    assert_eq!(findings(&fixture), ["data-short"]);
    assert_eq!(fixture.image(&record.id).size().unwrap(), SIZE / 2);

    // What the error says.
    fixture.rbd(&["resize", "--no-progress", "--size", "16777216B", &name]);
    assert_eq!(reasons(&pool, &record), []);
    snapshot(&pool, "s", &record);
}

#[test]
fn record_older_than_the_data_is_not_used() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let before = volume(&pool, "a", SIZE);
    let name = before.id.to_string();
    let key = format!("orlop.record.{}", fixture.image(&before.id).id().unwrap());
    let text = fixture.rbd(&["image-meta", "get", &name, &key]);
    pool.provisioner().ensure_capacity(&before.id, 2 * SIZE).unwrap();
    write(&fixture.image(&before.id), SIZE + 8 * MIB, 7, MIB);
    fixture.rbd(&["image-meta", "set", &name, &key, text.trim_end()]);
    for refused in uses(&pool, &before) {
        let Err(Error::Precondition(reason)) = &refused else { panic!("{refused:?}") };
        assert!(reason.as_str().contains("expand it to 33554432 bytes"), "{reason}");
    }
    let problems = reasons(&pool, &before);
    assert!(matches!(&problems[..], [(HealthReason::RecordOutdated, _)]), "{problems:?}");
    assert_eq!(findings(&fixture), ["data-long"]);

    let now = pool.provisioner().ensure_capacity(&before.id, 2 * SIZE).unwrap();
    assert_eq!(reasons(&pool, &before), []);
    let taken = snapshot(&pool, "s", &now);
    assert_eq!(taken.size_bytes, 2 * SIZE);
    assert_eq!(byte_at(&fixture.image(&before.id), SIZE + 8 * MIB, MIB), 7);
}

/// The end of the record is within an object that holds data.
#[test]
fn interrupted_expansion_leaves_copies_their_recorded_size() {
    const SMALL: u64 = 6 * MIB;
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", SMALL);
    let image = fixture.image(&record.id);
    write(&image, 5 * MIB, 7, MIB);
    image.ensure_size(SIZE).unwrap();
    assert_eq!(reasons(&pool, &record), []);
    assert_eq!(findings(&fixture), [""; 0]);

    let clone = copy_of(&pool, "b", ContentSource::Volume(record.id.clone()), SMALL).unwrap();
    let taken = snapshot(&pool, "s", &record);
    assert_eq!((clone.capacity_bytes, taken.size_bytes), (SMALL, SMALL));
    let restored = copy_of(&pool, "c", ContentSource::Snapshot(taken.id), SMALL).unwrap();
    let larger = copy_of(&pool, "d", ContentSource::Volume(clone.id.clone()), 2 * SIZE).unwrap();
    for (copy, size) in [(clone, SIZE), (restored, SIZE), (larger, 2 * SIZE)] {
        let image = fixture.image(&copy.id);
        assert_eq!(image.size().unwrap(), size);
        assert_eq!(byte_at(&image, 5 * MIB, MIB), 7);
        assert_eq!(reasons(&pool, &copy), []);
        let grown = pool.provisioner().ensure_capacity(&copy.id, 2 * SIZE).unwrap();
        assert_eq!(grown.capacity_bytes, 2 * SIZE);
        assert!(read(&image, SMALL, SIZE - SMALL).iter().all(|byte| *byte == 0));
    }
}
