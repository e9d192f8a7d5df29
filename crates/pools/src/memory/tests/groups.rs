use std::collections::BTreeSet;

use orlop_model::Timestamp;
use orlop_model::record::RECORD_VERSION;

use super::*;

fn snapshot_of(pool: &MemoryPool, name: &str, source: &VolumeRecord) -> NewSnapshot {
    NewSnapshot {
        id: SnapshotId::new(pool.id().clone(), NameDigest::of_text(name)),
        name: name.parse().unwrap(),
        source: source.clone(),
        format: FormatState::Raw,
        consistency: Consistency::Filesystem,
    }
}

fn snapshot(pool: &MemoryPool, name: &str, source: &VolumeRecord) -> SnapshotRecord {
    pool.provisioner().begin_snapshot(&snapshot_of(pool, name, source)).unwrap().commit().unwrap()
}

fn group_of(pool: &MemoryPool, sources: &[VolumeRecord]) -> NewGroupSnapshot {
    let member = |source: &VolumeRecord| snapshot_of(pool, &format!("g/{}", source.name), source);
    NewGroupSnapshot {
        id: GroupSnapshotId::new(pool.id().clone(), NameDigest::of_text("g")),
        name: "g".parse().unwrap(),
        members: sources.iter().map(member).collect(),
        pools: BTreeSet::new(),
    }
}

fn range(start: u64, length: u64) -> ByteRange {
    ByteRange { start, length }
}

#[test]
fn group_snapshot_is_created_and_deleted_as_one() {
    let pool = pool();
    let sources = ["a", "b"].map(|name| create(&pool, &volume(&pool, name, MIB)));
    let new = group_of(&pool, &sources);
    let mut draft = pool.provisioner().begin_group_snapshot(&new).unwrap();
    pool.write_tag(&sources[0].id, "before").unwrap();
    draft.capture().unwrap();
    pool.write_tag(&sources[0].id, "after").unwrap();
    assert!(pool.catalogue().snapshots(None, 0).unwrap().is_empty());
    let group = draft.commit().unwrap();
    assert_eq!(pool.catalogue().group_snapshot(&group.id).unwrap().as_ref(), Some(&group));
    for member in pool.catalogue().snapshots(None, 0).unwrap() {
        assert_eq!(member.group.as_ref(), Some(&group.id));
        assert_eq!(member.created, group.created);
        assert_eq!(member.consistency, Consistency::Filesystem);
    }
    assert_eq!(pool.snapshot_tag(&new.members[0].id).as_deref(), Some("before"));
    assert!(pool.provisioner().ensure_no_snapshot(&new.members[0].id).is_err());

    let alone = snapshot(&pool, "alone", &sources[0]);
    pool.provisioner().ensure_no_group_snapshot(&group.id).unwrap();
    assert_eq!(pool.catalogue().snapshots(None, 0).unwrap(), [alone]);
    assert_eq!(pool.catalogue().group_snapshot(&group.id).unwrap(), None);
}

#[test]
fn failed_group_snapshot_leaves_nothing() {
    let pool = pool();
    let sources = ["a", "b"].map(|name| create(&pool, &volume(&pool, name, MIB)));
    let new = group_of(&pool, &sources);
    for operation in ["begin_group_snapshot", "capture", "commit"] {
        pool.fail_next(operation, Error::failed(operation, "as asked"));
        let made = pool.provisioner().begin_group_snapshot(&new).and_then(|mut draft| {
            draft.capture()?;
            draft.commit()
        });
        assert!(made.is_err());
        assert!(pool.catalogue().snapshots(None, 0).unwrap().is_empty());
        assert_eq!(pool.catalogue().group_snapshot(&new.id).unwrap(), None);
    }
}

#[test]
fn written_blocks_are_reported() {
    let pool = pool();
    let source = create(&pool, &volume(&pool, "a", MIB));
    pool.write_blocks(&source.id, range(0, 8192)).unwrap();
    let base = snapshot(&pool, "base", &source);
    pool.write_blocks(&source.id, range(5000, 1)).unwrap();
    pool.write_blocks(&source.id, range(MIB - 4096, 4096)).unwrap();
    assert!(pool.write_blocks(&source.id, range(MIB, 1)).is_err());
    let target = snapshot(&pool, "target", &source);

    let collected = |ranges: Result<Ranges>| {
        ranges.unwrap().filter_map(Result::transpose).collect::<Result<Vec<_>>>()
    };
    let end = range(MIB - 4096, 4096);
    assert_eq!(
        collected(pool.changed_blocks().allocated_ranges(&target.id, 0)),
        Ok(vec![range(0, 8192), end])
    );
    assert_eq!(
        collected(pool.changed_blocks().allocated_ranges(&target.id, 100)),
        Ok(vec![range(100, 8092), end])
    );
    let changed = |start| pool.changed_blocks().changed_ranges(&base.id, &target.id, start);
    assert_eq!(collected(changed(0)), Ok(vec![range(4096, 4096), end]));
    assert_eq!(collected(changed(8192)), Ok(vec![end]));
    pool.fail_after("range", 1, Error::Starting);
    assert_eq!(collected(changed(0)), Err(Error::Starting));
    let missing = SnapshotId::new(pool.id().clone(), NameDigest::of_text("missing"));
    assert!(matches!(
        pool.changed_blocks().allocated_ranges(&missing, 0).err(),
        Some(Error::NoSuchSnapshot(_))
    ));
}

#[test]
fn zeroes_take_space_until_they_are_reclaimed() {
    let pool = pool();
    let source = create(&pool, &volume(&pool, "a", MIB));
    pool.write_blocks(&source.id, range(0, 8192)).unwrap();
    pool.write_zeroes(&source.id, range(4096, 8192)).unwrap();
    assert_eq!(pool.provisioner().used_bytes(&source.id).unwrap(), 3 * 4096);
    pool.provisioner().ensure_reclaimed(&source.id).unwrap();
    assert_eq!(pool.provisioner().used_bytes(&source.id).unwrap(), 4096);
}

#[test]
fn volume_groups_are_recorded() {
    let pool = pool();
    let record = VolumeGroupRecord {
        version: RECORD_VERSION,
        id: VolumeGroupId::new(pool.id().clone(), NameDigest::of_text("g")),
        name: "g".parse().unwrap(),
        members: BTreeSet::new(),
        max_members: 1,
        created: Timestamp { seconds: 1, nanos: 2 },
    };
    pool.catalogue().save_volume_group(&record, None).unwrap();
    let again = pool.catalogue().save_volume_group(&record, None);
    assert!(matches!(again, Err(Error::Busy { .. })), "another caller is making it");
    assert_eq!(pool.catalogue().volume_groups(None, 0).unwrap(), std::slice::from_ref(&record));
    assert_eq!(pool.catalogue().volume_group(&record.id).unwrap().as_ref(), Some(&record));
    pool.catalogue().ensure_no_volume_group(&record.id).unwrap();
    assert_eq!(pool.catalogue().volume_group(&record.id).unwrap(), None);
}

#[test]
fn pool_reports_its_atomicity() {
    let pool = pool();
    assert!(pool.provisioner().has_atomic_copies() && pool.provisioner().has_atomic_groups());
    pool.capture_groups_piecemeal();
    assert!(pool.provisioner().has_atomic_copies() && !pool.provisioner().has_atomic_groups());
    pool.capture_piecemeal();
    assert!(!pool.provisioner().has_atomic_copies() && !pool.provisioner().has_atomic_groups());
}
