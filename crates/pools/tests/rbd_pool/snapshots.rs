use orlop_model::{ContentSource, Error, Pool};
use orlop_sys::ceph::Update;

use crate::fixture::{
    Fixture, MIB, byte_at, copy_of, new_snapshot, snapshot, until, volume, volume_id, write,
};

#[test]
fn a_snapshot_is_one_instant_and_is_restored_as_it_was() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "a", 16 * MIB);
    let image = fixture.image(&source.id);
    write(&image, 0, 1, MIB);
    let mut draft = pool.provisioner().begin_snapshot(&new_snapshot(&pool, "s", &source)).unwrap();
    draft.capture().unwrap();
    write(&image, 0, 2, MIB);
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), [], "not before it has its record");
    let record = draft.commit().unwrap();
    assert_eq!(pool.catalogue().snapshot(&record.id).unwrap(), Some(record.clone()));
    assert_eq!(
        fixture.open().catalogue().snapshots(None, 0).unwrap(),
        std::slice::from_ref(&record)
    );

    let from = ContentSource::Snapshot(record.id.clone());
    let restored = copy_of(&pool, "b", from.clone(), 32 * MIB).unwrap();
    let restored = fixture.image(&restored.id);
    assert_eq!(byte_at(&restored, 0, MIB), 1);
    assert_eq!(byte_at(&restored, 16 * MIB, 16 * MIB), 0);
    assert_eq!(byte_at(&image, 0, MIB), 2);
    let small = copy_of(&pool, "c", from, 8 * MIB);
    assert!(matches!(small, Err(Error::OutOfRange(_))), "{small:?}");
}

#[test]
fn snapshots_outlive_their_volume_and_are_freed_with_it() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    let source = volume(&pool, "a", 16 * MIB);
    write(&fixture.image(&source.id), 0, 1, MIB);
    let first = snapshot(&pool, "s1", &source);
    write(&fixture.image(&source.id), 4 * MIB, 2, MIB);
    let second = snapshot(&pool, "s2", &source);
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap().len(), 2);

    let namesake = volume(&pool, "a", 16 * MIB);
    assert_eq!(byte_at(&fixture.image(&namesake.id), 0, 16 * MIB), 0, "it starts empty");
    let changed = pool.changed_blocks().changed_ranges(&first.id, &second.id, 0).unwrap();
    let changed: Vec<_> = changed.filter_map(|range| Some(range.unwrap()?.start)).collect();
    assert_eq!(changed, [4 * MIB]);
    pool.provisioner().ensure_no_volume(&namesake.id).unwrap();

    // Under the very name that it once had.
    let from = ContentSource::Snapshot(second.id.clone());
    let restored = copy_of(&pool, "a", from, 16 * MIB).unwrap();
    assert_eq!(restored.id, source.id);
    assert_eq!(byte_at(&fixture.image(&restored.id), 4 * MIB, MIB), 2);

    for id in [&first.id, &second.id, &first.id] {
        pool.provisioner().ensure_no_snapshot(id).unwrap();
        assert_eq!(pool.catalogue().snapshot(id).unwrap(), None);
    }
    assert_eq!(byte_at(&fixture.image(&restored.id), 0, MIB), 1, "it needs no snapshot any more");
    pool.provisioner().ensure_no_volume(&restored.id).unwrap();
    until("all is free", || fixture.is_empty());
}

#[test]
fn of_two_drafts_of_one_snapshot_one_wins_without_orphans() {
    let Some(fixture) = Fixture::new() else { return };
    let pools = [fixture.open(), fixture.open()];
    let source = volume(&pools[0], "a", 4 * MIB);
    let new = new_snapshot(&pools[0], "s", &source);
    let drafts = pools.each_ref().map(|pool| {
        let mut draft = pool.provisioner().begin_snapshot(&new).unwrap();
        draft.capture().unwrap();
        draft
    });
    let [first, second] = drafts;
    let record = first.commit().unwrap();
    let lost = second.commit();
    assert!(matches!(lost, Err(Error::Busy { .. })), "{lost:?}");
    assert_eq!(pools[1].catalogue().snapshots(None, 0).unwrap(), std::slice::from_ref(&record));
    assert_eq!(fixture.image(&source.id).snapshots().unwrap().len(), 1);

    let dropped = pools[0].provisioner().begin_snapshot(&new_snapshot(&pools[0], "t", &source));
    let mut dropped = dropped.unwrap();
    dropped.capture().unwrap();
    drop(dropped);
    assert_eq!(fixture.image(&source.id).snapshots().unwrap().len(), 1);
    pools[1].provisioner().ensure_no_snapshot(&record.id).unwrap();
    assert_eq!(fixture.image(&source.id).snapshots().unwrap(), []);
}

#[test]
fn a_snapshot_of_a_grown_volume_has_the_size_of_its_instant() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "a", 8 * MIB);
    let small = snapshot(&pool, "s1", &source);
    let source = pool.provisioner().ensure_capacity(&source.id, 24 * MIB).unwrap();
    let large = snapshot(&pool, "s2", &source);
    assert_eq!((small.size_bytes, large.size_bytes), (8 * MIB, 24 * MIB));
    let copy = copy_of(&pool, "b", ContentSource::Snapshot(small.id), 8 * MIB).unwrap();
    assert_eq!(fixture.image(&copy.id).size().unwrap(), 8 * MIB);
    let missing = volume_id(&pool, "none");
    let none = copy_of(&pool, "c", ContentSource::Volume(missing), MIB);
    assert!(matches!(none, Err(Error::NoSuchVolume(_))), "{none:?}");
}

#[test]
fn a_snapshot_is_committed_only_while_its_intent_exists() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let io = fixture.io();
    let intents = || io.omap_list("orlop.records", "", "pending.", 0).unwrap();
    let source = volume(&pool, "a", 4 * MIB);
    // An intent that stayed would have the data removed after an hour.
    let record = snapshot(&pool, "s1", &source);
    assert_eq!(intents(), []);

    let mut late = pool.provisioner().begin_snapshot(&new_snapshot(&pool, "s2", &source)).unwrap();
    late.capture().unwrap();
    // Taken for dead by another process.
    let [(intent, _)] = &intents()[..] else { panic!("one intent: {:?}", intents()) };
    io.update("orlop.records", &Update::default().remove(intent)).unwrap();
    let lost = late.commit();
    assert!(matches!(lost, Err(Error::Busy { .. })), "{lost:?}");
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), [record]);
    assert_eq!(fixture.image(&source.id).snapshots().unwrap().len(), 1);
}

#[test]
fn a_snapshot_that_was_removed_by_hand_is_lost() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "a", 8 * MIB);
    let taken = snapshot(&pool, "s", &source);
    let name = fixture.image(&source.id).snapshots().unwrap().remove(0).name;
    fixture.rbd(&["snap", "rm", "--no-progress", &format!("{}@{name}", source.id)]);
    let restore = || copy_of(&pool, "b", ContentSource::Snapshot(taken.id.clone()), 8 * MIB);
    for _ in 0..2 {
        let lost = restore();
        let Err(Error::Damaged { reason, .. }) = &lost else { panic!("{lost:?}") };
        assert!(reason.contains(&name), "{reason}");
    }
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    assert!(matches!(restore(), Err(Error::NoSuchSnapshot(_))));
}
