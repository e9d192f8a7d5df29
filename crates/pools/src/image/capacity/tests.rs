use std::fs;

use orlop_model::{ALLOCATION_UNIT, Error, Pool};
use orlop_sys::file;

use super::*;
use crate::image::testbed::*;
use crate::image::{Floor, ImagePool};

fn largest(pool: &ImagePool, provisioning: Provisioning) -> u64 {
    pool.provisioner().capacity(provisioning).unwrap().largest_volume
}

#[test]
fn exactly_the_largest_volume_can_be_made() {
    for testbed in [Testbed::xfs(), Testbed::btrfs(), Testbed::ext4()].into_iter().flatten() {
        let pool = testbed.open();
        for provisioning in [Provisioning::Thin, Provisioning::Thick] {
            let largest = largest(&pool, provisioning);
            assert!(largest > 100 * MIB);
            let mut new = volume_of(&pool, "largest", largest + ALLOCATION_UNIT);
            new.parameters.provisioning = provisioning;
            let refused = pool.provisioner().begin_volume(&new).err().unwrap();
            assert!(matches!(refused, Error::Exhausted(_)), "{refused}");
            new.capacity_bytes = largest;
            create(&pool, &new);
            assert_eq!(pool.provisioner().capacity(provisioning).unwrap().largest_volume, 0);
            pool.provisioner().ensure_no_volume(&new.id).unwrap();
        }
    }
}

#[test]
fn deleted_space_can_be_promised_again() {
    for testbed in Testbed::sharing() {
        let pool = testbed.open();
        let before = largest(&pool, Provisioning::Thick);
        let new = thick_volume_of(&pool, "a", 256 * MIB);
        create(&pool, &new);
        let between = largest(&pool, Provisioning::Thick);
        assert!(before.abs_diff(between + 256 * MIB) <= 8 * MIB, "{between}");
        pool.provisioner().ensure_no_volume(&new.id).unwrap();
        file::sync_filesystem(&testbed.pool_path()).unwrap();
        let after = largest(&pool, Provisioning::Thick);
        assert!(before.abs_diff(after) <= 8 * MIB, "{before} {after}");
    }
}

#[test]
fn written_bytes_are_not_counted_twice() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 128 * MIB));
    let before = largest(&pool, Provisioning::Thin);
    scribble(&data_of(&pool, &record.id), 1, 48 * MIB);
    drop(pool);
    let pool = testbed.open();
    assert!(before.abs_diff(largest(&pool, Provisioning::Thin)) <= 2 * MIB);
}

#[test]
fn discarded_bytes_are_promised_only_after_a_scan() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &thick_volume_of(&pool, "a", 256 * MIB));
    let before = largest(&pool, Provisioning::Thin);
    let data = data_of(&pool, &record.id);
    let file = fs::File::options().write(true).open(&data).unwrap();
    file::set_length(&file, 0).unwrap();
    file::set_length(&file, 256 * MIB).unwrap();
    file.sync_all().unwrap();
    assert!(largest(&pool, Provisioning::Thin) <= before + MIB);
}

#[test]
fn eight_callers_cannot_overbook() {
    for testbed in Testbed::sharing() {
        let pool = testbed.open();
        let each = (largest(&pool, Provisioning::Thin) / 4 - MIB) / MIB * MIB;
        let made = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..8)
                .map(|n| {
                    let new = volume_of(&pool, &format!("volume {n}"), each);
                    let pool = &pool;
                    scope.spawn(move || try_create(pool, &new))
                })
                .collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(made.iter().filter(|result| result.is_ok()).count(), 4);
        let exhausted = |r: &&Result<_>| matches!(r, Err(Error::Exhausted(_)));
        assert_eq!(made.iter().filter(exhausted).count(), 4);
    }
}

#[test]
fn a_dropped_draft_gives_its_space_back() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let before = largest(&pool, Provisioning::Thick);
    let all = thick_volume_of(&pool, "all", before);
    let draft = pool.provisioner().begin_volume(&all).unwrap();
    assert!(largest(&pool, Provisioning::Thick) == 0);
    let small = volume_of(&pool, "small", 16 * MIB);
    assert!(matches!(try_create(&pool, &small), Err(Error::Exhausted(_))));
    drop(draft);
    assert!(before.abs_diff(largest(&pool, Provisioning::Thick)) <= MIB);
    create(&pool, &small);
}

#[test]
fn below_the_floor_creates_fail_and_volumes_warn() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 64 * MIB));
    assert!(!pool.health().condition(&record.id).unwrap().is_abnormal());
    drop(pool);

    let mut config = testbed.config();
    config.floor = Floor::Percent(100);
    let pool = ImagePool::open(config).unwrap();
    assert_eq!(largest(&pool, Provisioning::Thin), 0);
    let condition = pool.health().condition(&record.id).unwrap();
    assert!(condition.is_abnormal());
    assert!(
        condition.message().starts_with("pool test is below its floor: "),
        "{}",
        condition.message()
    );
    let refused = |error: Option<Error>| matches!(error, Some(Error::Exhausted(_)));
    let tiny = volume_of(&pool, "tiny", MIB);
    assert!(refused(pool.provisioner().begin_volume(&tiny).err()));
    let new = snapshot_of(&pool, "s", &record);
    assert!(refused(pool.provisioner().begin_snapshot(&new).err()));
    assert!(refused(pool.provisioner().ensure_capacity(&record.id, 65 * MIB).err()));
    assert_eq!(pool.provisioner().ensure_capacity(&record.id, 64 * MIB).unwrap(), record);
}

#[test]
fn overcommit_allows_more_than_the_space() {
    let Some(testbed) = Testbed::xfs() else { return };
    let mut config = testbed.config();
    config.overcommit_percent = 300;
    let pool = ImagePool::open(config).unwrap();
    let total = file::space(&testbed.pool_path()).unwrap().total;
    let thin = largest(&pool, Provisioning::Thin);
    assert!(thin > 2 * total, "{thin} of {total}");
    assert!(largest(&pool, Provisioning::Thick) < total);
    create(&pool, &volume_of(&pool, "large", thin));
    let huge = volume_of(&pool, "huge", 4 * total / MIB * MIB);
    assert!(matches!(try_create(&pool, &huge), Err(Error::OutOfRange(_))));
}

#[test]
fn unshared_copy_needs_its_full_size() {
    let Some(testbed) = Testbed::ext4() else { return };
    let mut config = testbed.config();
    config.overcommit_percent = 1000;
    let pool = ImagePool::open(config).unwrap();
    let record = create(&pool, &thick_volume_of(&pool, "a", 512 * MIB));
    let refused = pool.provisioner().begin_snapshot(&snapshot_of(&pool, "s", &record));
    assert!(matches!(refused.err(), Some(Error::Exhausted(_))));
    assert!(listing(&testbed, "staging").is_empty());
}

#[test]
fn shared_bytes_are_promised_to_each_and_counted_once() {
    for testbed in Testbed::sharing() {
        let foreign = fs::File::create(testbed.pool_path().with_extension("foreign")).unwrap();
        file::preallocate(&foreign, 0, 256 * MIB).unwrap();
        let pool = testbed.open();
        let record = create(&pool, &volume_of(&pool, "a", 160 * MIB));
        let data = data_of(&pool, &record.id);
        scribble(&data, 1, 72 * MIB);
        lock(&pool.capacity.ledger).scan().forget();
        let mut available =
            pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes;
        for name in ["s0", "s1"] {
            snapshot(&pool, name, &record);
            let left = pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes;
            assert!(left + 140 * MIB <= available, "{available} {left}");
            available = left;
        }
        // The same after another scan, and in another process.
        lock(&pool.capacity.ledger).scan().forget();
        let again = pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes;
        assert!(again.abs_diff(available) <= 8 * MIB, "{available} {again}");
        drop(pool);
        let pool = testbed.open();
        let again = pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes;
        assert!(again.abs_diff(available) <= 8 * MIB, "{available} {again}");

        // All that is promised can be had, and the volume be written over.
        create(&pool, &thick_volume_of(&pool, "b", largest(&pool, Provisioning::Thick)));
        scribble(&data, 2, 80 * MIB);
    }
}

#[test]
fn bytes_beyond_the_source_count_for_the_copy() {
    for testbed in Testbed::sharing() {
        let pool = testbed.open();
        let source = create(&pool, &volume_of(&pool, "source", 64 * MIB));
        scribble(&data_of(&pool, &source.id), 1, 8 * MIB);
        let from = orlop_model::ContentSource::Volume(source.id);
        let copy = create(&pool, &copy_of(&pool, "copy", from, 192 * MIB));
        testbed.free();
        lock(&pool.capacity.ledger).scan().forget();
        let before = largest(&pool, Provisioning::Thin);
        let grown = fs::File::options().write(true).open(data_of(&pool, &copy.id)).unwrap();
        use std::os::unix::fs::FileExt;
        grown.write_all_at(&pattern(3, 128 * MIB), 64 * MIB).unwrap();
        grown.sync_all().unwrap();
        drop((grown, pool));
        testbed.free();
        let after = largest(&testbed.open(), Provisioning::Thin);
        assert!(before.abs_diff(after) <= 8 * MIB, "{before} {after}");
    }
}
