//! Images of volumes that an operator has moved to the trash, as the dashboard of Ceph offers. Orlop marks an
//! image as deleted before it moves it there.

use orlop_model::{ContentSource, Error, Pool, Result};
use orlop_pools::RbdPool;

use crate::fixture::{Fixture, MIB, byte_at, copy_of, create, new_volume, snapshot, volume, write};

const SIZE: u64 = 8 * MIB;

fn assert_refused<T: std::fmt::Debug>(outcome: Result<T>, image: &str) {
    match outcome {
        Err(Error::Damaged { reason, .. }) => {
            assert!(reason.contains(&format!("rbd trash restore {image}")), "{reason}");
        }
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn a_volume_that_was_moved_to_the_trash_by_hand_is_not_replaced() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", SIZE);
    let name = record.id.to_string();
    let image = fixture.io().image_id(&name).unwrap().unwrap();
    write(&fixture.image(&record.id), 0, 7, MIB);
    let taken = snapshot(&pool, "s", &record);
    fixture.rbd(&["trash", "mv", &name]);

    assert_refused(pool.catalogue().volume(&record.id), &image);
    assert_refused(create(&pool, &new_volume(&pool, "a", SIZE)), &image);
    assert_refused(pool.provisioner().ensure_no_volume(&record.id), &image);
    // To clone its snapshot is to give it a name.
    let source = ContentSource::Snapshot(taken.id.clone());
    assert_refused(copy_of(&pool, "copy", source, SIZE), &image);
    let (_, findings) = RbdPool::inspect(&fixture.config()).unwrap();
    let found: Vec<_> = findings.iter().map(|one| one.code).collect();
    assert_eq!(found, ["trashed-volume"]);
    let collector = fixture.open_collecting_garbage();
    let other = volume(&collector, "collected", MIB);
    collector.provisioner().ensure_no_volume(&other.id).unwrap();

    // What the message says.
    fixture.rbd(&["trash", "restore", &image]);
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
    assert_eq!(byte_at(&fixture.image(&record.id), 0, MIB), 7);
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), None);
    volume(&pool, "a", SIZE);
}

/// The operator gives it up.
#[test]
fn a_volume_that_was_removed_from_the_trash_by_hand_is_gone() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", SIZE);
    let name = record.id.to_string();
    let image = fixture.io().image_id(&name).unwrap().unwrap();
    fixture.rbd(&["trash", "mv", &name]);
    assert_refused(pool.provisioner().ensure_no_volume(&record.id), &image);
    fixture.rbd(&["trash", "rm", &image]);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    volume(&pool, "a", SIZE);
}
