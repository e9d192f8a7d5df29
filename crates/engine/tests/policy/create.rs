//! CreateVolume: the same name is the same volume, or a clash.

use orlop_engine::request::CreateVolume;
use orlop_host::MemoryHost;
use orlop_host::memory::Op;
use orlop_model::{
    AccessMode, CapabilitySet, ContentSource, Error, FsType, Provisioning, SnapshotId,
    TopologyRequirement, VolumeId,
};

use crate::fixture::*;

fn requisite(names: &[&str]) -> Option<TopologyRequirement> {
    let places = names.iter().map(|name| zone(name)).collect();
    Some(TopologyRequirement::new(places, vec![]).unwrap())
}

#[test]
fn a_repeated_creation_finds_the_volume_of_the_first() {
    let fixture = Fixture::new();
    let first = fixture.engine.create_volume(&volume("v")).unwrap();
    let again = fixture.engine.create_volume(&volume("v")).unwrap();
    assert_eq!(again.record, first.record);
    assert_eq!((again.topology, again.context), (first.topology, first.context));
    assert_eq!(fixture.names(), ["v"]);
}

#[test]
fn different_names_are_different_volumes() {
    let fixture = Fixture::new();
    let ids = ["v", "V", "v ", "../v", "é"].map(|name| fixture.create(name));
    for (index, id) in ids.iter().enumerate() {
        assert!(!ids[..index].contains(id));
    }
}

#[test]
fn compatible_repetitions_are_the_same_volume() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let same = [
        CreateVolume { range: None, ..volume("v") },
        CreateVolume { range: Some(range(0, 2 * GIB)), ..volume("v") },
        CreateVolume { range: Some(range(GIB / 2, GIB)), ..volume("v") },
        volume_of("v", FsType::Xfs),
        CreateVolume { topology: requisite(&["z2", "z1"]), ..volume("v") },
        // Open point 4: limits change during a volume's life, so they do not make it another.
        CreateVolume { limits: limits(&[("readIops", "100")]), ..volume("v") },
    ];
    for request in same {
        assert_eq!(fixture.engine.create_volume(&request).unwrap().record.id, id, "{request:?}");
    }
}

#[test]
fn name_of_a_different_volume_conflicts() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let origin = fixture.create("origin");
    let snapshot = fixture.snapshot("s", &origin);
    let writer = AccessMode::SingleNodeWriter;
    let before = fixture.record(&id);
    let clashes = [
        ("larger", CreateVolume { range: Some(range(2 * GIB, 0)), ..volume("v") }),
        ("smaller", CreateVolume { range: Some(range(0, GIB / 2)), ..volume("v") }),
        ("block", block_volume("v")),
        ("filesystem", volume_of("v", FsType::Ext4)),
        (
            "mode",
            CreateVolume {
                capabilities: only(mount(None, AccessMode::MultiNodeReaderOnly)),
                ..volume("v")
            },
        ),
        (
            "one capability more",
            CreateVolume {
                capabilities: CapabilitySet::new(vec![mount(None, writer), block(writer)]).unwrap(),
                ..volume("v")
            },
        ),
        (
            "provisioning",
            CreateVolume { parameters: parameters(&[("provisioning", "thick")]), ..volume("v") },
        ),
        ("pool", CreateVolume { parameters: parameters(&[("pool", "default")]), ..volume("v") }),
        (
            "mkfs",
            CreateVolume { parameters: parameters(&[("mkfsOptions", "-L x")]), ..volume("v") },
        ),
        ("topology", CreateVolume { topology: requisite(&["z2"]), ..volume("v") }),
        ("snapshot", restored("v", &snapshot)),
        ("clone", cloned("v", &origin)),
    ];
    for (what, request) in clashes {
        let error = fixture.engine.create_volume(&request).expect_err(what);
        assert!(matches!(error, Error::Conflict { .. }), "{what}: {error:?}");
        assert_eq!(fixture.record(&id), before, "{what}");
    }
}

#[test]
fn restored_volume_conflicts_with_any_other_source() {
    let fixture = Fixture::new();
    let origin = fixture.create("origin");
    let (first, second) = (fixture.snapshot("s1", &origin), fixture.snapshot("s2", &origin));
    let id = fixture.create_as(restored("v", &first));
    assert_eq!(fixture.create_as(restored("v", &first)), id);
    for other in [restored("v", &second), cloned("v", &origin), volume("v")] {
        refused!(fixture.engine.create_volume(&other), Error::Conflict { .. });
    }
}

#[test]
fn filesystem_is_decided_at_creation() {
    let fixture = Fixture::on_host(MemoryHost::new(vec![FsType::Ext4, FsType::Xfs]));
    let id = fixture.create("v");
    assert_eq!(fixture.record(&id).capabilities.fs(), Some(FsType::Ext4));
    assert_eq!(fixture.create_as(volume_of("v", FsType::Ext4)), id);
    refused!(fixture.engine.create_volume(&volume_of("v", FsType::Xfs)), Error::Conflict { .. });
}

#[test]
fn unsupported_filesystem_is_refused() {
    let fixture = Fixture::on_host(MemoryHost::new(vec![FsType::Ext4]));
    refused!(fixture.engine.create_volume(&volume_of("v", FsType::Xfs)), Error::Invalid { .. });
    let bare = Fixture::on_host(MemoryHost::new(vec![]));
    refused!(bare.engine.create_volume(&volume("v")), Error::Invalid { .. });
    bare.create_as(block_volume("b"));
    assert_eq!(bare.names(), ["b"]);
}

#[test]
fn a_copy_has_the_filesystem_of_its_source() {
    let fixture = Fixture::new();
    let origin = fixture.create_as(volume_of("origin", FsType::Btrfs));
    fixture.stage(&origin);
    let snapshot = fixture.snapshot("s", &origin);
    let copy = fixture.create_as(restored("copy", &snapshot));
    assert_eq!(fixture.record(&copy).capabilities.fs(), Some(FsType::Btrfs));
    let other = CreateVolume {
        capabilities: only(mount(Some(FsType::Xfs), AccessMode::SingleNodeWriter)),
        ..restored("other", &snapshot)
    };
    refused!(
        fixture.engine.create_volume(&other),
        Error::Invalid { field: "volume_content_source", .. }
    );
}

#[test]
fn sizes_are_rounded_within_the_range() {
    let fixture = Fixture::new();
    let size_of = |name: &str, request: CreateVolume| {
        let request = CreateVolume { name: name.parse().unwrap(), ..request };
        fixture.engine.create_volume(&request).map(|volume| volume.record.capacity_bytes)
    };
    let asked = |required, limit| CreateVolume {
        range: Some(range(required, limit)),
        ..volume_of("v", FsType::Ext4)
    };
    assert_eq!(size_of("exact", asked(GIB, GIB)).unwrap(), GIB);
    assert_eq!(size_of("rounded", asked(GIB + 1, 0)).unwrap(), GIB + MIB);
    assert_eq!(size_of("smallest", asked(1, 0)).unwrap(), FsType::Ext4.smallest_volume());
    assert_eq!(size_of("limited", asked(0, 100 * MIB)).unwrap(), 100 * MIB);
    let open = CreateVolume { range: None, ..volume("v") };
    assert_eq!(size_of("default", open).unwrap(), settings().default_capacity);
    refused!(size_of("odd", asked(GIB + 1, GIB + 1)), Error::OutOfRange(_));
    refused!(size_of("tiny", asked(0, MIB)), Error::OutOfRange(_));
}

#[test]
fn a_copy_is_never_smaller_than_its_source() {
    let fixture = Fixture::new();
    let origin = fixture.create("origin");
    let snapshot = fixture.snapshot("s", &origin);
    for (kind, copy) in [("restored", restored("r", &snapshot)), ("cloned", cloned("c", &origin))] {
        let sized = |name: &str, required, limit| CreateVolume {
            name: format!("{kind}-{name}").parse().unwrap(),
            range: Some(range(required, limit)),
            ..copy.clone()
        };
        refused!(fixture.engine.create_volume(&sized("small", 0, GIB - 1)), Error::OutOfRange(_));
        let size = |request| fixture.engine.create_volume(&request).unwrap().record.capacity_bytes;
        assert_eq!(size(copy.clone()), GIB);
        assert_eq!(size(sized("same", MIB, 0)), GIB);
        assert_eq!(size(sized("larger", 3 * GIB, 0)), 3 * GIB);
    }
}

#[test]
fn a_source_that_does_not_exist_is_not_found() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let digest = orlop_model::NameDigest::of_text("never made");
    let no_volume = VolumeId::new(id.pool().clone(), digest.clone());
    let no_snapshot = SnapshotId::new(id.pool().clone(), digest);
    refused!(fixture.engine.create_volume(&cloned("c", &no_volume)), Error::NoSuchVolume(_));
    refused!(fixture.engine.create_volume(&restored("r", &no_snapshot)), Error::NoSuchSnapshot(_));
    let elsewhere = SnapshotId::new("0badf00d".parse().unwrap(), no_snapshot.digest().clone());
    refused!(fixture.engine.create_volume(&restored("r", &elsewhere)), Error::NotServed { .. });
    assert_eq!(fixture.names(), ["v"]);
}

#[test]
fn deleted_source_is_not_found_but_its_copies_remain() {
    let fixture = Fixture::new();
    let origin = fixture.create("origin");
    let copy = fixture.create_as(cloned("copy", &origin));
    fixture.engine.delete_volume(&origin).unwrap();
    refused!(fixture.engine.create_volume(&cloned("late", &origin)), Error::NoSuchVolume(_));
    assert_eq!(fixture.create_as(cloned("copy", &origin)), copy);
    assert_eq!(fixture.record(&copy).source, Some(ContentSource::Volume(origin)));
}

#[test]
fn limits_are_refused_where_unsupported() {
    let fixture = Fixture::new();
    let limited = CreateVolume { limits: limits(&[("readIops", "100")]), ..volume("v") };
    fixture.host.fail_next(Op::CheckLimits, Error::precondition("no cgroup"));
    refused!(fixture.engine.create_volume(&limited), Error::Invalid { .. });
    assert!(fixture.names().is_empty());
    let id = fixture.create_as(limited);
    assert_eq!(fixture.record(&id).limits.read_iops, Some(100));
}

#[test]
fn requested_parameters_are_recorded() {
    let fixture = Fixture::new();
    let request = CreateVolume {
        parameters: parameters(&[("provisioning", "thick"), ("mkfsOptions", "-L data")]),
        ..volume("v")
    };
    let id = fixture.create_as(request);
    let record = fixture.record(&id);
    assert_eq!(record.parameters.provisioning, Provisioning::Thick);
    assert_eq!(record.parameters.mkfs_options, ["-L", "data"]);
    assert_eq!((record.source, record.ephemeral), (None, false));
}
