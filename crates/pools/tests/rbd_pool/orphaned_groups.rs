//! What a daemon that was killed in a group snapshot leaves behind, laid out as it would lie there,
//! and by really killing.

use std::process::Command;
use std::thread;

use orlop_model::{Error, Pool, VolumeRecord};
use orlop_pools::RbdPool;
use orlop_sys::ceph::{Image, Update};

use crate::fixture::{Fixture, MIB, cluster, settled, until, volume};
use crate::groups::{group, group_snapshots_of, new_group, rbd_groups};

/// In the order in which they happen.
const STEPS: [Step; 6] =
    [Step::Intent, Step::Group, Step::OneImage, Step::AllImages, Step::Snapshot, Step::OneReleased];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Intent,
    Group,
    OneImage,
    AllImages,
    Snapshot,
    OneReleased,
}

/// What is there when the daemon that took group snapshot `name` was killed after `last`. The
/// intent says `until` when it is kept.
fn lay_out(
    fixture: &Fixture,
    pool: &RbdPool,
    name: &str,
    volumes: [&VolumeRecord; 2],
    last: Step,
    until: u64,
) {
    let id = new_group(pool, name, &volumes).id;
    let io = fixture.io();
    let name_of_intent = format!("{id}.0123456789abcdef");
    let rbd_group = format!("orlop-cut.{name_of_intent}");
    let names = volumes.map(|one| one.id.to_string());
    let images = names.each_ref().map(|name| io.image_id(name).unwrap().unwrap());
    let intent = serde_json::json!({ "images": images, "until": until }).to_string();
    for step in STEPS.into_iter().filter(|step| *step <= last) {
        match step {
            Step::Intent => {
                let update = Update::default();
                let update =
                    update.set(&format!("pending-group.{name_of_intent}"), intent.as_bytes());
                io.update("orlop.records", &update).unwrap();
            }
            Step::Group => io.create_group(&rbd_group).unwrap(),
            Step::OneImage => assert!(io.try_add_to_group(&rbd_group, &names[0]).unwrap()),
            Step::AllImages => assert!(io.try_add_to_group(&rbd_group, &names[1]).unwrap()),
            Step::Snapshot => io.snapshot_group(&rbd_group, "cut").unwrap(),
            Step::OneReleased => io.remove_from_group(&rbd_group, &images[0]).unwrap(),
        }
    }
}

fn intents(fixture: &Fixture) -> usize {
    fixture.io().omap_list("orlop.records", "", "pending-group.", 0).unwrap().len()
}

fn assert_untouched(fixture: &Fixture, volumes: [&VolumeRecord; 2], when: Step) {
    assert_eq!((rbd_groups(fixture), intents(fixture)), (vec![], 0), "{when:?}");
    for one in volumes {
        let image = fixture.image(&one.id);
        assert_eq!(
            (image.snapshots().unwrap(), image.group().unwrap()),
            (vec![], None),
            "{when:?}"
        );
    }
}

#[test]
fn orphans_do_not_block_the_next_group_snapshot() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let (a, b) = (volume(&pool, "a", 4 * MIB), volume(&pool, "b", 4 * MIB));
    for last in STEPS {
        // The same call again.
        lay_out(&fixture, &pool, "g", [&a, &b], last, u64::MAX);
        let record = group(&pool, "g", &[&a, &b]);
        assert_eq!((rbd_groups(&fixture).len(), intents(&fixture)), (1, 0), "{last:?}");
        assert_eq!(group_snapshots_of(&fixture.image(&a.id)).len(), 1, "{last:?}");
        pool.provisioner().ensure_no_group_snapshot(&record.id).unwrap();
        assert_untouched(&fixture, [&a, &b], last);

        // Another one, of one of the volumes.
        lay_out(&fixture, &pool, "g", [&a, &b], last, u64::MAX);
        for (name, one) in [("h", &a), ("i", &b)] {
            let record = group(&pool, name, &[one]);
            assert!(!group_snapshots_of(&fixture.image(&one.id)).is_empty(), "{last:?}");
            pool.provisioner().ensure_no_group_snapshot(&record.id).unwrap();
        }
        // The call is given up.
        pool.provisioner().ensure_no_group_snapshot(&new_group(&pool, "g", &[&a]).id).unwrap();
        assert_untouched(&fixture, [&a, &b], last);
    }
}

#[test]
fn orphaned_groups_are_removed_and_volumes_are_freed() {
    let Some(fixture) = Fixture::new() else { return };
    for last in STEPS {
        let pool = fixture.open();
        let (a, b) = (volume(&pool, "a", 4 * MIB), volume(&pool, "b", 4 * MIB));
        lay_out(&fixture, &pool, "old", [&a, &b], last, 0);
        pool.provisioner().ensure_no_volume(&a.id).unwrap();
        let collector = fixture.open_collecting_garbage();
        until("the old one is gone", || rbd_groups(&fixture).is_empty() && intents(&fixture) == 0);
        until("the volume is freed", || fixture.trash_is_empty());
        assert_eq!(fixture.image(&b.id).snapshots().unwrap(), [], "{last:?}");
        collector.provisioner().ensure_no_volume(&b.id).unwrap();
        until("all is free", || fixture.is_empty());
    }
}

#[test]
fn group_snapshot_in_progress_is_not_collected() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let (a, b) = (volume(&pool, "a", 4 * MIB), volume(&pool, "b", 4 * MIB));
    lay_out(&fixture, &pool, "young", [&a, &b], Step::Snapshot, u64::MAX);
    let collector = fixture.open_collecting_garbage();
    let other = volume(&collector, "c", MIB);
    collector.provisioner().ensure_no_volume(&other.id).unwrap();
    until("garbage collection was there", || fixture.trash_is_empty());
    assert_eq!((rbd_groups(&fixture).len(), intents(&fixture)), (1, 1));
    assert_eq!(group_snapshots_of(&fixture.image(&a.id)).len(), 1);
}

/// Else a snapshot that has begun could not be undone: librbd opens all images for that.
#[test]
fn image_in_a_group_is_not_freed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let (a, b) = (volume(&pool, "a", 4 * MIB), volume(&pool, "b", 4 * MIB));
    lay_out(&fixture, &pool, "g", [&a, &b], Step::AllImages, u64::MAX);
    let image = fixture.io().image_id(&a.id.to_string()).unwrap().unwrap();
    pool.provisioner().ensure_no_volume(&a.id).unwrap();
    assert!(!fixture.io().try_free_trashed(&image).unwrap());
    pool.provisioner().ensure_no_group_snapshot(&new_group(&pool, "g", &[&b]).id).unwrap();
    assert_eq!((rbd_groups(&fixture), intents(&fixture)), (vec![], 0));
    assert!(fixture.io().try_free_trashed(&image).unwrap());
}

#[test]
fn foreign_rbd_group_is_left_alone() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let a = volume(&pool, "a", 4 * MIB);
    let io = fixture.io();
    io.create_group("mine").unwrap();
    assert!(io.try_add_to_group("mine", &a.id.to_string()).unwrap());
    let refused =
        pool.provisioner().begin_group_snapshot(&new_group(&pool, "g", &[&a])).err().unwrap();
    assert!(matches!(refused, Error::Precondition(_)), "{refused}");
    assert!(refused.to_string().contains("mine"), "{refused}");
    assert_eq!((rbd_groups(&fixture), intents(&fixture)), (vec!["mine".to_owned()], 0));
    assert_eq!(fixture.image(&a.id).group().unwrap().as_deref(), Some("mine"));
}

/// Taken for dead by another process, which has begun to take it away.
#[test]
fn group_snapshot_commits_only_with_an_unchanged_intent() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let a = volume(&pool, "a", 4 * MIB);
    let mut late = pool.provisioner().begin_group_snapshot(&new_group(&pool, "g", &[&a])).unwrap();
    late.capture().unwrap();
    let io = fixture.io();
    let written = io.omap_list("orlop.records", "", "pending-group.", 0).unwrap();
    let [(key, _)] = &written[..] else { panic!("{written:?}") };
    let image = io.image_id(&a.id.to_string()).unwrap().unwrap();
    let intent = serde_json::json!({ "images": [image], "until": 0 }).to_string();
    io.update("orlop.records", &Update::default().set(key, intent.as_bytes())).unwrap();
    let lost = late.commit();
    assert!(matches!(lost, Err(Error::Busy { .. })), "{lost:?}");
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), []);
    assert_eq!((rbd_groups(&fixture), intents(&fixture)), (vec![], 0));
    assert_eq!(fixture.image(&a.id).snapshots().unwrap(), []);
}

/// librbd itself is killed in the midst of a snapshot, with the images' locks in its hands. The cluster
/// takes it for alive for half a minute, which all moments wait for together.
#[test]
fn snapshot_creators_may_be_killed_at_any_moment() {
    let Some(fixture) = Fixture::new() else { return };
    let moments: [fn(&Image, &Image) -> bool; 3] = [
        |one, _| one.watchers().unwrap().len() > 1,
        |one, _| !group_snapshots_of(one).is_empty(),
        |_, other| !group_snapshots_of(other).is_empty(),
    ];
    thread::scope(|scope| {
        for (number, moment) in moments.into_iter().enumerate() {
            let fixture = &fixture;
            scope.spawn(move || {
                let pool = fixture.open();
                let name = |what| format!("{what}{number}");
                let volumes = ["a", "b"].map(|what| volume(&pool, &name(what), 4 * MIB));
                kill_a_cutter(fixture, &pool, &name("g"), volumes.each_ref(), moment);
                assert_cut_after_all(fixture, &pool, &name("g"), volumes.each_ref());
            });
        }
    });
    assert_eq!((rbd_groups(&fixture), intents(&fixture)), (vec![], 0));
}

fn kill_a_cutter(
    fixture: &Fixture,
    pool: &RbdPool,
    name: &str,
    volumes: [&VolumeRecord; 2],
    moment: fn(&Image, &Image) -> bool,
) {
    lay_out(fixture, pool, name, volumes, Step::AllImages, u64::MAX);
    let id = new_group(pool, name, &volumes).id;
    let snapshot = format!("rbd/{}/orlop-cut.{id}.0123456789abcdef@cut", fixture.namespace);
    let command = ["group", "snap", "create", &snapshot];
    let conf = cluster().join("ceph.conf");
    let images = volumes.map(|one| fixture.image(&one.id));
    let mut cutter = Command::new("rbd").arg("--conf").arg(conf).args(command).spawn().unwrap();
    while !moment(&images[0], &images[1]) && cutter.try_wait().unwrap().is_none() {}
    cutter.kill().unwrap();
    cutter.wait().unwrap();
}

fn assert_cut_after_all(
    fixture: &Fixture,
    pool: &RbdPool,
    name: &str,
    volumes: [&VolumeRecord; 2],
) {
    let new = new_group(pool, name, &volumes);
    let record = settled(|| pool.provisioner().begin_group_snapshot(&new)?.commit());
    volumes.iter().for_each(|one| {
        assert_eq!(group_snapshots_of(&fixture.image(&one.id)).len(), 1, "{name}");
    });
    let nothing_left = || {
        // The first call answers also if it has to leave the rest to garbage collection.
        pool.provisioner().ensure_no_group_snapshot(&record.id).unwrap();
        volumes.iter().all(|one| {
            let image = fixture.image(&one.id);
            image.snapshots().unwrap().is_empty() && image.group().unwrap().is_none()
        })
    };
    until("nothing is left", nothing_left);
}
