//! CreateVolume: the same name is the same volume, or a clash.

use orlop_engine::request::CreateVolume;
use orlop_host::MemoryHost;
use orlop_host::memory::Op;
use orlop_model::{
    AccessMode, CapabilitySet, ContentSource, Error, FsType, Provisioning, SnapshotId,
    TopologyRequirement, VolumeId,
};

use crate::bench::*;

fn requisite(names: &[&str]) -> Option<TopologyRequirement> {
    let places = names.iter().map(|name| zone(name)).collect();
    Some(TopologyRequirement::new(places, vec![]).unwrap())
}

#[test]
fn a_repeated_creation_finds_the_volume_of_the_first() {
    let bench = Bench::new();
    let first = bench.engine.create_volume(&volume("v")).unwrap();
    let again = bench.engine.create_volume(&volume("v")).unwrap();
    assert_eq!(again.record, first.record);
    assert_eq!((again.place, again.context), (first.place, first.context));
    assert_eq!(bench.names(), ["v"]);
}

#[test]
fn names_that_differ_in_anything_are_different_volumes() {
    let bench = Bench::new();
    let ids = ["v", "V", "v ", "../v", "é"].map(|name| bench.create(name));
    for (index, id) in ids.iter().enumerate() {
        assert!(!ids[..index].contains(id));
    }
}

#[test]
fn compatible_repetitions_are_the_same_volume() {
    let bench = Bench::new();
    let id = bench.create("v");
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
        assert_eq!(bench.engine.create_volume(&request).unwrap().record.id, id, "{request:?}");
    }
}

#[test]
fn a_name_that_is_taken_by_something_else_is_a_clash() {
    let bench = Bench::new();
    let id = bench.create("v");
    let origin = bench.create("origin");
    let snapshot = bench.snapshot("s", &origin);
    let writer = AccessMode::SingleNodeWriter;
    let before = bench.record(&id);
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
        ("place", CreateVolume { topology: requisite(&["z2"]), ..volume("v") }),
        ("snapshot", restored("v", &snapshot)),
        ("clone", cloned("v", &origin)),
    ];
    for (what, request) in clashes {
        let error = bench.engine.create_volume(&request).expect_err(what);
        assert!(matches!(error, Error::Conflict { .. }), "{what}: {error:?}");
        assert_eq!(bench.record(&id), before, "{what}");
    }
}

#[test]
fn a_restored_volume_clashes_with_every_other_source() {
    let bench = Bench::new();
    let origin = bench.create("origin");
    let (first, second) = (bench.snapshot("s1", &origin), bench.snapshot("s2", &origin));
    let id = bench.create_as(restored("v", &first));
    assert_eq!(bench.create_as(restored("v", &first)), id);
    for other in [restored("v", &second), cloned("v", &origin), volume("v")] {
        refused!(bench.engine.create_volume(&other), Error::Conflict { .. });
    }
}

#[test]
fn the_filesystem_is_settled_at_creation() {
    let bench = Bench::on_host(MemoryHost::new(vec![FsType::Ext4, FsType::Xfs]));
    let id = bench.create("v");
    assert_eq!(bench.record(&id).capabilities.fs(), Some(FsType::Ext4));
    assert_eq!(bench.create_as(volume_of("v", FsType::Ext4)), id);
    refused!(bench.engine.create_volume(&volume_of("v", FsType::Xfs)), Error::Conflict { .. });
}

#[test]
fn a_filesystem_that_cannot_be_made_here_is_refused() {
    let bench = Bench::on_host(MemoryHost::new(vec![FsType::Ext4]));
    refused!(bench.engine.create_volume(&volume_of("v", FsType::Xfs)), Error::Invalid { .. });
    let bare = Bench::on_host(MemoryHost::new(vec![]));
    refused!(bare.engine.create_volume(&volume("v")), Error::Invalid { .. });
    bare.create_as(block_volume("b"));
    assert_eq!(bare.names(), ["b"]);
}

#[test]
fn a_copy_has_the_filesystem_of_its_source() {
    let bench = Bench::new();
    let origin = bench.create_as(volume_of("origin", FsType::Btrfs));
    bench.stage(&origin);
    let snapshot = bench.snapshot("s", &origin);
    let copy = bench.create_as(restored("copy", &snapshot));
    assert_eq!(bench.record(&copy).capabilities.fs(), Some(FsType::Btrfs));
    let other = CreateVolume {
        capabilities: only(mount(Some(FsType::Xfs), AccessMode::SingleNodeWriter)),
        ..restored("other", &snapshot)
    };
    refused!(
        bench.engine.create_volume(&other),
        Error::Invalid { field: "volume_content_source", .. }
    );
}

#[test]
fn sizes_are_whole_and_within_what_was_asked_for() {
    let bench = Bench::new();
    let size_of = |name: &str, request: CreateVolume| {
        let request = CreateVolume { name: name.parse().unwrap(), ..request };
        bench.engine.create_volume(&request).map(|volume| volume.record.capacity_bytes)
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
    let bench = Bench::new();
    let origin = bench.create("origin");
    let snapshot = bench.snapshot("s", &origin);
    for (kind, copy) in [("restored", restored("r", &snapshot)), ("cloned", cloned("c", &origin))] {
        let sized = |name: &str, required, limit| CreateVolume {
            name: format!("{kind}-{name}").parse().unwrap(),
            range: Some(range(required, limit)),
            ..copy.clone()
        };
        refused!(bench.engine.create_volume(&sized("small", 0, GIB - 1)), Error::OutOfRange(_));
        let size = |request| bench.engine.create_volume(&request).unwrap().record.capacity_bytes;
        assert_eq!(size(copy.clone()), GIB);
        assert_eq!(size(sized("same", MIB, 0)), GIB);
        assert_eq!(size(sized("larger", 3 * GIB, 0)), 3 * GIB);
    }
}

#[test]
fn a_source_that_does_not_exist_is_not_found() {
    let bench = Bench::new();
    let id = bench.create("v");
    let digest = orlop_model::NameDigest::of_text("never made");
    let no_volume = VolumeId::new(id.pool().clone(), digest.clone());
    let no_snapshot = SnapshotId::new(id.pool().clone(), digest);
    refused!(bench.engine.create_volume(&cloned("c", &no_volume)), Error::NoSuchVolume(_));
    refused!(bench.engine.create_volume(&restored("r", &no_snapshot)), Error::NoSuchSnapshot(_));
    let elsewhere = SnapshotId::new("0badf00d".parse().unwrap(), no_snapshot.digest().clone());
    refused!(bench.engine.create_volume(&restored("r", &elsewhere)), Error::NotServed { .. });
    assert_eq!(bench.names(), ["v"]);
}

#[test]
fn a_deleted_source_cannot_be_copied_but_its_copies_stay_what_they_are() {
    let bench = Bench::new();
    let origin = bench.create("origin");
    let copy = bench.create_as(cloned("copy", &origin));
    bench.engine.delete_volume(&origin).unwrap();
    refused!(bench.engine.create_volume(&cloned("late", &origin)), Error::NoSuchVolume(_));
    assert_eq!(bench.create_as(cloned("copy", &origin)), copy);
    assert_eq!(bench.record(&copy).source, Some(ContentSource::Volume(origin)));
}

#[test]
fn limits_that_this_machine_cannot_keep_are_refused() {
    let bench = Bench::new();
    let limited = CreateVolume { limits: limits(&[("readIops", "100")]), ..volume("v") };
    bench.host.fail_next(Op::CheckLimits, Error::precondition("no cgroup"));
    refused!(bench.engine.create_volume(&limited), Error::Invalid { .. });
    assert!(bench.names().is_empty());
    let id = bench.create_as(limited);
    assert_eq!(bench.record(&id).limits.read_iops, Some(100));
}

#[test]
fn what_was_asked_for_is_on_record() {
    let bench = Bench::new();
    let request = CreateVolume {
        parameters: parameters(&[("provisioning", "thick"), ("mkfsOptions", "-L data")]),
        ..volume("v")
    };
    let id = bench.create_as(request);
    let record = bench.record(&id);
    assert_eq!(record.parameters.provisioning, Provisioning::Thick);
    assert_eq!(record.parameters.mkfs_options, ["-L", "data"]);
    assert_eq!((record.source, record.ephemeral), (None, false));
}
