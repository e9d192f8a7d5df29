//! librbd removes a snapshot in two steps, and a process may be killed between them: the snapshot is
//! in the trash namespace of its image then, without clones.

use orlop_model::{ContentSource, Pool, SnapshotRecord, VolumeRecord};
use orlop_pools::rbd::RbdPool;
use orlop_sys::ceph::{Access, Image, ImageSnapshot, SnapshotNamespace, Update, header_of};

use crate::fixture::{Fixture, MIB, byte_at, copy_of, snapshot, until, volume, write};

/// The first step of a removal of the only snapshot that has a name.
fn move_to_trash_namespace(fixture: &Fixture, image_id: &str) {
    let image = fixture.io().open_image_by_id(image_id, None, Access::ReadOnly);
    let named = in_namespace(&image.unwrap(), SnapshotNamespace::User);
    let [snapshot] = &named[..] else { panic!("one snapshot: {named:?}") };
    let number = snapshot.number.to_le_bytes();
    fixture.io().execute(&header_of(image_id), ("rbd", "snapshot_trash_add"), &number).unwrap();
}

fn in_namespace(image: &Image, namespace: SnapshotNamespace) -> Vec<ImageSnapshot> {
    image.snapshots().unwrap().into_iter().filter(|one| one.namespace == namespace).collect()
}

/// A controller that was killed in a DeleteSnapshot: its record is gone, an intent is there.
fn half_deleted(fixture: &Fixture, source: &VolumeRecord, taken: &SnapshotRecord) {
    let (io, key) = (fixture.io(), taken.id.to_string());
    let image_id = fixture.image(&source.id).id().unwrap();
    let named = in_namespace(&fixture.image(&source.id), SnapshotNamespace::User);
    let intent = format!(r#"{{"image":"{image_id}","until":0}}"#);
    let update = Update::default()
        .remove(&key)
        .set(&format!("pending.{}", named[0].name), intent.as_bytes());
    io.update("orlop.records", &update).unwrap();
    move_to_trash_namespace(fixture, &image_id);
}

fn leaked(fixture: &Fixture, name: &str) -> (VolumeRecord, SnapshotRecord) {
    let pool = fixture.open();
    let source = volume(&pool, name, 8 * MIB);
    write(&fixture.image(&source.id), 0, 1, MIB);
    let taken = snapshot(&pool, name, &source);
    half_deleted(fixture, &source, &taken);
    (source, taken)
}

fn findings(fixture: &Fixture) -> Vec<String> {
    let (_, found) = RbdPool::inspect(&fixture.config()).unwrap();
    found.into_iter().map(|one| format!("{}: {}", one.code, one.problem)).collect()
}

#[test]
fn half_removed_snapshot_goes_with_its_intent() {
    let Some(fixture) = Fixture::new() else { return };
    let (source, _) = leaked(&fixture, "a");
    let _collector = fixture.open_collecting_garbage();
    let intents = || fixture.io().omap_list("orlop.records", "", "pending.", 0).unwrap();
    until("the intent is gone", || intents().is_empty());
    until("so is the snapshot", || fixture.image(&source.id).snapshots().unwrap().is_empty());
}

#[test]
fn half_removed_snapshot_without_an_intent_is_found() {
    let Some(fixture) = Fixture::new() else { return };
    let (source, _) = leaked(&fixture, "a");
    let pool = fixture.open();
    let used = fixture.image(&source.id);
    let image_id = used.id().unwrap();
    // A snapshot that a clone needs is in the trash namespace as well, and stays.
    let copy = copy_of(&pool, "b", ContentSource::Volume(source.id.clone()), 8 * MIB).unwrap();
    let intents = fixture.io().omap_list("orlop.records", "", "pending.", 0).unwrap();
    let update = intents.iter().fold(Update::default(), |update, (key, _)| update.remove(key));
    fixture.io().update("orlop.records", &update).unwrap();
    write(&used, 4 * MIB, 2, MIB);
    let halfway = findings(&fixture);
    assert!(halfway.len() == 1 && halfway[0].contains("halfway"), "{halfway:?}");

    let _collector = fixture.open_collecting_garbage();
    let left = || {
        let image = fixture.io().open_image_by_id(&image_id, None, Access::ReadOnly);
        in_namespace(&image.unwrap(), SnapshotNamespace::Trash).len()
    };
    until("one of two is removed", || left() == 1);
    assert_eq!(findings(&fixture), [""; 0]);
    assert_eq!(byte_at(&fixture.image(&copy.id), 0, MIB), 1);
}

#[test]
fn a_deleted_volume_is_freed_despite_half_removed_snapshots() {
    let Some(fixture) = Fixture::new() else { return };
    let (source, _) = leaked(&fixture, "a");
    let pool = fixture.open();
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    let (key, _) = fixture.io().omap_list("orlop.records", "", "pending.", 1).unwrap().remove(0);
    fixture.io().update("orlop.records", &Update::default().remove(&key)).unwrap();
    let halfway = findings(&fixture);
    assert!(halfway.len() == 1 && halfway[0].contains("halfway"), "{halfway:?}");
    let _collector = fixture.open_collecting_garbage();
    until("all is free", || fixture.is_empty());
}

/// Its daemon was taken for dead, and is only slow. It is killed before it finds that out.
#[test]
fn snapshot_created_after_its_removal_is_removed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "a", 8 * MIB);
    let image = fixture.image(&source.id);
    let taken = snapshot(&pool, "s", &source);
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    let name = format!("{}.0123456789abcdef", taken.id);
    let intent = format!(r#"{{"image":"{}","until":{}}}"#, image.id().unwrap(), u64::MAX);
    let (key, io) = (format!("pending.{name}"), fixture.io());
    io.update("orlop.records", &Update::default().set(&key, intent.as_bytes())).unwrap();
    // A deletion of what is not there: all attempts to make it are given up.
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    assert_ne!(io.omap_get("orlop.records", &key).unwrap(), Some(intent.into_bytes()), "given up");
    image.create_snapshot(&name).unwrap();
    let _collector = fixture.open_collecting_garbage();
    until("it is removed", || image.snapshots().unwrap().is_empty());
    until("so is its intent", || io.omap_get("orlop.records", &key).unwrap().is_none());
}
