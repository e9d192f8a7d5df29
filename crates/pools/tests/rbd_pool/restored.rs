//! Images with the name of a volume that no interrupted creation has left: restored from a backup,
//! migrated, or cloned by an operator. Each may be the only copy of its data.

use orlop_model::{ContentSource, Error, Pool, Result, VolumeId, VolumeRecord};
use orlop_pools::RbdPool;
use orlop_sys::ceph::{Access, NewImage, SnapshotRef, Update, header_of};

use crate::fixture::{
    Fixture, MIB, byte_at, copy_of, create, new_volume, run, snapshot, until, volume, volume_id,
    write,
};

const SIZE: u64 = 8 * MIB;
/// Of unprotected snapshots, as Orlop makes them.
const CLONES_LIKE_ORLOP: [&str; 2] = ["--rbd-default-clone-format", "2"];

/// As if it had been made two hours ago.
fn age(fixture: &Fixture, id: &VolumeId) {
    let image = fixture.io().image_id(&id.to_string()).unwrap().unwrap();
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    let then = then.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mut time = u32::try_from(then).unwrap().to_le_bytes().to_vec();
    time.extend_from_slice(&[0; 4]);
    let update = Update::default().set("create_timestamp", &time);
    fixture.io().update(&header_of(&image), &update).unwrap();
}

/// A daemon has looked for orphans, and freed what it takes for one.
fn collect(fixture: &Fixture) {
    let collector = fixture.open_collecting_garbage();
    let other = volume(&collector, "collected", MIB);
    collector.provisioner().ensure_no_volume(&other.id).unwrap();
    let name = other.id.to_string();
    let trashed = || fixture.rbd_json(&["trash", "ls"]).to_string();
    until("garbage is collected", || !trashed().contains(&name));
}

fn path(fixture: &Fixture, image: &str) -> String {
    format!("rbd/{}/{image}", fixture.namespace)
}

/// With its snapshots, its metadata and its parent.
fn copied(fixture: &Fixture, from: &str, to: &str) {
    let (from, to) = (path(fixture, from), path(fixture, to));
    fixture.rbd(&[&["deep", "cp", &from, &to][..], &CLONES_LIKE_ORLOP].concat());
}

/// In place: a step that is given no target takes the namespace for none.
fn migration(fixture: &Fixture, step: &str, name: &str) {
    let (image, quiet) = (path(fixture, name), "--no-progress");
    let arguments = match step {
        "prepare" => vec!["migration", step, &image, &image],
        _ => vec!["migration", step, &image, quiet],
    };
    run("rbd", &[&arguments[..], &CLONES_LIKE_ORLOP].concat());
}

fn assert_damaged(outcome: Result<()>, because: &str) {
    match outcome {
        Err(Error::Damaged { reason, .. }) => assert!(reason.contains(because), "{reason}"),
        outcome => panic!("{because}: {outcome:?}"),
    }
}

/// Neither a call nor garbage collection takes it for a draft, and inspection says what it is.
fn assert_kept(fixture: &Fixture, pool: &RbdPool, name: &str, because: &str) {
    let id = volume_id(pool, name);
    let image = fixture.io().image_id(&id.to_string()).unwrap();
    assert_damaged(create(pool, &new_volume(pool, name, SIZE)).map(drop), because);
    assert_damaged(pool.provisioner().ensure_no_volume(&id), because);
    age(fixture, &id);
    collect(fixture);
    assert_eq!(fixture.io().image_id(&id.to_string()).unwrap(), image);
    let (_, findings) = RbdPool::inspect(&fixture.config()).unwrap();
    let found: Vec<_> = findings.iter().map(|one| (one.code, &one.problem)).collect();
    let [("unrecorded-image", problem)] = &found[..] else { panic!("{found:?}") };
    assert!(problem.contains(because), "{problem}");
}

/// A copy of a snapshot, which has no data except by its parent.
fn clone_with_data(pool: &RbdPool, fixture: &Fixture, name: &str) -> (VolumeRecord, VolumeRecord) {
    let source = volume(pool, &format!("source of {name}"), SIZE);
    write(&fixture.image(&source.id), 0, 7, MIB);
    let taken = snapshot(pool, &format!("source of {name}"), &source);
    let copy = copy_of(pool, name, ContentSource::Snapshot(taken.id.clone()), SIZE).unwrap();
    (source, copy)
}

#[test]
fn a_restored_clone_is_kept_and_can_be_made_a_volume_again() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let (source, record) = clone_with_data(&pool, &fixture, "a");
    let name = record.id.to_string();
    let old = fixture.io().image_id(&name).unwrap().unwrap();
    copied(&fixture, &name, "backup");
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    fixture.rbd(&["mv", &path(&fixture, "backup"), &path(&fixture, &name)]);
    // From here on the restored image is the only one with the data.
    for taken in pool.catalogue().snapshots(None, 0).unwrap() {
        pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    }
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    assert_kept(&fixture, &pool, "a", &format!("orlop.record.{old}"));
    assert_eq!(byte_at(&fixture.image(&record.id), 0, MIB), 7);

    // What the message says.
    let new = fixture.io().image_id(&name).unwrap().unwrap();
    let text = fixture.rbd(&["image-meta", "get", &name, &format!("orlop.record.{old}")]);
    fixture.rbd(&["image-meta", "set", &name, &format!("orlop.record.{new}"), text.trim()]);
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    let _collector = fixture.open_collecting_garbage();
    until("all is free", || fixture.is_empty());
}

#[test]
fn a_restored_clone_under_another_name_is_kept() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let (_, record) = clone_with_data(&pool, &fixture, "a");
    let other = volume_id(&pool, "b").to_string();
    let old = fixture.image(&record.id).id().unwrap();
    copied(&fixture, &record.id.to_string(), &other);
    assert_kept(&fixture, &pool, "b", &format!("orlop.record.{old}"));
}

#[test]
fn a_migrating_image_is_kept_and_comes_back() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", SIZE);
    write(&fixture.image(&record.id), 0, 7, MIB);
    let name = record.id.to_string();
    migration(&fixture, "prepare", &name);
    assert_kept(&fixture, &pool, "a", "rbd migration");
    migration(&fixture, "abort", &name);
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
    assert_eq!(byte_at(&fixture.image(&record.id), 0, MIB), 7);
}

#[test]
fn a_migrated_clone_is_kept() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let (source, record) = clone_with_data(&pool, &fixture, "a");
    let name = record.id.to_string();
    let old = fixture.io().image_id(&name).unwrap().unwrap();
    for step in ["prepare", "execute", "commit"] {
        migration(&fixture, step, &name);
    }
    for taken in pool.catalogue().snapshots(None, 0).unwrap() {
        pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    }
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    assert_kept(&fixture, &pool, "a", &format!("orlop.record.{old}"));
    assert_eq!(byte_at(&fixture.image(&record.id), 0, MIB), 7);
}

#[test]
fn a_clone_made_by_hand_is_kept() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "source", SIZE);
    let image = fixture.image(&source.id);
    write(&image, 0, 7, MIB);
    image.create_snapshot("nightly").unwrap();
    let parent = source.id.to_string();
    let of = NewImage::CloneOf { image: &parent, snapshot: SnapshotRef::Name("nightly") };
    fixture.io().create_image(&volume_id(&pool, "a").to_string(), of).unwrap();
    drop(image);
    assert_kept(&fixture, &pool, "a", "its parent");
}

#[test]
fn an_image_with_snapshots_is_no_draft() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let id = volume_id(&pool, "a");
    fixture.io().create_image(&id.to_string(), NewImage::Zeroes { size: SIZE }).unwrap();
    fixture.image(&id).create_snapshot("nightly").unwrap();
    assert_kept(&fixture, &pool, "a", "snapshots");
}

/// A client that has it open may be making it, or may be a workload of an operator's.
#[test]
fn a_draft_that_a_client_has_open_is_left_alone() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let id = volume_id(&pool, "a");
    let io = fixture.io();
    io.create_image(&id.to_string(), NewImage::Zeroes { size: SIZE }).unwrap();
    let used = io.open_image(&id.to_string(), Access::ReadWrite).unwrap();
    for refused in [
        pool.provisioner().ensure_no_volume(&id),
        create(&pool, &new_volume(&pool, "a", SIZE)).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    }
    age(&fixture, &id);
    collect(&fixture);
    assert_eq!(fixture.image_names(), [id.to_string()]);
    drop(used);
    collect(&fixture);
    assert!(fixture.is_empty());
}

/// Interrupted after its source was gone: its parent is a snapshot that was made for it alone.
#[test]
fn an_interrupted_copy_is_removed_also_after_its_intent() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "source", SIZE);
    let image = fixture.image(&source.id);
    write(&image, 0, 7, MIB);
    let id = volume_id(&pool, "a");
    let name = format!("copy-{id}.0123456789abcdef");
    image.create_snapshot(&name).unwrap();
    let parent = source.id.to_string();
    let of = NewImage::CloneOf { image: &parent, snapshot: SnapshotRef::Name(&name) };
    fixture.io().create_image(&id.to_string(), of).unwrap();
    assert!(image.ensure_no_snapshot(&name).unwrap());
    drop(image);
    age(&fixture, &id);
    collect(&fixture);
    assert_eq!(fixture.image_names(), [parent]);
}

/// Its data is there, and nothing says what it was.
#[test]
fn an_image_whose_header_is_lost_is_kept() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    for with_object_map in [true, false] {
        let name = format!("object map: {with_object_map}");
        let record = volume(&pool, &name, SIZE);
        let image = fixture.image(&record.id);
        write(&image, 0, 7, MIB);
        let image_id = image.id().unwrap();
        drop(image);
        fixture.remove_object(&header_of(&image_id));
        if !with_object_map {
            fixture.remove_object(&format!("rbd_object_map.{image_id}"));
        }
        let lost = format!("rbd_header.{image_id}");
        assert_damaged(create(&pool, &new_volume(&pool, &name, SIZE)).map(drop), &lost);
        assert_damaged(pool.provisioner().ensure_no_volume(&record.id), &lost);
        collect(&fixture);
        assert_eq!(fixture.image_names(), [record.id.to_string()]);
        let (_, findings) = RbdPool::inspect(&fixture.config()).unwrap();
        assert!(findings.len() == 1 && findings[0].problem.contains(&lost));

        // What the message says.
        fixture.rbd(&["rm", "--no-progress", &record.id.to_string()]);
        let again = volume(&pool, &name, SIZE);
        assert_eq!(byte_at(&fixture.image(&again.id), 0, SIZE), 0);
        pool.provisioner().ensure_no_volume(&again.id).unwrap();
    }
}
