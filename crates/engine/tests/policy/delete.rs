//! DeleteVolume and DeleteSnapshot.

use orlop_engine::request::SnapshotFilter;
use orlop_model::{Error, NameDigest, SnapshotId, VolumeId};

use crate::bench::*;

#[test]
fn deleting_twice_is_deleting_once() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.engine.delete_volume(&id).unwrap();
    bench.engine.delete_volume(&id).unwrap();
    assert!(bench.names().is_empty());
    assert_eq!(bench.create("v"), id);
}

#[test]
fn a_volume_in_use_is_not_deleted() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    let error = refused!(bench.engine.delete_volume(&id), Error::Precondition(_));
    assert!(error.to_string().contains(HERE));
    bench.engine.controller_unpublish(&id, None).unwrap();

    bench.stage(&id);
    let error = refused!(bench.engine.delete_volume(&id), Error::Precondition(_));
    assert!(error.to_string().contains(STAGING));
    bench.publish(&id);
    let error = refused!(bench.engine.delete_volume(&id), Error::Precondition(_));
    assert!(error.to_string().contains(TARGET));

    bench.unpublish(&id, TARGET).unwrap();
    bench.unstage(&id).unwrap();
    bench.engine.delete_volume(&id).unwrap();
    bench.assert_node_is_clean();
}

#[test]
fn what_a_reboot_took_away_is_not_in_use() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    bench.host.reboot();
    bench.pool().reboot();
    bench.engine.delete_volume(&id).unwrap();
    bench.assert_node_is_clean();
}

#[test]
fn snapshots_outlive_their_volume() {
    let bench = Bench::new();
    let id = bench.create("v");
    let snapshot = bench.snapshot("s", &id);
    bench.engine.delete_volume(&id).unwrap();
    let filter = SnapshotFilter { source: Some(id.clone()), ..SnapshotFilter::default() };
    let listed = bench.engine.list_snapshots(&filter, None, 0).unwrap().entries;
    assert_eq!(listed, [bench.engine.snapshot(&snapshot).unwrap()]);
    bench.create_as(restored("restored", &snapshot));
    assert_eq!(bench.names(), ["restored"]);
}

#[test]
fn volumes_outlive_the_snapshot_they_came_from() {
    let bench = Bench::new();
    let snapshot = bench.snapshot("s", &bench.create("v"));
    bench.create_as(restored("restored", &snapshot));
    bench.engine.delete_snapshot(&snapshot).unwrap();
    bench.engine.delete_snapshot(&snapshot).unwrap();
    refused!(bench.engine.snapshot(&snapshot), Error::NoSuchSnapshot(_));
    assert_eq!(bench.names(), ["restored", "v"]);
}

#[test]
fn what_is_on_a_pool_that_is_not_served_is_not_called_deleted() {
    let bench = Bench::new();
    let elsewhere: orlop_model::PoolId = "0badf00d".parse().unwrap();
    let digest = NameDigest::of_text("v");
    let volume = VolumeId::new(elsewhere.clone(), digest.clone());
    refused!(bench.engine.delete_volume(&volume), Error::Precondition(_));
    refused!(
        bench.engine.delete_snapshot(&SnapshotId::new(elsewhere, digest)),
        Error::Precondition(_)
    );
}
