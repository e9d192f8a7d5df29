//! Copies of volumes that another process changes while they are made.

use orlop_engine::request::CreateGroupSnapshot;
use orlop_host::memory::Op;
use orlop_model::{
    Consistency, Error, FormatState, FsType, FsUuid, NameDigest, NewSnapshot, Pool, Result,
    SnapshotId, VolumeId, VolumeRecord,
};

use crate::fixture::*;

const THERE: &str = "n2";

/// The state that the record of the copy says.
type Copying = fn(&Fixture, &VolumeId) -> Result<FormatState>;
const COPIES: [(&str, Copying); 3] = [
    ("snapshot", |fixture, source| {
        fixture.engine.create_snapshot(&snapshot("copy", source)).map(|copy| copy.format)
    }),
    ("clone", |fixture, source| {
        fixture.engine.create_volume(&cloned("copy", source)).map(|copy| copy.record.format)
    }),
    ("group snapshot", |fixture, source| {
        let sources = [source.clone()].into();
        let group = CreateGroupSnapshot { name: "copy".parse().unwrap(), sources };
        fixture.engine.create_group_snapshot(&group).map(|group| group.members[0].format)
    }),
];

fn published(here: &Fixture) -> VolumeId {
    let id = here.create("v");
    here.engine.controller_publish(&controller_publish(&id, THERE)).unwrap();
    id
}

#[test]
fn copy_of_a_volume_formatted_during_it_is_aborted() {
    for (what, copy) in COPIES {
        let (here, there) = Fixture::sharing();
        let id = published(&here);
        let (node, volume) = (there, id.clone());
        here.pool().during_next_capture(move || {
            node.stage(&volume);
            node.pool().write_tag(&volume, "precious").unwrap();
        });
        refused!(copy(&here, &id), Error::Busy { .. });
        let FormatState::Formatted { fs, uuid } = here.format(&id) else {
            panic!("{what}: {:?}", here.format(&id));
        };
        assert_eq!(copy(&here, &id).unwrap(), FormatState::Copied { fs, uuid }, "{what}");
    }
}

#[test]
fn copy_of_a_volume_that_begins_to_grow_is_aborted() {
    for (_, copy) in COPIES {
        let (here, there) = Fixture::sharing();
        let id = published(&here);
        there.stage(&id);
        let volume = id.clone();
        here.pool().during_next_capture(move || {
            let grow = &mut |record: &mut VolumeRecord| {
                record.growing = true;
                Ok(())
            };
            there.pool().catalogue().update_volume(&volume, grow).unwrap();
        });
        refused!(copy(&here, &id), Error::Busy { .. });
        refused!(copy(&here, &id), Error::Precondition(_));
    }
}

/// It would be called consistent, as if nothing had written to the volume.
#[test]
fn copy_of_a_volume_published_during_it_is_aborted() {
    let (here, there) = Fixture::sharing();
    let id = here.create("v");
    let volume = id.clone();
    here.pool().during_next_capture(move || {
        there.engine.controller_publish(&controller_publish(&volume, THERE)).unwrap();
        there.stage(&volume);
        there.engine.unstage_volume(&issued(&volume), &path(STAGING)).unwrap();
    });
    refused!(here.engine.create_snapshot(&snapshot("s", &id)), Error::Busy { .. });
    let copy = here.engine.create_snapshot(&snapshot("s", &id)).unwrap();
    assert_eq!(copy.consistency, Consistency::Crash);
}

#[test]
fn volume_that_is_being_formatted_is_not_copied() {
    for (_, copy) in COPIES {
        let (here, there) = Fixture::sharing();
        let id = published(&here);
        there.host.fail_next(Op::Format, Error::failed("mkfs", "killed"));
        refused!(there.engine.stage_volume(&stage(&id)), Error::Failed { .. });
        let error = refused!(copy(&here, &id), Error::Precondition(_));
        assert!(error.to_string().contains("its filesystem is being made"), "{error}");
        there.stage(&id);
        copy(&here, &id).unwrap();
    }
}

/// As earlier versions took them: there may be data in it.
#[test]
fn snapshot_that_would_be_formatted_is_not_restored() {
    let fixture = Fixture::new();
    let origin = fixture.create("origin");
    let uuid = FsUuid::from_bytes([7; 16]);
    let new = NewSnapshot {
        id: SnapshotId::new(origin.pool().clone(), NameDigest::of(&"s".parse().unwrap())),
        name: "s".parse().unwrap(),
        source: fixture.record(&origin),
        format: FormatState::Formatting { fs: FsType::Ext4, uuid },
        consistency: Consistency::Crash,
    };
    let draft = fixture.pool().provisioner().begin_snapshot(&new).unwrap();
    let saved = draft.commit().unwrap().id;
    refused!(fixture.engine.create_volume(&restored("back", &saved)), Error::Precondition(_));
    assert_eq!(fixture.names(), ["origin"]);
}
