//! What a process that was killed leaves behind, laid out as it would lie there.

use orlop_model::{ContentSource, Error, Pool, VolumeId};
use orlop_sys::ceph::{NewImage, Update};

use crate::fixture::{
    Fixture, MIB, byte_at, copy_of, create, new_volume, snapshot, until, volume, volume_id, write,
};
use crate::groups::{group, rbd_groups};

#[test]
fn draft_of_a_dead_process_does_not_block_create() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    let id = volume_id(&pool, "a");
    let io = fixture.io();
    // Killed after the image was made, with another size.
    io.create_image(&id.to_string(), NewImage::Zeroes { size: 64 * MIB }).unwrap();
    let record = volume(&pool, "a", 8 * MIB);
    assert_eq!(fixture.image(&id).size().unwrap(), 8 * MIB);
    assert_eq!(pool.catalogue().volume(&id).unwrap(), Some(record));
    until("the draft is freed", || fixture.trash_is_empty());
    // One that was given up for good goes when the volume is deleted.
    let given_up = volume_id(&pool, "b");
    io.create_image(&given_up.to_string(), NewImage::Zeroes { size: MIB }).unwrap();
    pool.provisioner().ensure_no_volume(&given_up).unwrap();
    pool.provisioner().ensure_no_volume(&id).unwrap();
    until("all is free", || fixture.is_empty());
}

/// A volume that an operator migrated, or restored from a backup under its name: the only copy.
#[test]
fn an_image_with_data_and_without_a_record_is_kept() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    let (backed_up, other) = (volume(&pool, "a", 8 * MIB), volume(&pool, "b", 8 * MIB));
    let id = backed_up.id.clone();
    write(&fixture.image(&id), MIB, 7, 64 * 1024);
    let name = |id: &VolumeId| format!("rbd/{}/{id}", fixture.namespace);
    let copy = format!("rbd/{}/backup", fixture.namespace);
    fixture.rbd(&["cp", &name(&id), &copy]);
    pool.provisioner().ensure_no_volume(&id).unwrap();
    fixture.rbd(&["mv", &copy, &name(&id)]);
    for refused in [
        pool.provisioner().ensure_no_volume(&id),
        create(&pool, &new_volume(&pool, "a", 8 * MIB)).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    }
    assert_eq!(byte_at(&fixture.image(&id), MIB, 64 * 1024), 7);
    fixture.rbd(&["rm", &name(&id)]);
    let again = volume(&pool, "a", 8 * MIB);
    for volume in [again, other] {
        pool.provisioner().ensure_no_volume(&volume.id).unwrap();
    }
    until("all is free", || fixture.is_empty());
}

#[test]
fn name_without_an_image_does_not_block_create() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let id = volume_id(&pool, "a");
    let name = id.to_string();
    fixture.io().create_image(&name, NewImage::Zeroes { size: MIB }).unwrap();
    let image_id = fixture.io().image_id(&name).unwrap().unwrap();
    // Killed within rbd_create: the name is taken, the image is not there yet.
    for later in ["rbd_header", "rbd_object_map"] {
        fixture.remove_object(&format!("{later}.{image_id}"));
    }
    assert_eq!(pool.catalogue().volume(&id).unwrap(), None);
    let record = volume(&pool, "a", 8 * MIB);
    assert_eq!(pool.catalogue().volumes(None, 0).unwrap(), [(id.clone(), Ok(record))]);
    assert_ne!(fixture.io().image_id(&name).unwrap(), Some(image_id));
    assert_eq!(fixture.image_names(), [name]);
}

#[test]
fn interrupted_delete_is_resumed() {
    let Some(fixture) = Fixture::new() else { return };
    let id = {
        let pool = fixture.open();
        let record = volume(&pool, "a", 8 * MIB);
        let image = fixture.image(&record.id);
        write(&image, 0, 5, MIB);
        // Killed after the mark.
        image.set_metadata(&format!("orlop.record.{}", image.id().unwrap()), "-").unwrap();
        record.id
    };
    let pool = fixture.open();
    assert_eq!(pool.catalogue().volume(&id).unwrap(), None);
    assert_eq!(pool.catalogue().volumes(None, 0).unwrap(), []);
    let namesake = volume(&pool, "a", 8 * MIB);
    assert_eq!(byte_at(&fixture.image(&namesake.id), 0, 8 * MIB), 0);
    pool.provisioner().ensure_no_volume(&namesake.id).unwrap();
    // Nothing was freed yet.
    assert!(!fixture.trash_is_empty());
    let _collector = fixture.open_collecting_garbage();
    until("all is free", || fixture.is_empty());
}

#[test]
fn foreign_trash_is_not_freed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    let record = volume(&pool, "a", 8 * MIB);
    write(&fixture.image(&record.id), 0, 5, MIB);
    let image_id = fixture.io().image_id(&record.id.to_string()).unwrap().unwrap();
    fixture.rbd(&["trash", "mv", &record.id.to_string()]);
    pool.catalogue().volume(&record.id).unwrap_err();
    // Something that is freed, so that garbage collection has been there.
    let other = volume(&pool, "b", MIB);
    pool.provisioner().ensure_no_volume(&other.id).unwrap();
    until("the other is free", || {
        fixture.rbd_json(&["trash", "ls"]).as_array().unwrap().len() == 1
    });
    fixture.rbd(&["trash", "restore", &image_id]);
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
    assert_eq!(byte_at(&fixture.image(&record.id), 0, MIB), 5);
}

#[test]
fn expired_uncommitted_snapshot_is_removed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", 8 * MIB);
    let image = fixture.image(&record.id);
    let image_id = image.id().unwrap();
    let intent = |until: u64| format!(r#"{{"image":"{image_id}","until":{until}}}"#);
    for (name, until) in [("s-old.1", 0), ("s-young.2", u64::MAX)] {
        image.create_snapshot(name).unwrap();
        let update = Update::default().set(&format!("pending.{name}"), intent(until).as_bytes());
        fixture.io().update("orlop.records", &update).unwrap();
    }
    let _collector = fixture.open_collecting_garbage();
    until("the old one is gone", || image.snapshots().unwrap().len() == 1);
    assert_eq!(image.snapshots().unwrap()[0].name, "s-young.2");
}

/// As a backup has them that was made while the snapshots were taken.
#[test]
fn restored_intents_remove_no_recorded_snapshot() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", 8 * MIB);
    let image = fixture.image(&record.id);
    let image_id = image.id().unwrap();
    snapshot(&pool, "s", &record);
    let name = image.snapshots().unwrap().remove(0).name;
    let taken = group(&pool, "g", &[&record]);
    let groups = rbd_groups(&fixture);
    let group_name = groups[0].strip_prefix("orlop-cut.").unwrap();
    let update = Update::default()
        .set(
            &format!("pending.{name}"),
            format!(r#"{{"image":"{image_id}","until":0}}"#).as_bytes(),
        )
        .set(
            &format!("pending-group.{group_name}"),
            format!(r#"{{"images":["{image_id}"],"until":0}}"#).as_bytes(),
        );
    fixture.io().update("orlop.records", &update).unwrap();
    let collector = fixture.open_collecting_garbage();
    let intents = || fixture.io().omap_list("orlop.records", "", "pending", 0).unwrap();
    until("the intents are gone", || intents().is_empty());
    assert_eq!(fixture.image(&record.id).snapshots().unwrap().len(), 2);
    assert_eq!(rbd_groups(&fixture), groups);
    collector.provisioner().ensure_no_group_snapshot(&taken.id).unwrap();
    until("it is deleted when asked", || rbd_groups(&fixture).is_empty());
}

#[test]
fn retained_image_is_freed_with_its_last_snapshot() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "a", 8 * MIB);
    let kept = snapshot(&pool, "s", &source);
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    let from = ContentSource::Snapshot(kept.id.clone());
    let copy = copy_of(&pool, "b", from, 8 * MIB).unwrap();
    let names = fixture.image_names();
    assert!(names.iter().any(|name| name.starts_with("orlop-kept.")), "{names:?}");
    pool.provisioner().ensure_no_volume(&copy.id).unwrap();
    let collector = fixture.open_collecting_garbage();
    until("the copy is free", || fixture.image_names().len() == 1 && fixture.trash_is_empty());
    assert_eq!(collector.catalogue().snapshots(None, 0).unwrap(), std::slice::from_ref(&kept));
    collector.provisioner().ensure_no_snapshot(&kept.id).unwrap();
    until("all is free", || fixture.is_empty());
}

/// Every image would have to be looked at.
#[test]
fn a_deletion_does_not_search_the_whole_pool_for_orphans() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    let delete_one = |name| {
        pool.provisioner().ensure_no_volume(&volume(&pool, name, MIB).id).unwrap();
        until("it is freed", || fixture.trash_is_empty());
    };
    delete_one("first");
    // The search at the start is over. Killed after the mark.
    let record = volume(&pool, "a", MIB);
    let image = fixture.image(&record.id);
    image.set_metadata(&format!("orlop.record.{}", image.id().unwrap()), "-").unwrap();
    drop(image);
    delete_one("second");
    assert_eq!(fixture.image_names(), [record.id.to_string()]);
    let _collector = fixture.open_collecting_garbage();
    until("all is free", || fixture.is_empty());
}
