use std::fs;
use std::os::unix::fs::FileExt;

use orlop_model::{Consistency, ContentSource, Pool, Provisioning, SnapshotRecord, VolumeRecord};
use orlop_sys::{btrfs, file};

use super::*;
use crate::image::ImagePool;
use crate::image::testbed::*;

mod ordered;

fn three_volumes(pool: &ImagePool) -> Vec<VolumeRecord> {
    let make = |(name, seed)| {
        let record = create(pool, &volume_of(pool, name, 16 * MIB));
        scribble(&data_of(pool, &record.id), seed, MIB);
        record
    };
    ["a", "b", "c"].into_iter().zip(1..).map(make).collect()
}

fn members_of(pool: &ImagePool, group: &GroupSnapshotRecord) -> Vec<SnapshotRecord> {
    group.members.iter().map(|id| pool.catalogue().snapshot(id).unwrap().unwrap()).collect()
}

fn visible_in(testbed: &Testbed, directory: &str) -> Vec<String> {
    listing(testbed, directory).into_iter().filter(|name| !name.starts_with('.')).collect()
}

/// Neither in memory nor on the pool, now and after a restart; and then it can be made.
fn assert_as_if_never_begun(testbed: &Testbed, pool: ImagePool, new: &NewGroupSnapshot) {
    for directory in ["staging", "trash", "snapshots", "group-snapshots"] {
        let left = visible_in(testbed, directory);
        assert!(left.is_empty(), "{directory}: {left:?}");
    }
    assert_swept(&pool, new);
    drop(pool);
    let pool = testbed.open();
    assert_swept(&pool, new);
    assert_eq!(try_take_group(&pool, new).unwrap().members.len(), new.members.len());
}

fn assert_swept(pool: &ImagePool, new: &NewGroupSnapshot) {
    assert!(pool.catalogue().snapshots(None, 0).unwrap().is_empty());
    assert_eq!(pool.catalogue().group_snapshot(&new.id).unwrap(), None);
}

#[test]
fn all_members_hold_the_captured_data() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let volumes = three_volumes(&pool);
        let before: Vec<_> = volumes.iter().map(|v| read(&data_of(&pool, &v.id))).collect();
        let new = group_of(&pool, "g", &volumes);
        let mut draft = pool.provisioner().begin_group_snapshot(&new).unwrap();
        draft.capture().unwrap();
        for volume in &volumes {
            scribble(&data_of(&pool, &volume.id), 9, 2 * MIB);
        }
        assert!(pool.catalogue().snapshots(None, 0).unwrap().is_empty());
        let group = draft.commit().unwrap();
        assert!(listing(&testbed, "staging").is_empty());

        let assert_whole = |pool: &ImagePool| {
            assert_eq!(pool.catalogue().group_snapshot(&new.id).unwrap().as_ref(), Some(&group));
            let members = members_of(pool, &group);
            for ((member, volume), before) in members.iter().zip(&volumes).zip(&before) {
                assert_eq!(member.source, volume.id);
                assert_eq!(member.group.as_ref(), Some(&group.id));
                assert_eq!(member.created, group.created);
                assert!(read(&snapshot_data_of(pool, &member.id)) == *before);
            }
        };
        assert_whole(&pool);
        drop(pool);
        let pool = testbed.open();
        assert_whole(&pool);
        let from = ContentSource::Snapshot(group.members[1].clone());
        let restored = create(&pool, &copy_of(&pool, "restored", from, 16 * MIB));
        assert!(read(&data_of(&pool, &restored.id)) == before[1]);
    }
}

#[test]
fn group_is_committed_once_also_without_capture() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let new = group_of(&pool, "g", &three_volumes(&pool));
        let [first, second] =
            [(); 2].map(|()| pool.provisioner().begin_group_snapshot(&new).unwrap());
        let made = first.commit().unwrap();
        assert_eq!(second.commit().unwrap(), made);
        assert_eq!(pool.catalogue().snapshots(None, 0).unwrap().len(), 3);
        assert!(listing(&testbed, "staging").is_empty());
    }
}

#[test]
fn a_dropped_draft_leaves_nothing() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let new = group_of(&pool, "g", &three_volumes(&pool));
        drop(pool.provisioner().begin_group_snapshot(&new).unwrap());
        let mut draft = pool.provisioner().begin_group_snapshot(&new).unwrap();
        draft.capture().unwrap();
        drop(draft);
        assert_as_if_never_begun(&testbed, pool, &new);
    }
}

#[test]
fn a_crash_before_the_groups_record_leaves_nothing() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let new = group_of(&pool, "g", &three_volumes(&pool));
        for placed in 1..=3 {
            let mut draft = ImageGroupSnapshotDraft::begin(&pool.provisioner, &new).unwrap();
            draft.capture().unwrap();
            let note = format!("group-snapshots/{}.unfinished", new.id);
            fs::write(testbed.pool_path().join(note), "").unwrap();
            for member in draft.members.iter_mut().take(placed) {
                member.finish().unwrap();
                let home = pool.catalogue.snapshot_index().directory_of(&member.record().id);
                member.pending().move_to(&home, member.record()).unwrap();
            }
            drop(draft);
            assert_eq!(listing(&testbed, "snapshots").len(), placed);
            assert_swept(&pool, &new);
        }
        drop(pool);
        assert_as_if_never_begun(&testbed, testbed.open(), &new);
    }
}

#[test]
fn orphans_of_an_attempt_do_not_block_the_next() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let new = group_of(&pool, "g", &three_volumes(&pool));
    fs::create_dir(pool.catalogue.snapshot_index().directory_of(&new.members[1].id).directory())
        .unwrap();
    let group = try_take_group(&pool, &new).unwrap();
    assert_eq!(members_of(&pool, &group).len(), 3);
    assert!(listing(&testbed, "trash").is_empty());
}

#[test]
fn group_committed_without_notice_is_found() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let new = group_of(&pool, "g", &three_volumes(&pool));
    let mut draft = ImageGroupSnapshotDraft::begin(&pool.provisioner, &new).unwrap();
    draft.capture().unwrap();
    for member in &mut draft.members {
        member.finish().unwrap();
    }
    // As if the last sync had failed, and the removal after it as well.
    draft.make_durable().unwrap();
    let made = draft.record.clone();
    drop(draft);
    assert_swept(&pool, &new);
    assert_eq!(try_take_group(&pool, &new).unwrap(), made);
    assert_eq!(members_of(&pool, &made).len(), 3);
}

#[test]
fn failure_of_a_member_rolls_back_the_group() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let volumes = three_volumes(&pool);
        let new = group_of(&pool, "g", &volumes);
        // The record cannot be written.
        let in_the_way = format!("group-snapshots/.{}.json.new", new.id);
        let in_the_way = testbed.pool_path().join(in_the_way);
        fs::create_dir(&in_the_way).unwrap();
        assert!(try_take_group(&pool, &new).is_err());
        fs::remove_dir(&in_the_way).unwrap();
        assert!(listing(&testbed, "snapshots").is_empty());

        // The name of the second member is taken.
        let mut taken = snapshot_of(&pool, "taken", &volumes[1]);
        taken.id = new.members[1].id.clone();
        let taken = pool.provisioner().begin_snapshot(&taken).unwrap().commit().unwrap();
        let refused = try_take_group(&pool, &new);
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), std::slice::from_ref(&taken));
        assert_eq!(listing(&testbed, "snapshots").len(), 1);
        pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
        assert_as_if_never_begun(&testbed, pool, &new);
    }
}

#[test]
fn group_needs_space_for_all_members() {
    let Some(testbed) = Testbed::ext4() else { return };
    let pool = testbed.open();
    let volumes = ["a", "b", "c"].map(|name| {
        let record = create(&pool, &volume_of(&pool, name, 256 * MIB));
        scribble(&data_of(&pool, &record.id), 1, 100 * MIB);
        record
    });
    drop(pool);
    let pool = testbed.open();
    let before = pool.provisioner().capacity(Provisioning::Thin).unwrap();
    let new = group_of(&pool, "g", &volumes);
    let refused = pool.provisioner().begin_group_snapshot(&new).err();
    assert!(matches!(refused, Some(Error::Exhausted(_))), "{refused:?}");
    assert!(listing(&testbed, "staging").is_empty());
    assert_eq!(pool.provisioner().capacity(Provisioning::Thin).unwrap(), before);
}

#[test]
fn member_charges_match_those_after_a_restart() {
    for testbed in Testbed::all().into_iter().filter(Testbed::is_disk) {
        let pool = testbed.open();
        let available = |pool: &ImagePool| {
            pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes
        };
        let volumes: Vec<VolumeRecord> = ["a", "b"]
            .map(|name| create(&pool, &volume_of(&pool, name, 128 * MIB)))
            .into_iter()
            .inspect(|volume| scribble(&data_of(&pool, &volume.id), 1, 32 * MIB))
            .collect();
        // A start looks at what was written.
        drop(pool);
        let pool = testbed.open();
        let before = available(&pool);
        let group = try_take_group(&pool, &group_of(&pool, "g", &volumes)).unwrap();
        let after = available(&pool);
        assert!(before.abs_diff(after + 128 * MIB) < 16 * MIB, "{before} {after}");
        drop(pool);
        let pool = testbed.open();
        let reopened = available(&pool);
        assert!(after.abs_diff(reopened) < 16 * MIB, "{after} {reopened}");
        pool.provisioner().ensure_no_group_snapshot(&group.id).unwrap();
        assert!(before.abs_diff(available(&pool)) < 16 * MIB, "{before}");
    }
}

#[test]
fn pool_filling_up_midway_leaves_no_member() {
    let Some(testbed) = Testbed::ext4() else { return };
    let pool = testbed.open();
    let volumes = ["a", "b"].map(|name| {
        let record = create(&pool, &volume_of(&pool, name, 64 * MIB));
        scribble(&data_of(&pool, &record.id), 1, 16 * MIB);
        record
    });
    let new = group_of(&pool, "g", &volumes);
    let mut draft = pool.provisioner().begin_group_snapshot(&new).unwrap();
    // Someone else takes the space: enough is left for the first member, not for both.
    let foreign = testbed.pool_path().join("foreign");
    let taken = testbed.free() - 40 * MIB;
    file::preallocate(&fs::File::create(&foreign).unwrap(), 0, taken).unwrap();
    let full = draft.capture();
    assert!(matches!(full, Err(Error::Exhausted(_))), "{full:?}");
    // With room again the rest would be captured at another instant.
    fs::remove_file(foreign).unwrap();
    assert!(draft.commit().is_err());
    assert_as_if_never_begun(&testbed, pool, &new);
}

#[test]
fn new_btrfs_pool_is_a_subvolume() {
    let Some(testbed) = Testbed::btrfs() else { return };
    let pool = testbed.open();
    assert!(pool.provisioner().has_atomic_copies() && pool.provisioner().has_atomic_groups());
    let root = fs::metadata(testbed.pool_path()).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&root.permissions()) & 0o777, 0o700);
    let volumes = three_volumes(&pool);
    let snapshot = pool.provisioner.subvolume_snapshots.try_take().unwrap().unwrap();
    assert_eq!(listing(&testbed, "staging").len(), 1);
    // As after a crash.
    std::mem::forget(snapshot);
    drop(pool);
    let pool = testbed.open();
    assert!(listing(&testbed, "staging").is_empty());
    assert_eq!(pool.catalogue().volumes(None, 0).unwrap().len(), volumes.len());
}

#[test]
fn no_subvolume_snapshot_is_taken_beside_thick_volumes() {
    let Some(testbed) = Testbed::btrfs() else { return };
    let pool = testbed.open();
    let volumes = three_volumes(&pool);
    let new = thick_volume_of(&pool, "thick", 8 * MIB);
    let draft = pool.provisioner().begin_volume(&new).unwrap();
    assert!(pool.provisioner.subvolume_snapshots.try_take().unwrap().is_none());
    let thick = draft.commit().unwrap();
    assert!(!pool.provisioner().has_atomic_groups());
    let file = fs::File::options().write(true).open(data_of(&pool, &thick.id)).unwrap();
    file.write_all_at(&pattern(1, 8 * MIB), 0).unwrap();
    file.sync_all().unwrap();
    let before = places(&data_of(&pool, &thick.id));
    let group = try_take_group(&pool, &group_of(&pool, "g", &volumes)).unwrap();
    for member in members_of(&pool, &group) {
        assert_eq!(member.consistency, Consistency::Alone);
    }
    file.write_all_at(&pattern(2, 8 * MIB), 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(places(&data_of(&pool, &thick.id)), before);
    drop(file);
    pool.provisioner().ensure_no_volume(&thick.id).unwrap();
    assert!(pool.provisioner().has_atomic_groups());
}

#[test]
fn plain_btrfs_directory_captures_members_in_turn() {
    let Some(testbed) = Testbed::btrfs() else { return };
    fs::create_dir(testbed.pool_path()).unwrap();
    let pool = testbed.open();
    assert!(!btrfs::is_subvolume(&testbed.pool_path()).unwrap());
    assert!(pool.provisioner().has_atomic_copies() && !pool.provisioner().has_atomic_groups());
    let group = try_take_group(&pool, &group_of(&pool, "g", &three_volumes(&pool))).unwrap();
    assert_eq!(members_of(&pool, &group).len(), 3);
}

#[test]
fn group_atomicity_depends_on_the_filesystem() {
    for (testbed, at_once) in [(Testbed::xfs(), true), (Testbed::ext4(), false)] {
        let Some(testbed) = testbed else { continue };
        let pool = testbed.open();
        assert_eq!(pool.provisioner().has_atomic_copies(), at_once);
        assert!(!pool.provisioner().has_atomic_groups());
    }
}
