use std::fs;

use orlop_model::{ContentSource, Error, Pool, Timestamp};

use super::*;
use crate::image::testbed::*;

#[test]
fn snapshot_keeps_and_restores_its_data() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let source = create(&pool, &volume_of(&pool, "source", 32 * MIB));
        scribble(&data_of(&pool, &source.id), 1, 4 * MIB);
        let before = read(&data_of(&pool, &source.id));
        let taken = snapshot(&pool, "s", &source);
        assert_eq!(taken.size_bytes, 32 * MIB);
        assert_eq!(taken.source, source.id);
        scribble(&data_of(&pool, &source.id), 2, 4 * MIB);

        let from = ContentSource::Snapshot(taken.id.clone());
        let restored = create(&pool, &copy_of(&pool, "restored", from.clone(), 32 * MIB));
        assert!(read(&data_of(&pool, &restored.id)) == before);
        scribble(&data_of(&pool, &restored.id), 3, 4 * MIB);
        assert!(read(&snapshot_data_of(&pool, &taken.id)) == before);

        pool.provisioner().ensure_no_volume(&source.id).unwrap();
        pool.provisioner().ensure_no_volume(&restored.id).unwrap();
        drop(pool);
        let pool = testbed.open();
        assert_eq!(pool.catalogue().snapshot(&taken.id).unwrap().as_ref(), Some(&taken));
        assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), [taken]);
        let again = create(&pool, &copy_of(&pool, "again", from, 40 * MIB));
        assert!(read(&data_of(&pool, &again.id))[..before.len()] == before);
    }
}

#[test]
fn a_snapshot_takes_no_space_where_extents_are_shared() {
    for testbed in Testbed::sharing() {
        let pool = testbed.open();
        let source = create(&pool, &volume_of(&pool, "source", 256 * MIB));
        scribble(&data_of(&pool, &source.id), 1, 64 * MIB);
        let before = testbed.free();
        for n in 0..4 {
            snapshot(&pool, &format!("s{n}"), &source);
        }
        let after = testbed.free();
        assert!(before.abs_diff(after) < 16 * MIB, "{before} {after}");
    }
}

#[test]
fn snapshot_time_is_that_of_its_capture() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let source = create(&pool, &volume_of(&pool, "source", 32 * MIB));
    let mut draft = pool.provisioner().begin_snapshot(&snapshot_of(&pool, "s", &source)).unwrap();
    let before = Timestamp::from(SystemTime::now());
    draft.capture().unwrap();
    let after = Timestamp::from(SystemTime::now());
    scribble(&data_of(&pool, &source.id), 1, MIB);
    let taken = draft.commit().unwrap();
    assert!(before <= taken.created && taken.created <= after);
    let data = read(&snapshot_data_of(&pool, &taken.id));
    assert!(is_zero(&data));
}

#[test]
fn a_dropped_draft_leaves_nothing() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let source = create(&pool, &volume_of(&pool, "source", 32 * MIB));
        scribble(&data_of(&pool, &source.id), 1, MIB);
        let mut draft =
            pool.provisioner().begin_snapshot(&snapshot_of(&pool, "s", &source)).unwrap();
        draft.capture().unwrap();
        drop(draft);
        assert!(listing(&testbed, "staging").is_empty());
        assert!(listing(&testbed, "snapshots").is_empty());
        assert!(pool.catalogue().snapshots(None, 0).unwrap().is_empty());
    }
}

#[test]
fn snapshot_of_interrupted_growth_has_the_recorded_size() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let source = create(&pool, &volume_of(&pool, "source", 32 * MIB));
        let data = data_of(&pool, &source.id);
        // As a crash leaves it between the data and the record of an expansion.
        let file = fs::File::options().write(true).open(&data).unwrap();
        file::set_length(&file, 48 * MIB).unwrap();
        drop(file);
        let taken = snapshot(&pool, "s", &source);
        assert_eq!(taken.size_bytes, 32 * MIB);
        let data = snapshot_data_of(&pool, &taken.id);
        assert_eq!(fs::metadata(data).unwrap().len(), 32 * MIB);
        let from = ContentSource::Snapshot(taken.id);
        create(&pool, &copy_of(&pool, "restored", from, 32 * MIB));
    }
}

#[test]
fn damaged_source_cannot_be_snapshotted() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let source = create(&pool, &volume_of(&pool, "source", 32 * MIB));
    let file = fs::File::options().write(true).open(data_of(&pool, &source.id)).unwrap();
    file::set_length(&file, MIB).unwrap();
    drop(file);
    let refused = pool.provisioner().begin_snapshot(&snapshot_of(&pool, "s", &source));
    assert!(matches!(refused.err(), Some(Error::Damaged { .. })));
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    let refused = pool.provisioner().begin_snapshot(&snapshot_of(&pool, "s", &source));
    assert!(matches!(refused.err(), Some(Error::NoSuchVolume(_))));
}
