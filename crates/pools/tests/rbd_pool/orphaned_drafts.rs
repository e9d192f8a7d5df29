//! What librbd leaves when its process is killed between two of its steps: every such state, laid
//! out by hand, and some by really killing.

use std::process::Command;
use std::sync::Arc;

use orlop_model::{ContentSource, Pool, VolumeId};
use orlop_sys::ceph::{Access, IMAGE_LOCK, IoCtx, LockHolder, NewImage, Update, header_of};

use crate::fixture::{
    Fixture, MIB, cluster, copy_of, create, new_volume, settled, snapshot, until, volume,
    volume_id, write,
};

/// In the order in which librbd makes the parts of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Entry,
    Name,
    Header,
    ObjectMap,
}

/// As Ceph calls the state of an entry of the trash.
const RESTORING: u8 = 3;
const PARTS: [Part; 4] = [Part::Entry, Part::Name, Part::Header, Part::ObjectMap];

/// Makes an image and takes away all but these parts.
fn lay_out(fixture: &Fixture, id: &VolumeId, parts: &[Part]) -> String {
    let (io, name) = (fixture.io(), id.to_string());
    io.create_image(&name, NewImage::Zeroes { size: 64 * MIB }).unwrap();
    let image = io.image_id(&name).unwrap().unwrap();
    for part in PARTS.into_iter().filter(|part| !parts.contains(part)) {
        match part {
            Part::Entry => {
                let keys = [format!("name_{name}"), format!("id_{image}")];
                let update = keys.iter().fold(Update::default(), |update, key| update.remove(key));
                io.update("rbd_directory", &update).unwrap();
            }
            Part::Name => fixture.remove_object(&format!("rbd_id.{name}")),
            Part::Header => fixture.remove_object(&format!("rbd_header.{image}")),
            Part::ObjectMap => fixture.remove_object(&format!("rbd_object_map.{image}")),
        }
    }
    image
}

/// What a killed process may leave, in one attempt or after a race with another.
fn states() -> Vec<Vec<Part>> {
    let in_order = (1..=PARTS.len()).map(|made| PARTS[..made].to_vec());
    let without_entry = (2..=PARTS.len()).map(|made| PARTS[1..made].to_vec());
    let overtaken =
        [vec![Part::Entry, Part::Header], vec![Part::Entry, Part::Header, Part::ObjectMap]];
    in_order.chain(without_entry).chain(overtaken).collect()
}

/// Nothing may be left of images but what keeps one that was never made from being made late.
fn assert_nothing_left(fixture: &Fixture, before: &[String]) {
    let rest = || {
        let all = fixture.objects_and_entries();
        all.into_iter().filter(|one| !before.contains(one)).collect::<Vec<_>>()
    };
    until("nothing is left", || rest().iter().all(|one| fixture.is_prevention(one)));
}

#[test]
fn create_replaces_any_draft_of_a_killed_daemon() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    let first = volume(&pool, "first", MIB);
    pool.provisioner().ensure_no_volume(&first.id).unwrap();
    until("the first is gone", || fixture.is_empty());
    let before = fixture.objects_and_entries();
    for (number, parts) in states().into_iter().enumerate() {
        let name = format!("v{number}");
        let id = volume_id(&pool, &name);
        lay_out(&fixture, &id, &parts);
        assert_eq!(pool.catalogue().volume(&id).unwrap(), None, "{parts:?}");
        let record = create(&pool, &new_volume(&pool, &name, 8 * MIB))
            .unwrap_or_else(|error| panic!("{parts:?}: {error}"));
        assert_eq!(fixture.image(&id).size().unwrap(), 8 * MIB, "{parts:?}");
        assert_eq!(
            pool.catalogue().volumes(None, 0).unwrap(),
            [(id.clone(), Ok(record))],
            "{parts:?}"
        );
        pool.provisioner().ensure_no_volume(&id).unwrap();
        assert_eq!(fixture.image_names(), [""; 0], "{parts:?}");
    }
    assert_nothing_left(&fixture, &before);
}

#[test]
fn delete_removes_any_draft_of_a_killed_daemon() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    let first = volume(&pool, "first", MIB);
    pool.provisioner().ensure_no_volume(&first.id).unwrap();
    until("the first is gone", || fixture.is_empty());
    let before = fixture.objects_and_entries();
    for (number, parts) in states().into_iter().enumerate() {
        let id = volume_id(&pool, &format!("v{number}"));
        lay_out(&fixture, &id, &parts);
        pool.provisioner()
            .ensure_no_volume(&id)
            .unwrap_or_else(|error| panic!("{parts:?}: {error}"));
        let name = id.to_string();
        assert_eq!(fixture.io().image_id(&name).unwrap(), None, "{parts:?}");
        assert_eq!(fixture.io().directory_entry(&name).unwrap(), None, "{parts:?}");
    }
    assert_nothing_left(&fixture, &before);
}

/// Two makers: what one left is under the name, what the other left in the directory.
#[test]
fn name_and_directory_entry_of_two_drafts_are_removed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    for name in ["made", "deleted"] {
        let id = volume_id(&pool, name);
        let text = id.to_string();
        lay_out(&fixture, &id, &[Part::Name]);
        assert!(fixture.io().ensure_directory_entry(&text, "f00d").unwrap());
        if name == "made" {
            volume(&pool, name, MIB);
            assert_eq!(
                fixture.io().directory_entry(&text).unwrap(),
                fixture.io().image_id(&text).unwrap()
            );
        }
        pool.provisioner().ensure_no_volume(&id).unwrap();
        assert_eq!(fixture.io().directory_entry(&text).unwrap(), None);
        assert_eq!(fixture.io().image_id(&text).unwrap(), None);
    }
}

/// After a lost race, librbd's cleanup removes the name even if another image has it by then.
#[test]
fn lost_name_object_is_restored() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", MIB);
    let name = record.id.to_string();
    let image = fixture.io().image_id(&name).unwrap();
    fixture.remove_object(&format!("rbd_id.{name}"));
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record));
    assert_eq!(fixture.io().image_id(&name).unwrap(), image);
    fixture.io().open_image(&name, Access::ReadOnly).unwrap();
}

/// No call names the volume again.
#[test]
fn orphaned_name_is_garbage_collected() {
    let Some(fixture) = Fixture::new() else { return };
    let id = volume_id(&fixture.open(), "a");
    lay_out(&fixture, &id, &[Part::Entry]);
    let _collector = fixture.open_collecting_garbage();
    until("the entry is gone", || fixture.io().directory_entry(&id.to_string()).unwrap().is_none());
}

#[test]
fn creation_is_blocked_after_delete_only_for_a_while() {
    let Some(fixture) = Fixture::new() else { return };
    let image = {
        let pool = fixture.open();
        let id = volume_id(&pool, "a");
        let image = lay_out(&fixture, &id, &[Part::Entry, Part::Name]);
        pool.provisioner().ensure_no_volume(&id).unwrap();
        image
    };
    let other = {
        let collector = fixture.open_collecting_garbage();
        let other = volume(&collector, "b", MIB);
        collector.provisioner().ensure_no_volume(&other.id).unwrap();
        until("the other is freed", || {
            fixture.rbd_json(&["trash", "ls"]).as_array().unwrap().len() == 1
        });
        other
    };
    assert!(fixture.objects().contains(&format!("rbd_header.{image}")), "after {}", other.id);
    fixture.age_trash_entry(&image);
    let _collector = fixture.open_collecting_garbage();
    until("all is gone", || fixture.trash_is_empty());
    let rest: Vec<_> = fixture.objects().into_iter().filter(|one| one.contains(&image)).collect();
    assert_eq!(rest, [""; 0]);
}

/// Killed within rbd_trash_remove, when only the entry and the object map were left.
#[test]
fn partly_freed_image_is_removed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", 8 * MIB);
    let image = fixture.io().image_id(&record.id.to_string()).unwrap().unwrap();
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    fixture.remove_object(&format!("rbd_header.{image}"));
    let _collector = fixture.open_collecting_garbage();
    until("all is gone", || fixture.trash_is_empty());
    let rest: Vec<_> = fixture.objects().into_iter().filter(|one| one.contains(&image)).collect();
    assert_eq!(rest, [""; 0]);
}

/// Killed within rbd_clone, when the clone knew its parent and the parent not yet its clone: nothing
/// kept the parent from being freed. A clone without its parent cannot be opened.
#[test]
fn clone_unknown_to_its_parent_is_freed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "source", 8 * MIB);
    let clone = copy_of(&pool, "clone", ContentSource::Volume(source.id.clone()), 8 * MIB).unwrap();
    let (io, image_of) =
        (fixture.io(), |id: &VolumeId| fixture.io().image_id(&id.to_string()).unwrap().unwrap());
    let (parent, header) = (image_of(&source.id), header_of(&image_of(&clone.id)));
    let missing = "f".repeat(parent.len());
    let named = io.omap_get(&header, "parent").unwrap().unwrap();
    let at = named.windows(parent.len()).position(|part| part == parent.as_bytes()).unwrap();
    let other = [&named[..at], missing.as_bytes(), &named[at + parent.len()..]].concat();
    let id = volume_id(&pool, "orphan");
    let orphan = lay_out(&fixture, &id, &PARTS);
    let mut update = Update::default().set("parent", &other);
    for key in ["features", "op_features"] {
        update = update.set(key, &io.omap_get(&header, key).unwrap().unwrap());
    }
    io.update(&header_of(&orphan), &update).unwrap();
    let error = io.open_image_by_id(&orphan, None, Access::ReadOnly).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    pool.provisioner().ensure_no_volume(&id).unwrap();
    let _collector = fixture.open_collecting_garbage();
    let rest = || fixture.objects().into_iter().filter(|one| one.contains(&orphan)).count();
    until("nothing is left of it", || fixture.trash_is_empty() && rest() == 0);
}

/// Killed within rbd_trash_restore, before and after the image had a name.
#[test]
fn image_caught_in_restore_can_be_copied_and_freed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    for named in [false, true] {
        let name = format!("source, named: {named}");
        let source = volume(&pool, &name, 8 * MIB);
        let kept = snapshot(&pool, &name, &source);
        let image = fixture.io().image_id(&source.id.to_string()).unwrap().unwrap();
        pool.provisioner().ensure_no_volume(&source.id).unwrap();
        fixture.set_trash_state(&image, RESTORING);
        if named {
            fixture.io().ensure_id_object(&format!("orlop-kept.{image}"), &image).unwrap();
            assert!(
                fixture
                    .io()
                    .ensure_directory_entry(&format!("orlop-kept.{image}"), &image)
                    .unwrap()
            );
        }
        let from = ContentSource::Snapshot(kept.id.clone());
        let copy = copy_of(&pool, &format!("copy, named: {named}"), from, 8 * MIB).unwrap();
        pool.provisioner().ensure_no_volume(&copy.id).unwrap();
        pool.provisioner().ensure_no_snapshot(&kept.id).unwrap();
    }
    let _collector = fixture.open_collecting_garbage();
    until("all is free", || fixture.is_empty());
}

/// Named like an image that is kept for its snapshots, but it was never deleted.
#[test]
fn foreign_image_with_an_orlop_name_is_kept() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    fixture.io().create_image("orlop-kept.mine", NewImage::Zeroes { size: MIB }).unwrap();
    let other = volume(&pool, "b", MIB);
    pool.provisioner().ensure_no_volume(&other.id).unwrap();
    until("the other is freed", || fixture.trash_is_empty());
    assert_eq!(fixture.image_names(), ["orlop-kept.mine"]);
}

/// A process that makes an image, killed as soon as there is something of it.
fn kill_a_maker(fixture: &Fixture, id: &VolumeId, there: impl Fn(&IoCtx, &str) -> bool) {
    let (io, name) = (fixture.io(), id.to_string());
    let image = format!("rbd/{}/{name}", fixture.namespace);
    let create = ["create", "--size", "64M", &image];
    let conf = cluster().join("ceph.conf");
    let mut maker = Command::new("rbd").arg("--conf").arg(conf).args(create).spawn().unwrap();
    while !there(&io, &name) && maker.try_wait().unwrap().is_none() {}
    maker.kill().unwrap();
    maker.wait().unwrap();
}

#[test]
fn creators_may_be_killed_at_any_moment() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    let moments: [fn(&IoCtx, &str) -> bool; 3] = [
        |io, name| io.directory_entry(name).unwrap().is_some(),
        |io, name| io.image_id(name).unwrap().is_some(),
        |io, name| match io.image_id(name).unwrap() {
            Some(image) => io.read(&header_of(&image)).is_ok(),
            None => false,
        },
    ];
    for round in 0..24 {
        let name = format!("v{round}");
        let id = volume_id(&pool, &name);
        kill_a_maker(&fixture, &id, moments[round % moments.len()]);
        let new = new_volume(&pool, &name, 8 * MIB);
        let record = settled(|| create(&pool, &new));
        assert_eq!(fixture.image(&id).size().unwrap(), 8 * MIB);
        assert_eq!(pool.catalogue().volumes(None, 0).unwrap(), [(id.clone(), Ok(record))]);
        settled(|| pool.provisioner().ensure_no_volume(&id));
        assert_eq!(fixture.image_names(), [""; 0]);
    }
}

/// Otherwise a controller would blocklist any client that holds a lock.
#[test]
fn live_lock_holder_is_not_treated_as_dead() {
    let Some(fixture) = Fixture::new() else { return };
    let record = volume(&fixture.open(), "a", 8 * MIB);
    let writer = fixture.image(&record.id);
    write(&writer, 0, 1, MIB);
    let (here, there) = (fixture.io(), fixture.io());
    let open = |io: &Arc<IoCtx>| io.open_image(&record.id.to_string(), Access::ReadWrite).unwrap();
    let (image, other) = (open(&here), open(&there));
    let header = header_of(&image.id().unwrap());
    assert!(there.try_lock(&header, "test", "cookie").unwrap());
    let silent = |lock| here.silent_holder(&image, (&header, lock), LockHolder::is).unwrap();
    assert_eq!(silent(IMAGE_LOCK), None);
    assert_eq!(silent("test"), None);
    let address = other.watchers().unwrap();
    drop(other);
    let silent = silent("test").expect("a silent holder");
    assert!(address.iter().any(|watcher| watcher.address == silent.address), "{silent:?}");
    here.ensure_lock_broken(&header, "test", &silent).unwrap();
    assert!(here.try_lock(&header, "test", "another").unwrap());
}
