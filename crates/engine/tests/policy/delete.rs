//! DeleteVolume and DeleteSnapshot.

use orlop_engine::request::SnapshotFilter;
use orlop_model::{Error, NameDigest, SnapshotId, VolumeId};

use crate::fixture::*;

#[test]
fn delete_is_idempotent() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.engine.delete_volume(&id).unwrap();
    fixture.engine.delete_volume(&id).unwrap();
    assert!(fixture.names().is_empty());
    assert_eq!(fixture.create("v"), id);
}

#[test]
fn a_volume_in_use_is_not_deleted() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    let error = refused!(fixture.engine.delete_volume(&id), Error::Precondition(_));
    assert!(error.to_string().contains(HERE));
    fixture.engine.controller_unpublish(&id, None).unwrap();

    fixture.stage(&id);
    let error = refused!(fixture.engine.delete_volume(&id), Error::Precondition(_));
    assert!(error.to_string().contains(STAGING));
    fixture.publish(&id);
    let error = refused!(fixture.engine.delete_volume(&id), Error::Precondition(_));
    assert!(error.to_string().contains(TARGET));

    fixture.unpublish(&id, TARGET).unwrap();
    fixture.unstage(&id).unwrap();
    fixture.engine.delete_volume(&id).unwrap();
    fixture.assert_node_is_clean();
}

#[test]
fn volume_is_not_in_use_after_a_reboot() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    fixture.host.reboot();
    fixture.pool().reboot();
    fixture.engine.delete_volume(&id).unwrap();
    fixture.assert_node_is_clean();
}

#[test]
fn snapshots_outlive_their_volume() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let snapshot = fixture.snapshot("s", &id);
    fixture.engine.delete_volume(&id).unwrap();
    let filter = SnapshotFilter { source: Some(id.clone()), ..SnapshotFilter::default() };
    let listed = fixture.engine.list_snapshots(&filter, None, 0).unwrap().entries;
    assert_eq!(listed, [fixture.engine.snapshot(&snapshot).unwrap()]);
    fixture.create_as(restored("restored", &snapshot));
    assert_eq!(fixture.names(), ["restored"]);
}

#[test]
fn volumes_outlive_the_snapshot_they_came_from() {
    let fixture = Fixture::new();
    let snapshot = fixture.snapshot("s", &fixture.create("v"));
    fixture.create_as(restored("restored", &snapshot));
    fixture.engine.delete_snapshot(&snapshot).unwrap();
    fixture.engine.delete_snapshot(&snapshot).unwrap();
    refused!(fixture.engine.snapshot(&snapshot), Error::NoSuchSnapshot(_));
    assert_eq!(fixture.names(), ["restored", "v"]);
}

#[test]
fn delete_on_an_unserved_pool_fails() {
    let fixture = Fixture::new();
    let elsewhere: orlop_model::PoolId = "0badf00d".parse().unwrap();
    let digest = NameDigest::of_text("v");
    let volume = VolumeId::new(elsewhere.clone(), digest.clone());
    refused!(fixture.engine.delete_volume(&volume), Error::Precondition(_));
    refused!(
        fixture.engine.delete_snapshot(&SnapshotId::new(elsewhere, digest)),
        Error::Precondition(_)
    );
}
