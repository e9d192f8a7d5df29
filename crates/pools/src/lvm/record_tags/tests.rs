use std::collections::{BTreeMap, BTreeSet};

use orlop_model::record::version_of;
use orlop_model::{
    AccessMode, AccessType, CapabilitySet, Consistency, ContentSource, ControllerPublication,
    Encryption, EncryptionKind, EncryptionState, FormatState, FsType, FsUuid, GroupSnapshotId,
    IoLimits, LvmLayout, MountAccess, MountFlags, PoolId, Provisioning, RaidLevel, ReaderState,
    SnapshotId, Timestamp, VolumeCapability, VolumeGroupId, VolumeId, VolumeParameters,
};
use proptest::prelude::*;

use super::*;
use crate::lvm::layout::{OwnTag, RECORD, own_tag};

fn pool() -> PoolId {
    "01234567".parse().unwrap()
}

fn digest() -> impl Strategy<Value = NameDigest> {
    any::<u64>().prop_map(|number| NameDigest::of_text(&number.to_string()))
}

fn volume_id() -> impl Strategy<Value = VolumeId> {
    digest().prop_map(|digest| VolumeId::new(pool(), digest))
}

fn snapshot_id() -> impl Strategy<Value = SnapshotId> {
    digest().prop_map(|digest| SnapshotId::new(pool(), digest))
}

fn name() -> impl Strategy<Value = orlop_model::ObjectName> {
    any::<String>().prop_filter_map("is no name", |text| text.parse().ok())
}

fn created() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..1_000_000_000).prop_map(|(seconds, nanos)| Timestamp { seconds, nanos })
}

fn fs() -> impl Strategy<Value = FsType> {
    prop::sample::select(FsType::ALL.to_vec())
}

fn uuid() -> impl Strategy<Value = FsUuid> {
    any::<[u8; 16]>().prop_map(FsUuid::from_random)
}

fn format() -> impl Strategy<Value = FormatState> {
    prop_oneof![
        Just(FormatState::Blank),
        Just(FormatState::Raw),
        (fs(), uuid()).prop_map(|(fs, uuid)| FormatState::Formatting { fs, uuid }),
        (fs(), uuid()).prop_map(|(fs, uuid)| FormatState::Formatted { fs, uuid }),
        (fs(), uuid()).prop_map(|(fs, uuid)| FormatState::Copied { fs, uuid }),
        (fs(), uuid(), uuid()).prop_map(|(fs, old, new)| FormatState::Renewing { fs, old, new }),
    ]
}

fn mode() -> impl Strategy<Value = AccessMode> {
    prop::sample::select(vec![
        AccessMode::SingleNodeWriter,
        AccessMode::MultiNodeReaderOnly,
        AccessMode::SingleNodeMultiWriter,
    ])
}

/// Of one filesystem at most, as a set of capabilities has it.
fn capability(fs: Option<FsType>) -> impl Strategy<Value = VolumeCapability> {
    let flags = prop::sample::subsequence(vec!["noatime", "nodev", "discard"], 0..3);
    let mount = (flags, any::<Option<u32>>()).prop_map(move |(flags, group)| {
        let flags = flags.into_iter().map(str::to_owned).collect();
        AccessType::Mount(MountAccess { fs, flags: MountFlags::parse(flags).unwrap(), group })
    });
    let access = prop_oneof![Just(AccessType::Block), mount];
    (access, mode()).prop_map(|(access, mode)| VolumeCapability { access, mode })
}

fn capabilities() -> impl Strategy<Value = CapabilitySet> {
    let set = |fs| prop::collection::vec(capability(fs), 1..3);
    let set = prop::option::of(fs()).prop_flat_map(set);
    set.prop_filter_map("is no set", |set| CapabilitySet::new(set).ok())
}

fn parameters() -> impl Strategy<Value = VolumeParameters> {
    let provisioning = prop::sample::select(vec![Provisioning::Thin, Provisioning::Thick]);
    let options = prop::collection::vec("-[a-zA-Z]|[a-z0-9,=^.]{1,40}", 0..40);
    let pool = prop::option::of("[a-z]{1,9}");
    let raid = prop::option::of(prop::sample::select(RaidLevel::ALL.to_vec()));
    let numbers = any::<(Option<u32>, Option<u32>, Option<u64>)>();
    let layout = (raid, numbers).prop_map(|(raid, (mirrors, stripes, stripe_size))| LvmLayout {
        raid,
        mirrors,
        stripes,
        stripe_size,
    });
    (pool, provisioning, options, layout).prop_map(|(pool, provisioning, mkfs_options, lvm)| {
        VolumeParameters { pool, provisioning, mkfs_options, lvm, encryption: None }
    })
}

fn limits() -> impl Strategy<Value = IoLimits> {
    any::<[Option<u64>; 4]>().prop_map(|[read, write, read_bytes, write_bytes]| IoLimits {
        read_iops: read,
        write_iops: write,
        read_bytes_per_second: read_bytes,
        write_bytes_per_second: write_bytes,
    })
}

fn published() -> impl Strategy<Value = BTreeMap<orlop_model::NodeId, ControllerPublication>> {
    let node = "[a-z.&=/#:é-]{1,60}".prop_filter_map("is no node", |text| text.parse().ok());
    let reader = prop::sample::select(vec![ReaderState::Away, ReaderState::Reading]);
    let publication = (any::<[bool; 2]>(), capability(None), reader).prop_map(
        |([read_only, leaving], capability, reader)| ControllerPublication {
            read_only,
            capability,
            leaving,
            reader,
        },
    );
    prop::collection::btree_map(node, publication, 0..3)
}

fn encryption() -> impl Strategy<Value = Option<EncryptionState>> {
    let uuid = any::<[u8; 16]>().prop_map(FsUuid::from_random);
    prop::option::of(uuid.prop_flat_map(|uuid| {
        prop::sample::select(vec![
            EncryptionState::Unformatted,
            EncryptionState::Formatting { uuid },
            EncryptionState::Formatted { uuid },
        ])
    }))
}

prop_compose! {
    fn volume()(
        (id, name, capacity_bytes) in (volume_id(), name(), any::<u64>()),
        (capabilities, parameters, limits) in (capabilities(), parameters(), limits()),
        source in prop::option::of(prop_oneof![
            snapshot_id().prop_map(ContentSource::Snapshot),
            volume_id().prop_map(ContentSource::Volume),
        ]),
        (format, published, created) in (format(), published(), created()),
        [growing, ephemeral, never_published] in any::<[bool; 3]>(),
        encryption in encryption(),
    ) -> VolumeRecord {
        let kind = EncryptionKind::Luks2;
        let asked_for = encryption.map(|_| Encryption { kind, discard: growing });
        let parameters = VolumeParameters { encryption: asked_for, ..parameters };
        VolumeRecord {
            version: version_of(encryption),
            id, name, capacity_bytes, capabilities, parameters, limits, source, format, encryption,
            growing, ephemeral, never_published, created, published,
        }
    }
}

prop_compose! {
    fn snapshot()(
        (id, name, source, size_bytes) in (snapshot_id(), name(), volume_id(), any::<u64>()),
        (format, capabilities, created) in (format(), capabilities(), created()),
        group in prop::option::of(digest().prop_map(|digest| GroupSnapshotId::new(pool(), digest))),
        consistency in prop::sample::select(vec![Consistency::Alone, Consistency::Crash, Consistency::Filesystem]),
        encryption in encryption(),
    ) -> SnapshotRecord {
        SnapshotRecord {
            version: version_of(encryption),
            id, name, source, size_bytes, format, encryption, capabilities, created, group, consistency,
        }
    }
}

prop_compose! {
    fn group_snapshot()(
        (digest, name, created) in (digest(), name(), created()),
        members in prop::collection::vec(snapshot_id(), 0..60),
        is_of_several in any::<bool>(),
    ) -> GroupSnapshotRecord {
        let pools = if is_of_several { [pool(), "89abcdef".parse().unwrap()].into() } else { BTreeSet::new() };
        GroupSnapshotRecord { version: 1, id: GroupSnapshotId::new(pool(), digest), name, members, created, pools }
    }
}

prop_compose! {
    fn volume_group()(
        (digest, name, created, max_members) in (digest(), name(), created(), any::<u32>()),
        members in prop::collection::btree_set(volume_id(), 0..60),
    ) -> VolumeGroupRecord {
        VolumeGroupRecord { version: 1, id: VolumeGroupId::new(pool(), digest), name, members, max_members, created }
    }
}

fn piece_of(tag: &str) -> &str {
    match own_tag(tag) {
        Some(Ok(OwnTag::Piece { key: RECORD, piece })) => piece,
        other => panic!("{tag} is {other:?}"),
    }
}

fn read<R: TaggedRecord>(id: &R::Id, tags: &[String]) -> std::result::Result<R, String> {
    let pieces: Vec<&str> = tags.iter().map(|tag| piece_of(tag)).collect();
    read_record(id, &pieces)
}

/// LVM returns tags in an order of its own.
fn survives<R: TaggedRecord + PartialEq + std::fmt::Debug>(
    record: &R,
) -> std::result::Result<(), TestCaseError> {
    let mut tags = tags_of(RECORD, record).unwrap();
    for tag in &tags {
        prop_assert!(tag.len() <= 1024, "{} bytes", tag.len());
        prop_assert!(
            tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"_+.-/=!:&#".contains(&b)),
            "{}",
            tag
        );
    }
    tags.reverse();
    prop_assert_eq!(&read::<R>(record.id(), &tags), &Ok(record.clone()));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_record_survives_the_way_through_tags(
        volume in volume(), snapshot in snapshot(), group in group_snapshot(), volumes in volume_group(),
    ) {
        survives(&volume)?;
        survives(&snapshot)?;
        survives(&group)?;
        survives(&volumes)?;
    }

    #[test]
    fn damaged_tags_are_no_record(
        record in group_snapshot(), damage in any::<prop::sample::Index>(), with in "[a-zA-Z0-9=&#]",
    ) {
        let tags = tags_of(RECORD, &record).unwrap();
        let id = &record.id;
        // One character anywhere behind the key.
        let text = tags.concat();
        let at = damage.index(text.len());
        let (mut tag, mut offset) = (0, at);
        while offset >= tags[tag].len() {
            offset -= tags[tag].len();
            tag += 1;
        }
        let key = tags[tag].len() - piece_of(&tags[tag]).len();
        if offset >= key && !tags[tag][offset..].starts_with(&with) {
            let mut damaged = tags.clone();
            damaged[tag].replace_range(offset..=offset, &with);
            prop_assert!(read::<GroupSnapshotRecord>(id, &damaged).is_err(), "{:?}", damaged);
        }
        // One tag removed, or there twice.
        let mut removed = tags.clone();
        removed.remove(tag);
        prop_assert!(read::<GroupSnapshotRecord>(id, &removed).is_err());
        let mut twice = tags.clone();
        twice.push(tags[tag].clone());
        prop_assert!(read::<GroupSnapshotRecord>(id, &twice).is_err());
    }
}

fn usual_volume() -> VolumeRecord {
    let uuid = FsUuid::from_bytes([0xab; 16]);
    let mount = MountAccess { fs: Some(FsType::Xfs), flags: MountFlags::default(), group: None };
    let capability =
        VolumeCapability { access: AccessType::Mount(mount), mode: AccessMode::SingleNodeWriter };
    VolumeRecord {
        version: 1,
        id: VolumeId::new(pool(), NameDigest::of_text("x")),
        name: "pvc-8f14e45f-ceea-467f-a1d4-9c1f3f1c2b3a".parse().unwrap(),
        capacity_bytes: 10 << 30,
        capabilities: CapabilitySet::new(vec![capability]).unwrap(),
        parameters: VolumeParameters::default(),
        limits: IoLimits::default(),
        source: None,
        format: FormatState::Formatted { fs: FsType::Xfs, uuid },
        encryption: None,
        growing: false,
        ephemeral: false,
        never_published: false,
        created: Timestamp { seconds: 1_795_000_000, nanos: 5 },
        published: BTreeMap::new(),
    }
}

/// As it is on disks: to change this is to change the format.
#[test]
fn usual_record_is_one_short_readable_tag() {
    let tags = tags_of(RECORD, &usual_volume()).unwrap();
    assert_eq!(
        tags,
        [
            "orlop1:record:0/1:33a6c311:capabilities/0.access.mount.flags!!&capabilities/0.access.mount.fs=xfs&\
          capabilities/0.mode=single-node-writer&capacity_bytes:10737418240&created.nanos:5&\
          created.seconds:1795000000&format.fs=xfs&format.state=formatted&\
          format.uuid=abababab-abab-abab-abab-abababababab&name=pvc-8f14e45f-ceea-467f-a1d4-9c1f3f1c2b3a"
        ]
    );
}

#[test]
fn tags_of_another_object_are_no_record() {
    let record = usual_volume();
    let tags = tags_of(RECORD, &record).unwrap();
    let other = VolumeId::new(pool(), NameDigest::of_text("y"));
    let refused = read::<VolumeRecord>(&other, &tags).unwrap_err();
    assert!(refused.contains("written together for"), "{refused}");
    assert_eq!(read::<VolumeRecord>(&record.id, &tags), Ok(record));
    assert!(read::<VolumeRecord>(&other, &[]).is_err());
}

#[test]
fn record_of_a_later_version_is_refused() {
    let record = VolumeRecord { version: 2, ..usual_volume() };
    let tags = tags_of(RECORD, &record).unwrap();
    let refused = read::<VolumeRecord>(&record.id, &tags).unwrap_err();
    assert!(refused.contains("version 2"), "{refused}");
}

/// A record without a layout is as it was before there were any.
#[test]
fn parameters_of_before_layouts_are_read_and_written_as_they_were() {
    let before = r#"{"pool":null,"provisioning":"thick","mkfs_options":[]}"#;
    let mut parameters: VolumeParameters = serde_json::from_str(before).unwrap();
    assert_eq!(parameters.lvm, LvmLayout::default());
    assert_eq!(serde_json::to_string(&parameters).unwrap(), before);
    parameters.lvm.raid = Some(RaidLevel::Raid10);
    parameters.lvm.stripe_size = Some(1 << 20);
    let text = serde_json::to_string(&parameters).unwrap();
    assert!(text.ends_with(r#""lvm":{"raid":"raid10","stripe_size":1048576}}"#), "{text}");
}
