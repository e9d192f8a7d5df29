use orlop_engine::request::VolumeRef;
use orlop_model::{ContentSource, SnapshotId, VolumeId};

use super::super::*;
use super::*;
use crate::proto::csi::v1;
use crate::proto::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};

const VOLUME: &str = "v-0badcafe-00112233445566778899aabbccddeeff";
const SNAPSHOT: &str = "s-0badcafe-00112233445566778899aabbccddeeff";

#[test]
fn the_first_missing_field_is_named() {
    assert!(require([("a", true), ("b", true)]).is_ok());
    let error = require([("a", true), ("b", false), ("c", false)]).unwrap_err();
    assert_eq!(error.to_string(), "b: is missing");
}

#[test]
fn foreign_ids_are_not_found_and_long_ids_invalid() {
    assert_eq!(volume_id("volume_id", VOLUME).unwrap().to_string(), VOLUME);
    for foreign in ["fake-vol-id", SNAPSHOT, "../x", "V-0badcafe"] {
        assert!(matches!(volume_id("volume_id", foreign), Err(Error::NoSuchVolume(_))));
        assert_eq!(issued_volume("volume_id", foreign).unwrap(), None);
        assert!(matches!(
            volume_ref(foreign).unwrap(),
            VolumeRef::Foreign(text) if text == foreign
        ));
    }
    assert!(matches!(snapshot_id("snapshot_id", VOLUME), Err(Error::NoSuchSnapshot(_))));
    assert_eq!(issued_snapshot(VOLUME).unwrap(), None);
    assert!(issued_snapshot(SNAPSHOT).unwrap().is_some());

    let (longest, longer) = ("x".repeat(128), "x".repeat(129));
    assert!(volume_ref(&longest).is_ok());
    assert!(is_invalid(&volume_ref(&longer)));
    assert!(is_invalid(&volume_id("volume_id", &longer)));
    assert!(is_invalid(&issued_volume("volume_id", &longer)));
    assert!(is_invalid(&issued_snapshot(&longer)));
    assert!(is_invalid(&snapshot_id("snapshot_id", &longer)));
}

#[test]
fn node_id_is_optional_with_its_own_limit() {
    assert_eq!(optional_node("").unwrap(), None);
    assert!(optional_node(&"n".repeat(256)).unwrap().is_some());
    assert!(is_invalid(&optional_node(&"n".repeat(257))));
}

#[test]
fn relative_path_is_refused() {
    let volume = volume_ref(VOLUME).unwrap();
    assert!(volume_path(&volume, "/var/x").is_ok());
    let error = volume_path(&volume, "some/path").unwrap_err();
    assert!(matches!(error, Error::NotAtPath { .. }), "{error}");
    assert!(is_invalid(&volume_path(&volume, "/a/../b")));
    assert_eq!(optional_path("staging_target_path", "").unwrap(), None);
    assert!(is_invalid(&optional_path("staging_target_path", "rel/path")));
}

#[test]
fn token_that_is_no_id_is_stale() {
    assert_eq!(page_token::<VolumeId>("").unwrap(), None);
    assert!(page_token::<VolumeId>(VOLUME).unwrap().is_some());
    for token in ["garbage", SNAPSHOT, &"x".repeat(5000)] {
        assert_eq!(page_token::<VolumeId>(token), Err(Error::StaleToken));
    }
    assert_eq!(page_token::<SnapshotId>(VOLUME), Err(Error::StaleToken));
}

#[test]
fn a_negative_count_is_invalid() {
    assert_eq!(max_entries(0).unwrap(), 0);
    assert_eq!(max_entries(i32::MAX).unwrap(), 2_147_483_647);
    assert!(is_invalid(&max_entries(-1)));
}

#[test]
fn secret_keys_are_checked_and_never_shown() {
    assert!(discard_secrets(map(&[("user.Name-1_x", "\u{0}anything")])).is_ok());
    for key in ["a b", "", "pässword", "k/v", "x=hunter2"] {
        let error = discard_secrets(map(&[(key, "hunter2")])).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        assert!(key.is_empty() || !error.contains(key), "{error}");
    }
}

#[test]
fn maps_are_bounded_as_a_whole() {
    let of_size = |size: usize| map(&[("k", &"v".repeat(size - 1))]);
    assert!(volume_context(of_size(4096)).is_ok());
    assert!(is_invalid(&volume_context(of_size(4097))));
    let features = features(true, true);
    assert!(is_invalid(&volume_parameters(&of_size(4097), &features)));
    assert!(is_invalid(&mutable_parameters(&of_size(4097), &features)));
    let foreign = map(&[("csi.storage.k8s.io/x", &"v".repeat(4096))]);
    assert!(is_invalid(&check_snapshot_parameters(&foreign)));
}

#[test]
fn ranges_are_optional_but_not_empty() {
    assert_eq!(capacity_range(None).unwrap(), None);
    for (required_bytes, limit_bytes) in [(0, 0), (-1, 0), (0, -1), (2, 1)] {
        let range = v1::CapacityRange { required_bytes, limit_bytes };
        assert!(is_invalid(&capacity_range(Some(range))));
    }
}

fn source(r#type: Option<Type>) -> orlop_model::Result<Option<ContentSource>> {
    content_source(Some(v1::VolumeContentSource { r#type }))
}

fn from_snapshot(id: &str) -> Option<Type> {
    let snapshot_id = id.to_owned();
    Some(Type::Snapshot(SnapshotSource { snapshot_id }))
}

fn from_volume(id: &str) -> Option<Type> {
    let volume_id = id.to_owned();
    Some(Type::Volume(VolumeSource { volume_id }))
}

#[test]
fn source_must_exist_if_given() {
    assert_eq!(content_source(None).unwrap(), None);
    assert!(matches!(source(from_snapshot(SNAPSHOT)).unwrap(), Some(ContentSource::Snapshot(_))));
    assert!(matches!(source(from_volume(VOLUME)).unwrap(), Some(ContentSource::Volume(_))));
    let long = "x".repeat(129);
    for bad in [None, from_snapshot(""), from_volume(""), from_volume(&long)] {
        assert!(is_invalid(&source(bad)));
    }
    assert!(matches!(
        source(from_snapshot("non-existing-snapshot-id")),
        Err(Error::NoSuchSnapshot(_))
    ));
    assert!(matches!(source(from_volume("other-driver")), Err(Error::NoSuchVolume(_))));
}

#[test]
fn topologies_are_checked_in_every_field() {
    let topology_of = |key: &str, value: &str| v1::Topology { segments: map(&[(key, value)]) };
    assert!(topology("accessible_topology", topology_of("zone", "a")).is_ok());
    assert!(is_invalid(&topology("accessible_topology", topology_of("Zone_", "a"))));

    let requirement = |requisite: &[v1::Topology], preferred: &[v1::Topology]| {
        topology_requirement(Some(v1::TopologyRequirement {
            requisite: requisite.to_vec(),
            preferred: preferred.to_vec(),
        }))
    };
    assert_eq!(topology_requirement(None).unwrap(), None);
    assert!(requirement(&[topology_of("zone", "a")], &[]).is_ok());
    assert!(is_invalid(&requirement(&[], &[])));
    assert!(is_invalid(&requirement(&[topology_of("zone", "")], &[])));
    let stray = [topology_of("zone", "b")];
    assert!(is_invalid(&requirement(&[topology_of("zone", "a")], &stray)));
}
