//! What a process that was killed while it cut a group leaves behind, laid out as it would lie there,
//! and by really killing.

use std::process::Command;
use std::thread;

use orlop_model::{Error, Pool, VolumeRecord};
use orlop_pools::RbdPool;
use orlop_sys::ceph::{Image, Update};

use crate::bed::{Bed, MIB, cluster, settled, until, volume};
use crate::groups::{group, group_snapshots_of, new_group, rbd_groups};

/// In the order in which they happen.
const STEPS: [Step; 6] =
    [Step::Note, Step::Group, Step::OneImage, Step::AllImages, Step::Cut, Step::OneReleased];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Note,
    Group,
    OneImage,
    AllImages,
    Cut,
    OneReleased,
}

/// What is there when the maker of group snapshot `name` was killed after `last`. With `until`, the
/// note says when it may be taken away.
fn lay_out(
    bed: &Bed,
    pool: &RbdPool,
    name: &str,
    volumes: [&VolumeRecord; 2],
    last: Step,
    until: u64,
) {
    let id = new_group(pool, name, &volumes).id;
    let io = bed.io();
    let noted = format!("{id}.0123456789abcdef");
    let rbd_group = format!("orlop-cut.{noted}");
    let names = volumes.map(|one| one.id.to_string());
    let images = names.each_ref().map(|name| io.image_id(name).unwrap().unwrap());
    let note = serde_json::json!({ "images": images, "until": until }).to_string();
    for step in STEPS.into_iter().filter(|step| *step <= last) {
        match step {
            Step::Note => {
                let update = Update::default();
                let update = update.set(&format!("pending-group.{noted}"), note.as_bytes());
                io.update("orlop.records", &update).unwrap();
            }
            Step::Group => io.create_group(&rbd_group).unwrap(),
            Step::OneImage => assert!(io.try_add_to_group(&rbd_group, &names[0]).unwrap()),
            Step::AllImages => assert!(io.try_add_to_group(&rbd_group, &names[1]).unwrap()),
            Step::Cut => io.snapshot_group(&rbd_group, "cut").unwrap(),
            Step::OneReleased => io.remove_from_group(&rbd_group, &images[0]).unwrap(),
        }
    }
}

fn notes(bed: &Bed) -> usize {
    bed.io().omap_list("orlop.records", "", "pending-group.", 0).unwrap().len()
}

fn assert_untouched(bed: &Bed, volumes: [&VolumeRecord; 2], when: Step) {
    assert_eq!((rbd_groups(bed), notes(bed)), (vec![], 0), "{when:?}");
    for one in volumes {
        let image = bed.image(&one.id);
        assert_eq!(
            (image.snapshots().unwrap(), image.group().unwrap()),
            (vec![], None),
            "{when:?}"
        );
    }
}

#[test]
fn what_was_left_does_not_stand_in_the_way_of_the_next_cut() {
    let Some(bed) = Bed::new() else { return };
    let pool = bed.open();
    let (a, b) = (volume(&pool, "a", 4 * MIB), volume(&pool, "b", 4 * MIB));
    for last in STEPS {
        // The same call again.
        lay_out(&bed, &pool, "g", [&a, &b], last, u64::MAX);
        let record = group(&pool, "g", &[&a, &b]);
        assert_eq!((rbd_groups(&bed).len(), notes(&bed)), (1, 0), "{last:?}");
        assert_eq!(group_snapshots_of(&bed.image(&a.id)).len(), 1, "{last:?}");
        pool.provisioner().ensure_no_group_snapshot(&record.id).unwrap();
        assert_untouched(&bed, [&a, &b], last);

        // Another one, of one of the volumes.
        lay_out(&bed, &pool, "g", [&a, &b], last, u64::MAX);
        for (name, one) in [("h", &a), ("i", &b)] {
            let record = group(&pool, name, &[one]);
            assert!(!group_snapshots_of(&bed.image(&one.id)).is_empty(), "{last:?}");
            pool.provisioner().ensure_no_group_snapshot(&record.id).unwrap();
        }
        // The call is given up.
        pool.provisioner().ensure_no_group_snapshot(&new_group(&pool, "g", &[&a]).id).unwrap();
        assert_untouched(&bed, [&a, &b], last);
    }
}

#[test]
fn what_nobody_asks_for_is_swept_and_volumes_are_freed() {
    let Some(bed) = Bed::new() else { return };
    for last in STEPS {
        let pool = bed.open();
        let (a, b) = (volume(&pool, "a", 4 * MIB), volume(&pool, "b", 4 * MIB));
        lay_out(&bed, &pool, "old", [&a, &b], last, 0);
        pool.provisioner().ensure_no_volume(&a.id).unwrap();
        let keeper = bed.open_with_housekeeping();
        until("the old one is gone", || rbd_groups(&bed).is_empty() && notes(&bed) == 0);
        until("the volume is freed", || bed.trash_is_empty());
        assert_eq!(bed.image(&b.id).snapshots().unwrap(), [], "{last:?}");
        keeper.provisioner().ensure_no_volume(&b.id).unwrap();
        until("all is free", || bed.is_empty());
    }
}

#[test]
fn what_may_still_be_made_is_not_swept() {
    let Some(bed) = Bed::new() else { return };
    let pool = bed.open();
    let (a, b) = (volume(&pool, "a", 4 * MIB), volume(&pool, "b", 4 * MIB));
    lay_out(&bed, &pool, "young", [&a, &b], Step::Cut, u64::MAX);
    let keeper = bed.open_with_housekeeping();
    let other = volume(&keeper, "c", MIB);
    keeper.provisioner().ensure_no_volume(&other.id).unwrap();
    until("the housekeeping was there", || bed.trash_is_empty());
    assert_eq!((rbd_groups(&bed).len(), notes(&bed)), (1, 1));
    assert_eq!(group_snapshots_of(&bed.image(&a.id)).len(), 1);
}

/// Else a cut that has begun could not be taken back: librbd opens all images for that.
#[test]
fn what_is_in_a_group_is_not_freed() {
    let Some(bed) = Bed::new() else { return };
    let pool = bed.open();
    let (a, b) = (volume(&pool, "a", 4 * MIB), volume(&pool, "b", 4 * MIB));
    lay_out(&bed, &pool, "g", [&a, &b], Step::AllImages, u64::MAX);
    let image = bed.io().image_id(&a.id.to_string()).unwrap().unwrap();
    pool.provisioner().ensure_no_volume(&a.id).unwrap();
    assert!(!bed.io().try_free_trashed(&image).unwrap());
    pool.provisioner().ensure_no_group_snapshot(&new_group(&pool, "g", &[&b]).id).unwrap();
    assert_eq!((rbd_groups(&bed), notes(&bed)), (vec![], 0));
    assert!(bed.io().try_free_trashed(&image).unwrap());
}

#[test]
fn a_group_of_an_operator_is_left_alone() {
    let Some(bed) = Bed::new() else { return };
    let pool = bed.open();
    let a = volume(&pool, "a", 4 * MIB);
    let io = bed.io();
    io.create_group("mine").unwrap();
    assert!(io.try_add_to_group("mine", &a.id.to_string()).unwrap());
    let refused =
        pool.provisioner().begin_group_snapshot(&new_group(&pool, "g", &[&a])).err().unwrap();
    assert!(matches!(refused, Error::Precondition(_)), "{refused}");
    assert!(refused.to_string().contains("mine"), "{refused}");
    assert_eq!((rbd_groups(&bed), notes(&bed)), (vec!["mine".to_owned()], 0));
    assert_eq!(bed.image(&a.id).group().unwrap().as_deref(), Some("mine"));
}

/// Taken for dead by another process, which has begun to take it away.
#[test]
fn a_group_snapshot_is_made_only_while_its_note_is_as_it_was() {
    let Some(bed) = Bed::new() else { return };
    let pool = bed.open();
    let a = volume(&pool, "a", 4 * MIB);
    let mut late = pool.provisioner().begin_group_snapshot(&new_group(&pool, "g", &[&a])).unwrap();
    late.capture().unwrap();
    let io = bed.io();
    let noted = io.omap_list("orlop.records", "", "pending-group.", 0).unwrap();
    let [(key, _)] = &noted[..] else { panic!("{noted:?}") };
    let image = io.image_id(&a.id.to_string()).unwrap().unwrap();
    let note = serde_json::json!({ "images": [image], "until": 0 }).to_string();
    io.update("orlop.records", &Update::default().set(key, note.as_bytes())).unwrap();
    let lost = late.commit();
    assert!(matches!(lost, Err(Error::Busy(_))), "{lost:?}");
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), []);
    assert_eq!((rbd_groups(&bed), notes(&bed)), (vec![], 0));
    assert_eq!(bed.image(&a.id).snapshots().unwrap(), []);
}

/// librbd itself is killed in the midst of a cut, with the images' locks in its hands. The cluster
/// takes it for alive for half a minute, which all moments wait for together.
#[test]
fn cutters_may_be_killed_at_any_moment() {
    let Some(bed) = Bed::new() else { return };
    let moments: [fn(&Image, &Image) -> bool; 3] = [
        |one, _| one.watchers().unwrap().len() > 1,
        |one, _| !group_snapshots_of(one).is_empty(),
        |_, other| !group_snapshots_of(other).is_empty(),
    ];
    thread::scope(|scope| {
        for (number, moment) in moments.into_iter().enumerate() {
            let bed = &bed;
            scope.spawn(move || {
                let pool = bed.open();
                let name = |what| format!("{what}{number}");
                let volumes = ["a", "b"].map(|what| volume(&pool, &name(what), 4 * MIB));
                kill_a_cutter(bed, &pool, &name("g"), volumes.each_ref(), moment);
                assert_cut_after_all(bed, &pool, &name("g"), volumes.each_ref());
            });
        }
    });
    assert_eq!((rbd_groups(&bed), notes(&bed)), (vec![], 0));
}

fn kill_a_cutter(
    bed: &Bed,
    pool: &RbdPool,
    name: &str,
    volumes: [&VolumeRecord; 2],
    moment: fn(&Image, &Image) -> bool,
) {
    lay_out(bed, pool, name, volumes, Step::AllImages, u64::MAX);
    let id = new_group(pool, name, &volumes).id;
    let snapshot = format!("rbd/{}/orlop-cut.{id}.0123456789abcdef@cut", bed.namespace);
    let command = ["group", "snap", "create", &snapshot];
    let conf = cluster().join("ceph.conf");
    let images = volumes.map(|one| bed.image(&one.id));
    let mut cutter = Command::new("rbd").arg("--conf").arg(conf).args(command).spawn().unwrap();
    while !moment(&images[0], &images[1]) && cutter.try_wait().unwrap().is_none() {}
    cutter.kill().unwrap();
    cutter.wait().unwrap();
}

fn assert_cut_after_all(bed: &Bed, pool: &RbdPool, name: &str, volumes: [&VolumeRecord; 2]) {
    let new = new_group(pool, name, &volumes);
    let record = settled(|| pool.provisioner().begin_group_snapshot(&new)?.commit());
    volumes.iter().for_each(|one| {
        assert_eq!(group_snapshots_of(&bed.image(&one.id)).len(), 1, "{name}");
    });
    let nothing_left = || {
        // The first call answers also if it has to leave the rest to the housekeeping.
        pool.provisioner().ensure_no_group_snapshot(&record.id).unwrap();
        volumes.iter().all(|one| {
            let image = bed.image(&one.id);
            image.snapshots().unwrap().is_empty() && image.group().unwrap().is_none()
        })
    };
    until("nothing is left", nothing_left);
}
