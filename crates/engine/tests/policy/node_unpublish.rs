//! NodeUnpublishVolume.

use orlop_engine::request::{PublishVolume, PublishWay, StageVolume, VolumeRef};
use orlop_model::AccessMode::SingleNodeMultiWriter;
use orlop_model::{Error, HostMounts, NameDigest, VolumeId};

use crate::fixture::*;
use crate::node_publish::{at, staged};

#[test]
fn unpublish_leaves_other_targets() {
    let fixture = Fixture::new();
    let id = staged(&fixture, SingleNodeMultiWriter);
    for target in [TARGET, OTHER_TARGET] {
        fixture.engine.publish_volume(&at(&id, target, SingleNodeMultiWriter)).unwrap();
    }
    for _ in 0..2 {
        fixture.unpublish(&id, TARGET).unwrap();
        assert_eq!(fixture.host.mounts(), [path(STAGING), path(OTHER_TARGET)]);
        assert!(!fixture.host.has_target(&path(TARGET)), "NN-03");
    }
    assert_eq!(fixture.node_record(&id).publications.len(), 1);
}

#[test]
fn unpublish_of_an_unpublished_target_succeeds() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.unpublish(&id, TARGET).unwrap();
    let never = issued(&VolumeId::new(id.pool().clone(), NameDigest::of_text("never made")));
    for unknown in [never, VolumeRef::parse("another-drivers")] {
        fixture.engine.unpublish_volume(&unknown, &path(TARGET)).unwrap();
    }
}

#[test]
fn v0_unpublish_keeps_the_target_path() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    for _ in 0..2 {
        fixture.engine.unpublish_volume_keeping_target(&issued(&id), &path(TARGET)).unwrap();
        assert!(!fixture.host.mounts().contains(&path(TARGET)));
        assert!(fixture.host.has_target(&path(TARGET)), "V0-29");
    }
    // An empty one that was there before is used (NP-39) and goes with the publication.
    fixture.publish(&id);
    fixture.unpublish(&id, TARGET).unwrap();
    assert!(!fixture.host.has_target(&path(TARGET)), "NN-03");
}

#[test]
fn unpublish_leaves_a_foreign_path_alone() {
    let fixture = Fixture::new();
    let [first, other] = ["first", "other"].map(|name| fixture.create(name));
    fixture.stage(&first);
    fixture.publish(&first);
    fixture.engine.unpublish_volume_keeping_target(&issued(&first), &path(TARGET)).unwrap();
    for volume in [issued(&other), VolumeRef::parse("another-drivers")] {
        fixture.engine.unpublish_volume(&volume, &path(TARGET)).unwrap();
        assert!(fixture.host.has_target(&path(TARGET)));
    }
}

#[test]
fn damaged_record_does_not_block_unpublish() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    fixture.pool().damage_volume(&id, "torn");
    for _ in 0..2 {
        fixture.unpublish(&id, TARGET).unwrap();
    }
    fixture.unstage(&id).unwrap();
    fixture.assert_node_is_clean();
}

#[test]
fn unpublish_does_not_touch_a_foreign_mount() {
    let fixture = Fixture::new();
    let [mine, other] = ["mine", "other"].map(|name| fixture.create(name));
    fixture.stage(&mine);
    fixture.publish(&mine);
    // NN-04: it is not published there.
    fixture.unpublish(&other, TARGET).unwrap();
    let never = issued(&VolumeId::new(mine.pool().clone(), NameDigest::of_text("never made")));
    for unknown in [never, VolumeRef::parse("another-drivers")] {
        refused!(fixture.engine.unpublish_volume(&unknown, &path(TARGET)), Error::NoSuchVolume(_));
    }
    assert_eq!(fixture.host.mounts().len(), 2);
}

/// As after an unmount by hand: one record still names the path, another volume is there by now.
#[test]
fn unpublish_leaves_a_target_of_another_volume() {
    let fixture = Fixture::new();
    let [first, second] = ["first", "second"].map(|name| fixture.create_as(block_volume(name)));
    fixture.engine.stage_volume(&stage_block(&first)).unwrap();
    fixture.engine.publish_volume(&publish_block(&first, TARGET)).unwrap();
    fixture.host.ensure_unmounted(&path(TARGET)).unwrap();
    let elsewhere = path("/staging/second");
    let staged = StageVolume { path: elsewhere.clone(), ..stage_block(&second) };
    fixture.engine.stage_volume(&staged).unwrap();
    let request = PublishVolume {
        way: PublishWay::Staged { staging: elsewhere },
        ..publish_block(&second, TARGET)
    };
    fixture.engine.publish_volume(&request).unwrap();
    for _ in 0..2 {
        fixture.unpublish(&first, TARGET).unwrap();
        let there = fixture.host.mount_at(&path(TARGET)).unwrap().expect("it is still mounted");
        assert!(there.is_of(&fixture.device(&second)));
    }
    fixture.unstage(&first).unwrap();
    fixture.unpublish(&second, TARGET).unwrap();
    assert!(!fixture.host.has_target(&path(TARGET)));
}
