//! Inline volumes: made by the first publish, gone with the last unpublish.

use std::sync::Arc;

use orlop_engine::request::{
    InlineVolume, NodeExpand, PublishVolume, PublishWay, VolumeRef, VolumeUsage,
};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{
    DeviceAccess, Error, HostRecords, IoLimitsChange, NodeRecord, VolumeCapability,
    VolumeParameters,
};

use crate::fixture::*;

const ID: &str = "csi-4f1c0b9a7d3e2f1c0b9a7d3e2f1c0b9a7d3e2f1c0b9a7d3e2f1c0b9a7d3e2f1c";

fn inline(target: &str) -> PublishVolume {
    PublishVolume {
        volume: VolumeRef::parse(ID),
        way: PublishWay::Inline {
            spec: InlineVolume {
                range: Some(range(2 * GIB, 0)),
                parameters: VolumeParameters::default(),
                limits: IoLimitsChange::default(),
            },
        },
        target: path(target),
        capability: mount(None, SingleNodeWriter),
        read_only: false,
        publish: Default::default(),
        context: map(&[("csi.storage.k8s.io/ephemeral", "true")]),
        keys: Default::default(),
    }
}

fn unpublish(fixture: &Fixture) -> Result<(), Error> {
    fixture.engine.unpublish_volume(&VolumeRef::parse(ID), &path(TARGET))
}

#[test]
fn inline_volume_lives_from_publish_to_unpublish() {
    let fixture = Fixture::new();
    for _ in 0..2 {
        fixture.engine.publish_volume(&inline(TARGET)).unwrap();
        let (_, record) = only_volume(&fixture);
        assert!(record.ephemeral);
        assert_eq!(record.capacity_bytes, 2 * GIB);
        assert!(fixture.host.mounts().contains(&path(TARGET)));

        unpublish(&fixture).unwrap();
        fixture.assert_node_is_clean();
        assert!(fixture.names().is_empty());
        assert!(!fixture.host.has_target(&path(TARGET)));
        unpublish(&fixture).unwrap();
    }
    assert_eq!(fixture.host.count(Op::Format), 2, "the second one is not the first one");
}

fn only_volume(fixture: &Fixture) -> (orlop_model::VolumeId, orlop_model::VolumeRecord) {
    use orlop_model::Pool;
    let mut volumes = fixture.pool().catalogue().volumes(None, 0).unwrap();
    assert_eq!(volumes.len(), 1);
    let (id, record) = volumes.remove(0);
    (id, record.unwrap())
}

#[test]
fn repeated_publish_finds_the_inline_volume() {
    let mut fixture = Fixture::new();
    fixture.engine.publish_volume(&inline(TARGET)).unwrap();
    fixture.engine.publish_volume(&inline(TARGET)).unwrap();
    fixture.restart();
    fixture.engine.publish_volume(&inline(TARGET)).unwrap();
    assert_eq!(fixture.host.count(Op::Format), 1);
    let other = PublishVolume { read_only: true, ..inline(TARGET) };
    refused!(fixture.engine.publish_volume(&other), Error::Conflict { .. });
    unpublish(&fixture).unwrap();
    fixture.assert_node_is_clean();
}

/// A workload's data is never thrown away because a repeated or second call fails.
#[test]
fn refused_second_publish_keeps_the_inline_volume() {
    let fixture = Fixture::new();
    fixture.engine.publish_volume(&inline(TARGET)).unwrap();
    refused!(
        fixture.engine.publish_volume(&PublishVolume { read_only: true, ..inline(TARGET) }),
        Error::Conflict { .. }
    );
    refused!(fixture.engine.publish_volume(&inline(OTHER_TARGET)), Error::Precondition(_));
    let (id, _) = only_volume(&fixture);
    assert!(fixture.host.mounts().contains(&path(TARGET)));
    assert_eq!(fixture.node_record(&id).publications.len(), 1);
}

#[test]
fn inline_volume_is_republished_or_removed_after_reboot() {
    let mut fixture = Fixture::new();
    fixture.engine.publish_volume(&inline(TARGET)).unwrap();
    fixture.host.reboot();
    fixture.pool().reboot();
    fixture.restart();
    fixture.engine.publish_volume(&inline(TARGET)).unwrap();
    assert_eq!(fixture.host.count(Op::Format), 1);
    fixture.host.reboot();
    fixture.pool().reboot();
    fixture.restart();
    unpublish(&fixture).unwrap();
    assert!(fixture.names().is_empty());
    fixture.assert_node_is_clean();
}

#[test]
fn failed_publish_leaves_no_inline_volume() {
    for step in [Op::Format, Op::Mount, Op::BindDirectory] {
        let fixture = Fixture::new();
        fixture.host.fail_next(step, Error::failed("try", "broken on purpose"));
        fixture.engine.publish_volume(&inline(TARGET)).unwrap_err();
        assert!(fixture.names().is_empty(), "{step:?}");
        fixture.assert_node_is_clean();
        fixture.engine.publish_volume(&inline(TARGET)).unwrap();
    }
}

/// After a reboot nothing is recorded on the node, but the volume holds the workload's data.
#[test]
fn failed_publish_keeps_an_existing_inline_volume() {
    for step in [Op::Mount, Op::BindDirectory] {
        let mut fixture = Fixture::new();
        fixture.engine.publish_volume(&inline(TARGET)).unwrap();
        let (id, _) = only_volume(&fixture);
        fixture.pool().write_tag(&id, "data").unwrap();
        fixture.host.reboot();
        fixture.pool().reboot();
        fixture.restart();
        fixture.host.fail_next(step, Error::failed("try", "broken on purpose"));
        fixture.engine.publish_volume(&inline(TARGET)).unwrap_err();
        assert_eq!(fixture.names().len(), 1, "{step:?}");
        fixture.assert_node_is_clean();
        fixture.restart();
        fixture.engine.publish_volume(&inline(TARGET)).unwrap();
        assert_eq!(fixture.pool().tag(&id).unwrap(), "data", "{step:?}");
        unpublish(&fixture).unwrap();
        assert!(fixture.names().is_empty());
    }
}

pub(crate) fn inline_as(target: &str, capability: VolumeCapability) -> PublishVolume {
    PublishVolume { capability, ..inline(target) }
}

fn raw_inline(target: &str) -> PublishVolume {
    inline_as(target, block(SingleNodeWriter))
}

/// The workload goes on while the records are lost, and its device would get another volume's data.
#[test]
fn a_failed_publish_keeps_what_it_found_without_a_record() {
    for first in [raw_inline(TARGET), inline(TARGET)] {
        let fixture = Fixture::new();
        fixture.engine.publish_volume(&first).unwrap();
        let (id, _) = only_volume(&fixture);
        let mounts = fixture.host.mounts();
        let device = fixture.device(&id);
        let lose_record = || fixture.host.save_node_record(&id, &NodeRecord::default()).unwrap();
        let assert_kept = |case: &str| {
            assert_eq!(fixture.host.mounts(), mounts, "{case}");
            assert_eq!(
                fixture.attached(&id, DeviceAccess::ReadWrite).as_ref(),
                Some(&device),
                "{case}"
            );
            assert_eq!(fixture.names().len(), 1, "{case}");
        };

        lose_record();
        fixture.host.fail_next(Op::SaveRecord, Error::Exhausted("the disk is full".into()));
        refused!(fixture.engine.publish_volume(&first), Error::Exhausted(_));
        assert_kept("the record of the stage cannot be saved");

        lose_record();
        let at_another = PublishVolume { target: path(OTHER_TARGET), ..first.clone() };
        let bind = if first.capability.is_block() { Op::BindDevice } else { Op::BindDirectory };
        fixture.host.fail_next(bind, Error::failed("try", "broken on purpose"));
        fixture.engine.publish_volume(&at_another).unwrap_err();
        assert_kept("the second target cannot be bound");

        if first.capability.is_block() {
            lose_record();
            let reader = PublishVolume { read_only: true, ..at_another };
            refused!(fixture.engine.publish_volume(&reader), Error::Precondition(_));
            assert_kept("a reader beside a writer");
        }
        unpublish(&fixture).unwrap();
        fixture.assert_node_is_clean();
        assert!(fixture.names().is_empty());
    }
}

/// Its record is damaged, and the workload's path has to be cleared all the same.
#[test]
fn damaged_inline_volume_is_unpublished_by_its_caller_id() {
    for raw in [false, true] {
        let fixture = Fixture::new();
        fixture
            .engine
            .publish_volume(&if raw { raw_inline(TARGET) } else { inline(TARGET) })
            .unwrap();
        let (id, _) = only_volume(&fixture);
        fixture.pool().damage_volume(&id, "torn");
        for _ in 0..2 {
            unpublish(&fixture).unwrap();
            assert!(!fixture.host.mounts().contains(&path(TARGET)));
            assert!(!fixture.host.has_target(&path(TARGET)));
        }
        // What cannot be read is not deleted.
        assert!(fixture.attached(&id, DeviceAccess::ReadWrite).is_some());
    }
}

#[test]
fn damaged_staged_volume_is_not_unpublished_by_its_name() {
    let fixture = Fixture::new();
    let id = fixture.create(ID);
    fixture.stage(&id);
    fixture.publish(&id);
    fixture.pool().damage_volume(&id, "torn");
    refused!(unpublish(&fixture), Error::NoSuchVolume(_));
    assert!(fixture.host.mounts().contains(&path(TARGET)));
    fixture.unpublish(&id, TARGET).unwrap();
}

/// The process dies between making the volume and publishing it.
fn left_unpublished(fixture: &Fixture) {
    fixture.host.fail_next(Op::Mount, Error::failed("try", "broken on purpose"));
    fixture.pool().fail_next("ensure_no_volume", Error::failed("try", "broken on purpose"));
    fixture.engine.publish_volume(&inline(TARGET)).unwrap_err();
    assert_eq!(fixture.names().len(), 1);
}

#[test]
fn failed_call_removes_a_never_published_volume() {
    let fixture = Fixture::new();
    left_unpublished(&fixture);
    fixture.host.fail_next(Op::Mount, Error::failed("try", "broken on purpose"));
    fixture.engine.publish_volume(&inline(TARGET)).unwrap_err();
    assert!(fixture.names().is_empty());
    fixture.assert_node_is_clean();
}

#[test]
fn next_start_removes_a_never_published_volume() {
    let mut fixture = Fixture::new();
    left_unpublished(&fixture);
    fixture.restart();
    assert!(fixture.names().is_empty());
    fixture.assert_node_is_clean();
}

#[test]
fn inline_volume_is_found_by_the_orchestrators_id() {
    let fixture = Fixture::new();
    fixture.engine.publish_volume(&inline(TARGET)).unwrap();
    let volume = VolumeRef::parse(ID);
    let stats = fixture.engine.volume_stats(&volume, &path(TARGET)).unwrap();
    assert!(matches!(stats.usage, VolumeUsage::Filesystem(_)));
    assert!(!stats.condition.is_abnormal());
    let expand = NodeExpand { volume, path: path(TARGET), range: None, capability: None };
    assert_eq!(fixture.engine.expand_node_volume(&expand).unwrap(), 2 * GIB);
}

#[test]
fn inline_volume_cannot_be_used_as_another_volume() {
    let fixture = Fixture::new();
    fixture.engine.publish_volume(&inline(TARGET)).unwrap();
    refused!(fixture.engine.create_volume(&volume(ID)), Error::Conflict { .. });
    let (id, _) = only_volume(&fixture);
    let issued = PublishVolume { volume: issued(&id), ..inline(OTHER_TARGET) };
    refused!(fixture.engine.publish_volume(&issued), Error::Invalid { .. });
    refused!(fixture.engine.delete_volume(&id), Error::Precondition(_));
}

#[test]
fn inline_publish_does_not_take_over_a_named_volume() {
    let fixture = Fixture::new();
    fixture.create(ID);
    refused!(fixture.engine.publish_volume(&inline(TARGET)), Error::Conflict { .. });
    unpublish(&fixture).unwrap();
    assert_eq!(fixture.names(), [ID]);
}

#[test]
fn inline_id_must_be_a_valid_name() {
    let fixture = Fixture::new();
    for text in ["", &"x".repeat(129), "a\u{7}b"] {
        let request =
            PublishVolume { volume: VolumeRef::Foreign(text.to_owned()), ..inline(TARGET) };
        refused!(
            fixture.engine.publish_volume(&request),
            Error::Invalid { field: "volume_id", .. }
        );
    }
    assert!(fixture.names().is_empty());
}

#[test]
fn full_pool_refuses_an_inline_volume() {
    let fixture = Fixture::with_pools(vec![pool("small", &zone("z1"), GIB)]);
    refused!(
        fixture.engine.publish_volume(&inline(TARGET)),
        Error::Exhausted(_) | Error::OutOfRange(_)
    );
    fixture.assert_node_is_clean();
}

/// GEN-27: an unpublish that overtakes its publish must not be answered OK.
#[test]
fn inline_volume_is_busy_while_it_is_created() {
    let fixture = Fixture::new();
    let engine = Arc::clone(&fixture.engine);
    fixture.pool().during_next_capture(move || {
        refused!(engine.unpublish_volume(&VolumeRef::parse(ID), &path(TARGET)), Error::Busy { .. });
        refused!(engine.publish_volume(&inline(TARGET)), Error::Busy { .. });
    });
    fixture.engine.publish_volume(&inline(TARGET)).unwrap();
    unpublish(&fixture).unwrap();
    fixture.assert_node_is_clean();
    assert!(fixture.names().is_empty());
}
