//! Encrypted volumes: when a header is written, which key opens what, and what workloads then use.

use std::sync::Arc;

use orlop_engine::request::{CreateVolume, NodeExpand, PublishVolume, RotateKey, StageVolume};
use orlop_host::memory::Op;
use orlop_model::encryption::HEADER_BYTES;
use orlop_model::{
    ByteRange, Device, DeviceAccess, EncryptionState, Error, FormatState, FsType, FsUuid,
    HostMounts, Pool, Secret, SnapshotId, VolumeId, VolumeKeys,
};

use crate::fixture::*;

const KEY: &str = "correct horse";
const OTHER_KEY: &str = "battery staple";

fn secret(text: &str) -> Secret {
    Secret::new("secrets", text.as_bytes().to_vec()).unwrap()
}

fn key(text: &str) -> Arc<VolumeKeys> {
    Arc::new(VolumeKeys { current: Some(secret(text)), previous: None })
}

fn both(current: &str, previous: &str) -> VolumeKeys {
    VolumeKeys { current: Some(secret(current)), previous: Some(secret(previous)) }
}

fn encrypted(request: CreateVolume) -> CreateVolume {
    CreateVolume { parameters: parameters(&[("encryption", "luks2")]), ..request }
}

fn with_key(text: &str, request: StageVolume) -> StageVolume {
    StageVolume { keys: key(text), ..request }
}

fn stage_with(fixture: &Fixture, id: &VolumeId, text: &str) -> Result<(), Error> {
    fixture.engine.stage_volume(&with_key(text, stage(id)))
}

fn mapping(fixture: &Fixture, id: &VolumeId) -> Device {
    let device = fixture.device(id);
    assert!(fixture.host.is_open(&device));
    fixture.host.mapping_of(&device)
}

fn is_formatted(fixture: &Fixture, id: &VolumeId) -> bool {
    matches!(fixture.record(id).encryption, Some(EncryptionState::Formatted { .. }))
}

#[test]
fn workload_gets_the_mapping_and_unstaging_closes_it() {
    let fixture = Fixture::new();
    let id = fixture.create_as(encrypted(volume_of("v", FsType::Xfs)));
    assert_eq!(fixture.record(&id).encryption, Some(EncryptionState::Unformatted));
    assert_eq!(fixture.record(&id).version, 2, "an older version refuses it");
    stage_with(&fixture, &id, KEY).unwrap();
    let (device, mapping) = (fixture.device(&id), mapping(&fixture, &id));
    let mounted = fixture.host.mount_at(&path(STAGING)).unwrap().unwrap();
    assert!(mounted.is_of(&mapping) && !mounted.is_of(&device));
    assert!(is_formatted(&fixture, &id));
    fixture.publish(&id);
    fixture.unpublish(&id, TARGET).unwrap();
    fixture.unstage(&id).unwrap();
    assert!(!fixture.host.is_open(&device));
    fixture.assert_node_is_clean();
    stage_with(&fixture, &id, KEY).unwrap();
    assert_eq!(fixture.host.count(Op::Encrypt), 1);
    assert_eq!(fixture.host.count(Op::Format), 1);
}

#[test]
fn raw_volume_is_published_by_its_mapping() {
    let fixture = Fixture::new();
    let id = fixture.create_as(encrypted(block_volume("v")));
    let staged = with_key(KEY, stage_block(&id));
    fixture.engine.stage_volume(&staged).unwrap();
    fixture.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    let shown = fixture.host.mount_at(&path(TARGET)).unwrap().unwrap();
    assert!(shown.is_of(&mapping(&fixture, &id)));
    let stats = fixture.engine.volume_stats(&issued(&id), &path(TARGET)).unwrap();
    assert!(!stats.condition.is_abnormal(), "{:?}", stats.condition);
    fixture.unpublish(&id, TARGET).unwrap();
    // A second device, which takes a key.
    let reader = PublishVolume { read_only: true, ..publish_block(&id, TARGET) };
    refused!(fixture.engine.publish_volume(&reader), Error::Invalid { .. });
    fixture.unstage(&id).unwrap();
    fixture.assert_node_is_clean();
}

#[test]
fn stage_of_a_raw_volume_whose_mapping_is_gone_is_none() {
    let mut fixture = Fixture::new();
    let id = fixture.create_as(encrypted(block_volume("v")));
    let staged = with_key(KEY, stage_block(&id));
    fixture.engine.stage_volume(&staged).unwrap();
    let device = fixture.device(&id);
    close_behind_our_back(&fixture, &id, &device);
    fixture.restart();
    let published = fixture.engine.publish_volume(&publish_block(&id, TARGET));
    refused!(published, Error::Precondition(_));
    fixture.engine.stage_volume(&staged).unwrap();
    fixture.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    let shown = fixture.host.mount_at(&path(TARGET)).unwrap().unwrap();
    assert!(shown.is_of(&mapping(&fixture, &id)));
}

fn close_behind_our_back(fixture: &Fixture, id: &VolumeId, device: &Device) {
    use orlop_model::HostEncryption;
    fixture.host.ensure_closed(id, DeviceAccess::ReadWrite, device).unwrap();
}

#[test]
fn wrong_and_missing_keys_are_refused_and_leave_nothing() {
    let fixture = Fixture::new();
    let id = fixture.create_as(encrypted(volume("v")));
    refused!(fixture.engine.stage_volume(&stage(&id)), Error::Invalid { .. });
    assert_eq!(fixture.record(&id).encryption, Some(EncryptionState::Unformatted));
    fixture.assert_node_is_clean();

    stage_with(&fixture, &id, KEY).unwrap();
    let wrong = refused!(stage_with(&fixture, &id, OTHER_KEY), Error::Unauthenticated(_));
    assert!(!wrong.to_string().contains(OTHER_KEY), "{wrong}");
    refused!(fixture.engine.stage_volume(&stage(&id)), Error::Invalid { .. });
    assert!(fixture.host.mount_at(&path(STAGING)).unwrap().is_some(), "it stays staged");
    stage_with(&fixture, &id, KEY).unwrap();

    fixture.unstage(&id).unwrap();
    let wrong = refused!(stage_with(&fixture, &id, OTHER_KEY), Error::Unauthenticated(_));
    assert!(wrong.to_string().contains("volume v-"), "{wrong}");
    fixture.assert_node_is_clean();
    assert_eq!(fixture.host.count(Op::Encrypt), 1);
}

#[test]
fn key_for_a_volume_that_is_not_encrypted_is_refused() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    refused!(stage_with(&fixture, &id, KEY), Error::Invalid { .. });
    fixture.assert_node_is_clean();
}

#[test]
fn key_of_the_call_comes_before_that_of_the_operator() {
    let fixture = Fixture::new();
    fixture.host.set_key_file("default", OTHER_KEY);
    let by_file = fixture.create_as(encrypted(volume("a")));
    fixture.stage(&by_file);
    assert!(fixture.host.opens_with(&fixture.device(&by_file), OTHER_KEY));
    fixture.unstage(&by_file).unwrap();
    let by_call = fixture.create_as(encrypted(volume("b")));
    stage_with(&fixture, &by_call, KEY).unwrap();
    assert!(!fixture.host.opens_with(&fixture.device(&by_call), OTHER_KEY));
}

#[test]
fn crash_around_luks_format_resumes_with_the_recorded_uuid() {
    // Of the updates of the record, the first announces the header, and the second says that it is there.
    for (interrupted, by) in [(Op::Encrypt, "luksFormat"), (Op::Open, "open"), (Op::Format, "mkfs")]
    {
        let mut fixture = Fixture::new();
        let id = fixture.create_as(encrypted(volume("v")));
        fixture.host.fail_next(interrupted, Error::failed(by, "killed"));
        stage_with(&fixture, &id, KEY).unwrap_err();
        let before = fixture.record(&id).encryption.unwrap();
        fixture.restart();
        stage_with(&fixture, &id, KEY).unwrap();
        let (EncryptionState::Formatting { uuid } | EncryptionState::Formatted { uuid }) = before
        else {
            panic!("{before:?}");
        };
        let now = fixture.record(&id).encryption;
        assert_eq!(now, Some(EncryptionState::Formatted { uuid }), "{by}");
        assert_eq!(fixture.host.count(Op::Encrypt), 1, "{by}");
    }
}

#[test]
fn crash_after_luks_format_writes_the_header_again() {
    let mut fixture = Fixture::new();
    let id = fixture.create_as(encrypted(volume("v")));
    fixture.pool().fail_after("update_volume", 1, Error::failed("write", "killed"));
    stage_with(&fixture, &id, KEY).unwrap_err();
    assert!(!is_formatted(&fixture, &id));
    fixture.restart();
    // Nothing was ever written through a mapping, so another key may be given.
    stage_with(&fixture, &id, OTHER_KEY).unwrap();
    assert!(fixture.host.opens_with(&fixture.device(&id), OTHER_KEY));
    assert_eq!(fixture.host.count(Op::Encrypt), 2);
}

#[test]
fn volume_that_holds_data_is_not_encrypted_over_it() {
    let fixture = Fixture::new();
    let id = fixture.create_as(encrypted(volume("v")));
    let block = ByteRange { start: 512 * MIB, length: 4096 };
    fixture.pool().write_blocks(&id, block).unwrap();
    refused!(stage_with(&fixture, &id, KEY), Error::Damaged { .. });
    assert_eq!(fixture.host.count(Op::Encrypt), 0);
}

#[test]
fn header_of_another_volume_is_neither_opened_nor_replaced() {
    let fixture = Fixture::new();
    let (one, other) =
        (fixture.create_as(encrypted(volume("a"))), fixture.create_as(encrypted(volume("b"))));
    for id in [&one, &other] {
        stage_with(&fixture, id, KEY).unwrap();
        fixture.unstage(id).unwrap();
    }
    let devices = fixture.pool().devices();
    let from = devices.ensure_attached(&one, DeviceAccess::ReadWrite).unwrap();
    let to = devices.ensure_attached(&other, DeviceAccess::ReadWrite).unwrap();
    fixture.host.copy_header(&from, &to);
    for id in [&one, &other] {
        devices.ensure_detached(id, DeviceAccess::ReadWrite).unwrap();
    }
    stage_with(&fixture, &one, KEY).unwrap();
    fixture.unstage(&one).unwrap();
    refused!(stage_with(&fixture, &other, KEY), Error::Damaged { .. });
    assert_eq!(fixture.host.count(Op::Encrypt), 2);
}

#[test]
fn filesystem_is_made_only_where_nothing_was_written_through_the_mapping() {
    let fixture = Fixture::new();
    let id = fixture.create_as(encrypted(volume("v")));
    fixture.host.fail_next(Op::Probe, Error::failed("probe", "killed"));
    stage_with(&fixture, &id, KEY).unwrap_err();
    let device = fixture.pool().devices().ensure_attached(&id, DeviceAccess::ReadWrite).unwrap();
    let uuid = FsUuid::from_random([9; 16]);
    let there =
        orlop_model::DeviceSignature::Filesystem { fs: FsType::Xfs, uuid, needs_check: false };
    fixture.host.set_signature(&fixture.host.mapping_of(&device), there);
    fixture.pool().devices().ensure_detached(&id, DeviceAccess::ReadWrite).unwrap();
    refused!(stage_with(&fixture, &id, KEY), Error::Damaged { .. });
    assert_eq!((fixture.host.count(Op::Format), fixture.format(&id)), (0, FormatState::Blank));
}

#[test]
fn copies_are_encrypted_as_their_source_is() {
    let fixture = Fixture::new();
    let origin = fixture.create_as(encrypted(volume("origin")));
    stage_with(&fixture, &origin, KEY).unwrap();
    let plain = fixture.create("plain");
    let saved = fixture.snapshot("s", &origin);
    let state = fixture.record(&origin).encryption;

    refused!(fixture.engine.create_volume(&restored("a", &saved)), Error::Invalid { .. });
    refused!(fixture.engine.create_volume(&cloned("a", &origin)), Error::Invalid { .. });
    refused!(fixture.engine.create_volume(&encrypted(cloned("a", &plain))), Error::Invalid { .. });
    for request in [encrypted(restored("a", &saved)), encrypted(cloned("b", &origin))] {
        let id = fixture.create_as(request);
        let record = fixture.record(&id);
        assert_eq!((record.encryption, record.version), (state, 2));
    }
}

#[test]
fn volume_that_is_being_encrypted_is_not_copied() {
    let fixture = Fixture::new();
    let id = fixture.create_as(encrypted(volume("v")));
    fixture.host.fail_next(Op::Encrypt, Error::failed("luksFormat", "killed"));
    stage_with(&fixture, &id, KEY).unwrap_err();
    refused!(fixture.engine.create_snapshot(&snapshot("s", &id)), Error::Precondition(_));
    refused!(fixture.engine.create_volume(&encrypted(cloned("c", &id))), Error::Precondition(_));
}

#[test]
fn machine_that_cannot_encrypt_refuses_at_creation_and_says_why() {
    let fixture = Fixture::new();
    let why = || Error::precondition("the kernel has no device-mapper");
    fixture.host.fail_next(Op::CheckEncryption, why());
    let refused = refused!(
        fixture.engine.create_volume(&encrypted(volume("v"))),
        Error::Invalid { field: "parameters", .. }
    );
    assert!(refused.to_string().contains("device-mapper"), "{refused}");
    let id = fixture.create_as(encrypted(volume("v")));
    fixture.host.fail_next(Op::CheckEncryption, why());
    refused!(stage_with(&fixture, &id, KEY), Error::Precondition(_));
    fixture.assert_node_is_clean();
}

#[test]
fn header_counts_at_creation() {
    let fixture = Fixture::new();
    let sized =
        |bytes| CreateVolume { range: Some(range(0, bytes)), ..encrypted(block_volume("v")) };
    refused!(fixture.engine.create_volume(&sized(HEADER_BYTES)), Error::OutOfRange(_));
    let id = fixture.create_as(sized(HEADER_BYTES + MIB));
    assert_eq!(fixture.record(&id).usable_bytes(), MIB);
}

#[test]
fn growth_reaches_the_filesystem_without_a_key() {
    let fixture = Fixture::new();
    let id = fixture.create_as(encrypted(volume_of("v", FsType::Ext4)));
    stage_with(&fixture, &id, KEY).unwrap();
    fixture.engine.expand_volume(&id, &range(2 * GIB, 0), None).unwrap();
    fixture.host.set_device_size(&fixture.device(&id), 2 * GIB);
    let request =
        NodeExpand { volume: issued(&id), path: path(STAGING), range: None, capability: None };
    assert_eq!(fixture.engine.expand_node_volume(&request).unwrap(), 2 * GIB);
    let mapping = mapping(&fixture, &id);
    assert_eq!(fixture.host.filesystem_size(&mapping), 2 * GIB - HEADER_BYTES);
}

#[test]
fn limits_are_those_of_the_mapping_and_go_with_it() {
    let fixture = Fixture::new();
    let id = fixture.create_as(CreateVolume {
        limits: limits(&[("readIops", "100")]),
        ..encrypted(volume("v"))
    });
    stage_with(&fixture, &id, KEY).unwrap();
    let (device, mapping) = (fixture.device(&id), mapping(&fixture, &id));
    assert_eq!(fixture.host.limits(&mapping).read_iops, Some(100));
    assert!(fixture.host.limits(&device).is_unlimited());
    fixture.unstage(&id).unwrap();
    assert!(fixture.host.limits(&mapping).is_unlimited());
}

#[test]
fn blocks_are_those_that_a_restored_volume_shows() {
    let fixture = Fixture::new();
    let id = fixture.create_as(encrypted(block_volume("v")));
    fixture.engine.stage_volume(&with_key(KEY, stage_block(&id))).unwrap();
    let write = |start, length| {
        fixture.pool().write_blocks(&id, ByteRange { start, length }).unwrap();
    };
    // Another key is no change that a workload sees.
    write(0, 8192);
    write(HEADER_BYTES - 4096, 8192);
    let first = fixture.snapshot("first", &id);
    write(0, 4096);
    write(HEADER_BYTES + MIB, 4096);
    let second = fixture.snapshot("second", &id);

    let size = GIB - HEADER_BYTES;
    assert_eq!(allocated(&fixture, &first, 0), (size, vec![(0, 4096)]));
    assert_eq!(allocated(&fixture, &second, 4096), (size, vec![(MIB, 4096)]));
    let changed = fixture.engine.changed_blocks(&first, &second, 0).unwrap();
    assert_eq!(listed(changed.ranges), [(MIB, 4096)]);
    assert!(fixture.engine.allocated_blocks(&second, size).is_ok());
    let Err(refused) = fixture.engine.allocated_blocks(&second, size + 1) else {
        panic!("the offset is accepted")
    };
    assert!(matches!(refused, Error::OutOfRange(_)), "{refused:?}");
}

fn allocated(fixture: &Fixture, id: &SnapshotId, start: u64) -> (u64, Vec<(u64, u64)>) {
    let blocks = fixture.engine.allocated_blocks(id, start).unwrap();
    (blocks.capacity_bytes, listed(blocks.ranges))
}

fn listed(ranges: orlop_model::Ranges) -> Vec<(u64, u64)> {
    ranges.filter_map(|range| range.unwrap()).map(|range| (range.start, range.length)).collect()
}

#[test]
fn key_is_rotated_whichever_keys_the_caller_believes_in() {
    let fixture = Fixture::new();
    let id = fixture.create_as(encrypted(volume("v")));
    stage_with(&fixture, &id, KEY).unwrap();
    let device = fixture.device(&id);
    let rotate = |new: Option<&str>, keys: VolumeKeys| {
        let new = new.map(secret);
        let request = RotateKey { volume: id.clone(), path: path(STAGING), new, keys };
        fixture.engine.rotate_key(&request)
    };
    let only = |text: &str| VolumeKeys { current: Some(secret(text)), previous: None };
    refused!(rotate(Some("x"), only("wrong")), Error::Unauthenticated(_));
    refused!(rotate(Some("x"), VolumeKeys::default()), Error::Invalid { .. });
    // By `encryption_key`, and repeated with the old Secret and the new one.
    for keys in [only(KEY), only(KEY), only(OTHER_KEY), both(OTHER_KEY, KEY)] {
        rotate(Some(OTHER_KEY), keys).unwrap();
        assert!(fixture.host.opens_with(&device, OTHER_KEY));
        assert!(!fixture.host.opens_with(&device, KEY));
    }
    // By a Secret that has both, as Kubernetes sends it.
    for _ in 0..2 {
        rotate(None, both(KEY, OTHER_KEY)).unwrap();
        assert!(fixture.host.opens_with(&device, KEY));
        assert!(!fixture.host.opens_with(&device, OTHER_KEY));
    }
    fixture.unstage(&id).unwrap();
    let before = StageVolume { keys: Arc::new(both("next", KEY)), ..stage(&id) };
    fixture.engine.stage_volume(&before).unwrap();
    let elsewhere = RotateKey {
        volume: id.clone(),
        path: path("/staging/elsewhere"),
        new: None,
        keys: VolumeKeys::default(),
    };
    refused!(fixture.engine.rotate_key(&elsewhere), Error::NotAtPath { .. });
}

#[test]
fn key_of_a_volume_that_is_not_encrypted_is_not_rotated() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    let keys = VolumeKeys { current: Some(secret(KEY)), previous: None };
    let request = RotateKey { volume: id, path: path(STAGING), new: None, keys };
    refused!(fixture.engine.rotate_key(&request), Error::Invalid { .. });
}

#[test]
fn frozen_is_what_is_mounted_from_the_mapping() {
    let fixture = Fixture::new();
    let id = fixture.create_as(encrypted(volume_of("v", FsType::Xfs)));
    stage_with(&fixture, &id, KEY).unwrap();
    fixture.host.clear_log();
    fixture.snapshot("s", &id);
    assert_eq!(fixture.host.count(Op::Freeze), 1);
}

#[test]
fn zeroes_of_an_encrypted_volume_are_not_looked_for() {
    let fixture = Fixture::new();
    let id = fixture.create_as(encrypted(volume("v")));
    fixture.pool().fail_next("ensure_reclaimed", Error::failed("reclaim", "it was called"));
    fixture.engine.reclaim_on_pool(&id).unwrap();
}
