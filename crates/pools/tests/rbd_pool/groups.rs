//! Snapshots of several volumes at one instant. Restoring needs a librbd that can do that: where it
//! cannot, the tests see that it is refused, unless `ORLOP_TEST_RESTORES_GROUPS=1` says that it can.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use orlop_model::{
    ByteRange, ContentSource, Error, GroupSnapshotId, GroupSnapshotRecord, NameDigest,
    NewGroupSnapshot, Pool, SnapshotRecord, VolumeRecord,
};
use orlop_pools::{RbdPool, RbdPoolConfig};
use orlop_sys::ceph::{
    Access, Image, ImageSnapshot, SnapshotNamespace, SnapshotRef, can_clone_by_number,
    can_compare_by_number,
};

use crate::fixture::{
    Fixture, MIB, OBJECT, byte_at, copy_of, create, new_snapshot, new_volume, snapshot, until,
    volume, write,
};

fn can_restore() -> bool {
    let can = can_clone_by_number().unwrap();
    let must = std::env::var_os("ORLOP_TEST_RESTORES_GROUPS").is_some_and(|value| value == "1");
    assert!(can || !must, "librbd has no rbd_clone4");
    can
}

pub(crate) fn new_group(pool: &RbdPool, name: &str, sources: &[&VolumeRecord]) -> NewGroupSnapshot {
    let mut sources = sources.to_vec();
    // As the engine has them.
    sources.sort_by(|a, b| a.id.cmp(&b.id));
    let member =
        |source: &&VolumeRecord| new_snapshot(pool, &format!("{name} of {}", source.id), source);
    NewGroupSnapshot {
        id: GroupSnapshotId::new(pool.id().clone(), NameDigest::of_text(name)),
        name: name.parse().unwrap(),
        members: sources.iter().map(member).collect(),
        pools: BTreeSet::new(),
    }
}

pub(crate) fn group(pool: &RbdPool, name: &str, sources: &[&VolumeRecord]) -> GroupSnapshotRecord {
    pool.provisioner()
        .begin_group_snapshot(&new_group(pool, name, sources))
        .unwrap()
        .commit()
        .unwrap()
}

fn member_of(pool: &RbdPool, group: &GroupSnapshotRecord, source: &VolumeRecord) -> SnapshotRecord {
    let members = group.members.iter().map(|id| pool.catalogue().snapshot(id).unwrap().unwrap());
    members.into_iter().find(|member| member.source == source.id).unwrap()
}

pub(crate) fn rbd_groups(fixture: &Fixture) -> Vec<String> {
    let listed = fixture.rbd_json(&["group", "ls"]);
    let names = listed.as_array().unwrap().iter();
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

pub(crate) fn group_snapshots_of(image: &Image) -> Vec<ImageSnapshot> {
    let all = image.snapshots().unwrap().into_iter();
    all.filter(|one| one.namespace == SnapshotNamespace::Group).collect()
}

/// The image as the one group snapshot of it has it.
fn as_cut(fixture: &Fixture, source: &VolumeRecord) -> Image {
    let image = fixture.image(&source.id);
    let [snapshot] = &group_snapshots_of(&image)[..] else { panic!("one snapshot") };
    let at = SnapshotRef::Number(snapshot.number);
    fixture.io().open_image_by_id(&image.id().unwrap(), Some(at), Access::ReadOnly).unwrap()
}

#[test]
fn group_snapshot_is_created_listed_and_deleted_as_one() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let (a, b) = (volume(&pool, "a", 8 * MIB), volume(&pool, "b", 16 * MIB));
    [&a, &b].iter().for_each(|one| write(&fixture.image(&one.id), 0, 1, MIB));
    let mut draft =
        pool.provisioner().begin_group_snapshot(&new_group(&pool, "g", &[&a, &b])).unwrap();
    draft.capture().unwrap();
    [&a, &b].iter().for_each(|one| write(&fixture.image(&one.id), 0, 2, MIB));
    assert_eq!(
        pool.catalogue().snapshots(None, 0).unwrap(),
        [],
        "not before they have their records"
    );
    let record = draft.commit().unwrap();

    let other = fixture.open();
    assert_eq!(other.catalogue().group_snapshot(&record.id).unwrap().as_ref(), Some(&record));
    let members = other.catalogue().snapshots(None, 0).unwrap();
    assert_eq!(members.len(), 2);
    for (source, size) in [(&a, 8 * MIB), (&b, 16 * MIB)] {
        let member = member_of(&other, &record, source);
        assert!(members.contains(&member));
        assert_eq!(member.group.as_ref(), Some(&record.id));
        assert_eq!((member.size_bytes, member.created), (size, record.created));
        assert_eq!(byte_at(&as_cut(&fixture, source), 0, MIB), 1);
        assert_eq!(fixture.image(&source.id).group().unwrap(), None, "others may cut it now");
    }
    let again = pool.provisioner().begin_group_snapshot(&new_group(&pool, "g", &[&a, &b]));
    assert!(matches!(again.err(), Some(Error::Busy { .. })));
    assert_eq!(rbd_groups(&fixture).len(), 1);

    for _ in 0..2 {
        other.provisioner().ensure_no_group_snapshot(&record.id).unwrap();
        assert_eq!(pool.catalogue().group_snapshot(&record.id).unwrap(), None);
        assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), []);
    }
    assert_eq!(rbd_groups(&fixture), [""; 0]);
    [&a, &b].iter().for_each(|one| assert_eq!(fixture.image(&one.id).snapshots().unwrap(), []));
    assert_eq!(fixture.io().omap_list("orlop.records", "", "", 0).unwrap(), []);
}

#[test]
fn members_outlive_their_volumes_and_copies_their_group() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    let (a, b) = (volume(&pool, "a", 8 * MIB), volume(&pool, "b", 8 * MIB));
    write(&fixture.image(&a.id), 0, 1, MIB);
    write(&fixture.image(&b.id), 0, 2, MIB);
    let first = group(&pool, "g1", &[&a, &b]);
    write(&fixture.image(&a.id), 0, 3, MIB);
    let second = group(&pool, "g2", &[&a]);
    [&a, &b].iter().for_each(|one| pool.provisioner().ensure_no_volume(&one.id).unwrap());
    let wanted = [
        ("a1", member_of(&pool, &first, &a), 1),
        ("b1", member_of(&pool, &first, &b), 2),
        ("a2", member_of(&pool, &second, &a), 3),
    ];
    let mut copies = Vec::new();
    for (name, member, byte) in &wanted {
        let copy = copy_of(&pool, name, ContentSource::Snapshot(member.id.clone()), 16 * MIB);
        if can_restore() {
            copies.push((copy.unwrap(), *byte));
        } else {
            let refused = copy.unwrap_err();
            assert!(matches!(refused, Error::Precondition(_)), "{refused}");
            assert!(refused.to_string().contains("rbd_clone4"), "{refused}");
        }
    }
    let check = |when| {
        for (copy, byte) in &copies {
            let image = fixture.image(&copy.id);
            assert_eq!(byte_at(&image, 0, MIB), *byte, "{when}");
            assert_eq!(byte_at(&image, MIB, 15 * MIB), 0, "{when}");
        }
    };
    check("after they were made");
    for record in [&first, &second] {
        pool.provisioner().ensure_no_group_snapshot(&record.id).unwrap();
    }
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), []);
    assert_eq!(rbd_groups(&fixture), [""; 0]);
    check("after their sources were deleted");
    copies.iter().for_each(|(copy, _)| pool.provisioner().ensure_no_volume(&copy.id).unwrap());
    until("all is free", || fixture.is_empty());
}

#[test]
fn a_group_member_is_comparable_with_a_single_snapshot() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let a = volume(&pool, "a", 32 * MIB);
    let image = fixture.image(&a.id);
    write(&image, 0, 1, MIB);
    let alone = snapshot(&pool, "s", &a);
    write(&image, 2 * OBJECT, 2, MIB);
    let first = group(&pool, "g1", &[&a]);
    write(&image, 4 * OBJECT, 3, MIB);
    let second = group(&pool, "g2", &[&a]);
    let (first, second) = (member_of(&pool, &first, &a), member_of(&pool, &second, &a));

    let object = |number: u64| ByteRange { start: number * OBJECT, length: OBJECT };
    let all = |ranges: orlop_model::Ranges| ranges.filter_map(Result::unwrap).collect::<Vec<_>>();
    let written = all(pool.changed_blocks().allocated_ranges(&second.id, 0).unwrap());
    assert_eq!(written, [object(0), object(2), object(4)]);
    let changed = all(pool.changed_blocks().changed_ranges(&alone.id, &first.id, 0).unwrap());
    assert_eq!(changed, [object(2)]);
    let changed = all(pool.changed_blocks().changed_ranges(&first.id, &second.id, 0).unwrap());
    if can_compare_by_number().unwrap() {
        assert_eq!(changed, [object(4)]);
        let later = snapshot(&pool, "t", &a);
        assert_eq!(
            all(pool.changed_blocks().changed_ranges(&first.id, &later.id, 0).unwrap()),
            [object(4)]
        );
    } else {
        assert_eq!(changed, [ByteRange { start: 0, length: 32 * MIB }], "more, never less");
    }
}

/// The counter goes to each image in turn, so a later image never has more than an earlier one, and
/// no image more than one less than the first.
#[test]
fn members_are_of_one_instant_during_writes() {
    const MEMBERS: usize = 4;
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let volumes: Vec<_> = (0..MEMBERS).map(|n| volume(&pool, &format!("v{n}"), 8 * MIB)).collect();
    let (ended, counter) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let images: Vec<_> = volumes.iter().map(|one| fixture.image(&one.id)).collect();
            while !ended.load(Ordering::Relaxed) {
                let number = counter.load(Ordering::Relaxed) + 1;
                for image in &images {
                    image.write(0, &number.to_le_bytes()).unwrap();
                    image.flush().unwrap();
                }
                counter.store(number, Ordering::Relaxed);
            }
        });
        let _end = EndOnDrop(&ended);
        let goes_on = |since: u64| {
            until("the writer goes on", || {
                assert!(!writer.is_finished(), "the writer has failed");
                counter.load(Ordering::Relaxed) > since + 3
            });
        };
        for round in 0..5 {
            goes_on(counter.load(Ordering::Relaxed));
            let sources: Vec<_> = volumes.iter().collect();
            let record = group(&pool, &format!("g{round}"), &sources);
            let seen: Vec<u64> =
                volumes.iter().map(|one| counter_in(&as_cut(&fixture, one))).collect();
            assert!(seen.is_sorted_by(|a, b| a >= b), "{seen:?}");
            assert!(seen[0] - seen[MEMBERS - 1] <= 1 && seen[0] > 0, "{seen:?}");
            pool.provisioner().ensure_no_group_snapshot(&record.id).unwrap();
        }
        goes_on(counter.load(Ordering::Relaxed));
    });
}

/// Also if the test fails: otherwise it would wait for its writer without end.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn counter_in(image: &Image) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(image.read(0, &mut bytes).unwrap(), bytes.len());
    u64::from_le_bytes(bytes)
}

#[test]
fn captures_of_one_volume_are_serialized() {
    let Some(fixture) = Fixture::new() else { return };
    let pools = [fixture.open(), fixture.open()];
    let [a, b, c] = ["a", "b", "c"].map(|name| volume(&pools[0], name, 4 * MIB));
    let mut first = pools[0]
        .provisioner()
        .begin_group_snapshot(&new_group(&pools[0], "g1", &[&a, &b]))
        .unwrap();
    let shared = new_group(&pools[1], "g2", &[&b, &c]);
    let refused = pools[1].provisioner().begin_group_snapshot(&shared).err();
    assert!(matches!(refused, Some(Error::Busy { .. })), "{refused:?}");
    first.capture().unwrap();
    let made = first.commit().unwrap();
    let other = pools[1].provisioner().begin_group_snapshot(&shared).unwrap().commit().unwrap();
    assert_eq!(rbd_groups(&fixture).len(), 2);

    // One that is given up leaves nothing, whether it was cut or not.
    for cut in [false, true] {
        let new = new_group(&pools[0], "g3", &[&a, &b, &c]);
        let mut draft = pools[0].provisioner().begin_group_snapshot(&new).unwrap();
        assert!(!cut || draft.capture().is_ok());
        drop(draft);
        assert_eq!(rbd_groups(&fixture).len(), 2);
    }
    for record in [made, other] {
        pools[0].provisioner().ensure_no_group_snapshot(&record.id).unwrap();
    }
    for one in [&a, &b, &c] {
        assert_eq!(fixture.image(&one.id).snapshots().unwrap(), []);
        assert_eq!(fixture.image(&one.id).group().unwrap(), None);
    }
}

#[test]
fn one_of_two_racing_group_snapshots_wins() {
    let Some(fixture) = Fixture::new() else { return };
    let pools = [fixture.open(), fixture.open()];
    let a = volume(&pools[0], "a", 4 * MIB);
    let new = new_group(&pools[0], "g", &[&a]);
    let records: Vec<_> = thread::scope(|scope| {
        let made = pools.each_ref().map(|pool| {
            let new = &new;
            scope.spawn(move || pool.provisioner().begin_group_snapshot(new)?.commit())
        });
        made.into_iter()
            .filter_map(|made| match made.join().unwrap() {
                Err(Error::Busy { .. }) => None,
                record => Some(record.unwrap()),
            })
            .collect()
    });
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!(pools[1].catalogue().group_snapshot(&new.id).unwrap().as_ref(), Some(record));
    assert_eq!(
        (rbd_groups(&fixture).len(), group_snapshots_of(&fixture.image(&a.id)).len()),
        (1, 1)
    );
    let missing = new_group(
        &pools[0],
        "h",
        &[&a, &VolumeRecord { id: crate::fixture::volume_id(&pools[0], "none"), ..a.clone() }],
    );
    let none = pools[0].provisioner().begin_group_snapshot(&missing).err();
    assert!(matches!(none, Some(Error::NoSuchVolume(_))), "{none:?}");
}

#[test]
fn group_snapshots_are_offered_iff_restorable() {
    let Some(fixture) = Fixture::new() else { return };
    let config = RbdPoolConfig { takes_unrestorable_groups: false, ..fixture.config() };
    let pool = RbdPool::open(&config).unwrap();
    assert_eq!(RbdPool::takes_group_snapshots(), can_restore());
    let a = create(&pool, &new_volume(&pool, "a", MIB)).unwrap();
    match pool.provisioner().begin_group_snapshot(&new_group(&pool, "g", &[&a])) {
        Ok(_) => assert!(can_restore()),
        Err(refused) => {
            assert!(matches!(refused, Error::Precondition(_)) && !can_restore(), "{refused}");
            assert!(refused.to_string().contains("rbd_clone4"), "{refused}");
        }
    }
}
