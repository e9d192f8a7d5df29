use orlop_model::{
    AccessMode, AccessType, ByteRange, CapabilitySet, Consistency, ContentSource, DeviceAccess,
    Error, FormatState, GroupSnapshotId, IoLimits, NameDigest, NewGroupSnapshot, NewSnapshot,
    NewVolume, Provisioning, Ranges, Result, SnapshotId, SnapshotRecord, VolumeCapability,
    VolumeGroupId, VolumeGroupRecord, VolumeId, VolumeParameters, VolumeRecord,
};

use super::*;

mod groups;

const MIB: u64 = 1 << 20;

fn pool() -> MemoryPool {
    MemoryPool::new(MemoryPoolConfig { capacity_bytes: 100 * MIB, ..MemoryPoolConfig::default() })
}

fn volume(pool: &MemoryPool, name: &str, bytes: u64) -> NewVolume {
    let block = VolumeCapability { access: AccessType::Block, mode: AccessMode::SingleNodeWriter };
    NewVolume {
        id: VolumeId::new(pool.id().clone(), NameDigest::of_text(name)),
        name: name.parse().unwrap(),
        capacity_bytes: bytes,
        capabilities: CapabilitySet::new(vec![block]).unwrap(),
        parameters: VolumeParameters::default(),
        limits: IoLimits::default(),
        source: None,
        format: FormatState::Blank,
        encryption: None,
        filesystem: None,
        ephemeral: false,
    }
}

fn create(pool: &MemoryPool, new: &NewVolume) -> VolumeRecord {
    let mut draft = pool.provisioner().begin_volume(new).unwrap();
    draft.capture().unwrap();
    draft.commit().unwrap()
}

#[test]
fn copies_inherit_data_written_before_the_capture() {
    let pool = pool();
    let source = create(&pool, &volume(&pool, "source", 10 * MIB));
    pool.write_tag(&source.id, "one").unwrap();
    let new = NewSnapshot {
        id: SnapshotId::new(pool.id().clone(), NameDigest::of_text("s")),
        name: "s".parse().unwrap(),
        source: source.clone(),
        format: FormatState::Raw,
        consistency: Consistency::Crash,
    };
    let mut draft = pool.provisioner().begin_snapshot(&new).unwrap();
    draft.capture().unwrap();
    pool.write_tag(&source.id, "two").unwrap();
    draft.commit().unwrap();
    assert_eq!(pool.snapshot_tag(&new.id).as_deref(), Some("one"));

    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    let mut restored = volume(&pool, "restored", 10 * MIB);
    restored.source = Some(ContentSource::Snapshot(new.id));
    let restored = create(&pool, &restored);
    assert_eq!(pool.tag(&restored.id).unwrap(), "one");
}

#[test]
fn draft_reserves_its_space() {
    let pool = pool();
    let large = volume(&pool, "large", 100 * MIB);
    let draft = pool.provisioner().begin_volume(&large).unwrap();
    let small = volume(&pool, "small", MIB);
    let refused = pool.provisioner().begin_volume(&small).err();
    assert!(matches!(refused, Some(Error::Exhausted(_))));
    drop(draft);
    create(&pool, &large);
    let capacity = pool.provisioner().capacity(Provisioning::Thin).unwrap();
    assert_eq!(capacity.largest_volume, 0);
    let huge = volume(&pool, "huge", 101 * MIB);
    let refused = pool.provisioner().begin_volume(&huge).err();
    assert!(matches!(refused, Some(Error::OutOfRange(_))));
    pool.provisioner().ensure_no_volume(&large.id).unwrap();
    create(&pool, &small);
    let grown = pool.provisioner().ensure_capacity(&small.id, 100 * MIB).unwrap();
    assert_eq!(grown.capacity_bytes, 100 * MIB);
}

#[test]
fn injected_failure_occurs_once() {
    let pool = pool();
    let new = volume(&pool, "a", MIB);
    pool.fail_next("commit", Error::failed("commit", "as asked"));
    let draft = pool.provisioner().begin_volume(&new).unwrap();
    assert!(draft.commit().is_err());
    assert_eq!(pool.catalogue().volume(&new.id).unwrap(), None);
    let record = create(&pool, &new);
    pool.fail_next("ensure_attached", Error::failed("attach", "as asked"));
    let access = DeviceAccess::ReadWrite;
    assert!(pool.devices().ensure_attached(&record.id, access).is_err());
    let device = pool.devices().ensure_attached(&record.id, access).unwrap();
    assert_eq!(pool.devices().ensure_attached(&record.id, access).unwrap(), device);
    assert_eq!(pool.devices().attached_volumes().unwrap(), std::slice::from_ref(&record.id));
    pool.devices().ensure_detached(&record.id, access).unwrap();
    assert_eq!(pool.devices().attached(&record.id, access).unwrap(), None);
}

#[test]
fn damage_is_an_error_not_absence() {
    let pool = pool();
    let record = create(&pool, &volume(&pool, "a", MIB));
    pool.damage_volume(&record.id, "as asked");
    assert!(matches!(pool.catalogue().volume(&record.id), Err(Error::Damaged { .. })));
    assert!(pool.provisioner().ensure_no_volume(&record.id).is_err());
    assert!(pool.health().condition(&record.id).unwrap().is_abnormal());
    assert_eq!(pool.catalogue().volumes(None, 0).unwrap().len(), 1);
}

#[test]
fn devices_of_two_pools_differ() {
    let [first, second] = [pool(), pool()].map(|pool| {
        let record = create(&pool, &volume(&pool, "a", MIB));
        pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite).unwrap()
    });
    assert_ne!((first.major, first.minor), (second.major, second.minor));
    assert_ne!(first.path, second.path);
}
