use orlop_model::{ContentSource, Error, NewVolume, Pool};
use orlop_sys::ceph::Update;

use crate::bed::{Bed, MIB, byte_at, copy_of, new_volume, until, volume, write};

#[test]
fn a_copy_of_a_volume_is_of_the_instant_of_its_cut_and_stands_alone() {
    let Some(bed) = Bed::new() else { return };
    let pool = bed.open_with_housekeeping();
    let source = volume(&pool, "a", 16 * MIB);
    let image = bed.image(&source.id);
    write(&image, 0, 1, MIB);
    let new = NewVolume {
        source: Some(ContentSource::Volume(source.id.clone())),
        ..new_volume(&pool, "b", 24 * MIB)
    };
    let mut draft = pool.provisioner().begin_volume(&new).unwrap();
    draft.capture().unwrap();
    write(&image, 0, 2, MIB);
    let copy = draft.commit().unwrap();
    assert_eq!(pool.catalogue().volume(&copy.id).unwrap(), Some(copy.clone()));
    assert_eq!(byte_at(&bed.image(&copy.id), 0, MIB), 1);
    assert_eq!(bed.image(&copy.id).size().unwrap(), 24 * MIB);
    // librbd gave it the metadata of its source.
    let metadata = bed.told(&["image-meta", "list", &copy.id.to_string()]);
    assert_eq!(metadata.as_object().unwrap().len(), 1, "{metadata}");

    drop(image);
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    assert_eq!(byte_at(&bed.image(&copy.id), 0, MIB), 1);
    pool.provisioner().ensure_no_volume(&copy.id).unwrap();
    until("all is free", || bed.is_empty());
}

#[test]
fn a_dropped_copy_leaves_its_source_as_it_was() {
    let Some(bed) = Bed::new() else { return };
    let pool = bed.open();
    let source = volume(&pool, "a", 16 * MIB);
    let from = ContentSource::Volume(source.id.clone());
    let new = NewVolume { source: Some(from), ..new_volume(&pool, "b", 16 * MIB) };
    let mut draft = pool.provisioner().begin_volume(&new).unwrap();
    draft.capture().unwrap();
    assert_eq!(bed.image(&source.id).snapshots().unwrap().len(), 1);
    drop(draft);
    assert_eq!(bed.image(&source.id).snapshots().unwrap(), []);
    assert_eq!(bed.image_names(), [source.id.to_string()]);
}

#[test]
fn copies_of_copies_are_flattened_before_they_are_too_deep() {
    let Some(bed) = Bed::new() else { return };
    let pool = bed.open_with_housekeeping();
    let mut last = volume(&pool, "0", 8 * MIB);
    write(&bed.image(&last.id), 0, 9, MIB);
    let mut all = vec![last.clone()];
    for depth in 1..=5 {
        let from = ContentSource::Volume(last.id.clone());
        last = copy_of(&pool, &depth.to_string(), from, 8 * MIB).unwrap();
        all.push(last.clone());
    }
    assert!(bed.image(&all[4].id).parent().unwrap().is_some(), "a few levels are left alone");
    until("the deepest is flat", || bed.image(&last.id).parent().unwrap().is_none());
    assert_eq!(byte_at(&bed.image(&last.id), 0, MIB), 9);
    for record in all {
        pool.provisioner().ensure_no_volume(&record.id).unwrap();
    }
    until("all is free", || bed.is_empty());
}

/// Whoever flattens it has it open. That is no user: it is done some time, and is to be waited for.
#[test]
fn what_is_being_flattened_is_busy_and_can_be_deleted_afterwards() {
    let Some(bed) = Bed::new() else { return };
    let pool = bed.open();
    let record = volume(&pool, "a", 8 * MIB);
    let (io, note) = (bed.io(), format!("flatten.{}", record.id));
    io.ensure_object("orlop.records").unwrap();
    io.update("orlop.records", &Update::default().set(&note, b"1")).unwrap();
    let flattening = bed.image(&record.id);
    let refused = pool.provisioner().ensure_no_volume(&record.id);
    assert!(matches!(refused, Err(Error::Busy(_))), "{refused:?}");
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
    flattening.flatten().unwrap();
    drop(flattening);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), None);

    // The note that is left does no harm, and goes with the next look at it.
    let pool = bed.open_with_housekeeping();
    until("all is free", || bed.is_empty());
    until("the note is gone", || io.omap_get("orlop.records", &note).unwrap().is_none());
    drop(pool);
}
