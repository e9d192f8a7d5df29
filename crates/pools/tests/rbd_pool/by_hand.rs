//! What operators do to images with `rbd`, and what keeps Orlop from them then.

use orlop_model::{ContentSource, Error, Pool, Remedy};
use orlop_pools::RbdPool;
use orlop_sys::ceph::{Access, IMAGE_LOCK, header_of};

use crate::fixture::{
    Fixture, MIB, byte_at, copy_of, new_snapshot, run, settled, snapshot, until, volume, volume_id,
    write,
};

const SIZE: u64 = 8 * MIB;

fn image_id(fixture: &Fixture, pool: &RbdPool, name: &str) -> String {
    let id = volume_id(pool, name);
    fixture.io().image_id(&id.to_string()).unwrap().unwrap()
}

/// What inspection says of the pool, with what to do.
fn findings(fixture: &Fixture) -> Vec<String> {
    let found = RbdPool::inspect(&fixture.config()).unwrap().1.into_iter();
    found
        .map(|one| {
            let Remedy::ByHand(advice) = &one.remedy else { panic!("{}", one.problem) };
            format!("{}: {}: {}; {advice}", one.code, one.subject, one.problem)
        })
        .collect()
}

/// A controller has tried to free all that is deleted, and freed what it could.
fn collect(fixture: &Fixture, left: usize) {
    let collector = fixture.open_collecting_garbage();
    let other = volume(&collector, "collected", MIB);
    settled(|| collector.provisioner().ensure_no_volume(&other.id));
    let trashed = || fixture.rbd_json(&["trash", "ls"]).as_array().unwrap().len();
    until("garbage is collected", || trashed() == left);
}

#[test]
fn an_image_that_is_locked_by_hand_is_left_alone() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", SIZE);
    let name = record.id.to_string();
    fixture.rbd(&["lock", "add", &name, "maintenance"]);
    let locks = fixture.rbd_json(&["lock", "ls", &name]);
    let (locker, address) =
        (locks[0]["locker"].as_str().unwrap(), locks[0]["address"].as_str().unwrap());
    let taking = pool.provisioner().begin_snapshot(&new_snapshot(&pool, "s", &record)).unwrap();
    for refused in [
        taking.commit().map(drop),
        pool.provisioner().ensure_capacity(&record.id, 2 * SIZE).map(drop),
        pool.provisioner().ensure_reclaimed(&record.id),
        pool.provisioner().ensure_no_volume(&record.id),
    ] {
        let Err(Error::Precondition(reason)) = &refused else { panic!("{refused:?}") };
        let command = format!("rbd lock rm {name} maintenance {locker}");
        assert!(reason.to_string().contains(&command), "{reason}");
    }
    let blocked = run("ceph", &["osd", "blocklist", "ls"]);
    assert!(!blocked.contains(address), "{blocked}");

    fixture.rbd(&["lock", "rm", &name, "maintenance", locker]);
    snapshot(&pool, "s", &record);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
}

#[test]
fn a_lock_by_hand_keeps_no_other_image_from_being_freed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", SIZE);
    let header = header_of(&image_id(&fixture, &pool, "a"));
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    assert!(fixture.io().try_lock(&header, IMAGE_LOCK, "maintenance").unwrap());
    collect(&fixture, 1);
    let found = findings(&fixture);
    let [found] = &found[..] else { panic!("{found:?}") };
    let command = format!("lock break {header} {IMAGE_LOCK} client.");
    assert!(found.contains(&command), "{found}");

    // What the finding says.
    let locks = run(
        "rados",
        &["--pool", "rbd", "--namespace", &fixture.namespace, "lock", "info", &header, IMAGE_LOCK],
    );
    let locks: serde_json::Value = serde_json::from_str(&locks).unwrap();
    let locker = locks["lockers"][0]["name"].as_str().unwrap();
    let breaking = ["lock", "break", &header, IMAGE_LOCK, locker, "--lock-cookie", "maintenance"];
    let place = ["--pool", "rbd", "--namespace", &fixture.namespace];
    run("rados", &[&place[..], &breaking].concat());
    collect(&fixture, 0);
}

#[test]
fn a_deleted_image_in_a_group_of_an_operator_is_reported() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", SIZE);
    let path = |name: &str| format!("rbd/{}/{name}", fixture.namespace);
    run("rbd", &["group", "create", &path("ops")]);
    run("rbd", &["group", "image", "add", &path("ops"), &path(&record.id.to_string())]);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    collect(&fixture, 1);
    let found = findings(&fixture);
    assert!(found.len() == 1 && found[0].contains("the RBD group ops"), "{found:?}");
    run("rbd", &["group", "rm", &path("ops")]);
    collect(&fixture, 0);
}

#[test]
fn a_deleted_image_with_snapshots_of_an_operator_is_reported() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", SIZE);
    let image = fixture.image(&record.id);
    write(&image, 0, 7, MIB);
    image.create_snapshot("nightly").unwrap();
    let id = image.id().unwrap();
    drop(image);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    collect(&fixture, 1);
    let found = findings(&fixture);
    assert!(found.len() == 1 && found[0].contains("nightly"), "{found:?}");
    let old = fixture.io().open_image_by_id(&id, None, Access::ReadOnly).unwrap();
    assert_eq!(byte_at(&old, 0, MIB), 7);
    drop(old);
    // What the finding says.
    fixture.rbd(&["snap", "rm", "--no-progress", "--image-id", &id, "--snap", "nightly"]);
    collect(&fixture, 0);
}

#[test]
fn a_deleted_image_in_a_foreign_group_snapshot_is_reported() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", SIZE);
    let path = |name: &str| format!("rbd/{}/{name}", fixture.namespace);
    run("rbd", &["group", "create", &path("ops")]);
    run("rbd", &["group", "image", "add", &path("ops"), &path(&record.id.to_string())]);
    run("rbd", &["group", "snap", "create", &path("ops@nightly")]);
    run("rbd", &["group", "image", "rm", &path("ops"), &path(&record.id.to_string())]);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    collect(&fixture, 1);
    let found = findings(&fixture);
    assert!(found.len() == 1 && found[0].contains("of the RBD group ops"), "{found:?}");
    // What the finding says.
    run("rbd", &["group", "snap", "rm", &path("ops@nightly")]);
    collect(&fixture, 0);
}

#[test]
fn a_renamed_snapshot_is_not_given_up() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", SIZE);
    write(&fixture.image(&record.id), 0, 7, MIB);
    let taken = snapshot(&pool, "s", &record);
    let own = fixture.image(&record.id).snapshots().unwrap().remove(0).name;
    let full = |name: &str| format!("{}@{name}", record.id);
    fixture.rbd(&["snap", "rename", &full(&own), &full("nightly")]);
    let restore = || copy_of(&pool, "b", ContentSource::Snapshot(taken.id.clone()), SIZE);
    let refused = restore();
    let Err(Error::Damaged { reason, .. }) = &refused else { panic!("{refused:?}") };
    assert!(reason.contains("nightly") && reason.contains("rbd snap rename"), "{reason}");

    fixture.rbd(&["snap", "rename", &full("nightly"), &full(&own)]);
    let back = restore().unwrap();
    assert_eq!(byte_at(&fixture.image(&back.id), 0, MIB), 7);
}

#[test]
fn a_snapshot_that_was_protected_by_hand_is_reported() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", SIZE);
    let taken = snapshot(&pool, "s", &record);
    let image = fixture.image(&record.id);
    let name = image.snapshots().unwrap().remove(0).name;
    let id = image.id().unwrap();
    drop(image);
    fixture.rbd(&["snap", "protect", &format!("{}@{name}", record.id)]);
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    collect(&fixture, 1);
    let found = findings(&fixture);
    let said = found.len() == 1 && found[0].contains(&name) && found[0].contains("protected");
    assert!(said, "{found:?}");
    fixture.rbd(&["snap", "unprotect", "--image-id", &id, "--snap", &name]);
    collect(&fixture, 0);
}
