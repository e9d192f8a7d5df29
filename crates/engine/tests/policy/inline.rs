//! Inline volumes: made by the first publish, gone with the last unpublish.

use std::sync::Arc;

use orlop_engine::request::{
    InlineVolume, NodeExpand, PublishVolume, PublishWay, VolumeRef, VolumeUsage,
};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{Error, IoLimitsChange, VolumeParameters};

use crate::bench::*;

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
    }
}

fn unpublish(bench: &Bench) -> Result<(), Error> {
    bench.engine.unpublish_volume(&VolumeRef::parse(ID), &path(TARGET))
}

#[test]
fn it_lives_from_publish_to_unpublish() {
    let bench = Bench::new();
    for _ in 0..2 {
        bench.engine.publish_volume(&inline(TARGET)).unwrap();
        let (_, record) = only_volume(&bench);
        assert!(record.ephemeral);
        assert_eq!(record.capacity_bytes, 2 * GIB);
        assert!(bench.host.mounts().contains(&path(TARGET)));

        unpublish(&bench).unwrap();
        bench.assert_node_is_clean();
        assert!(bench.names().is_empty());
        assert!(!bench.host.has_target(&path(TARGET)));
        unpublish(&bench).unwrap();
    }
    assert_eq!(bench.host.count(Op::Format), 2, "the second one is not the first one");
}

fn only_volume(bench: &Bench) -> (orlop_model::VolumeId, orlop_model::VolumeRecord) {
    use orlop_model::Pool;
    let mut volumes = bench.pool().catalogue().volumes(None, 0).unwrap();
    assert_eq!(volumes.len(), 1);
    let (id, record) = volumes.remove(0);
    (id, record.unwrap())
}

#[test]
fn a_repeated_publish_finds_it() {
    let mut bench = Bench::new();
    bench.engine.publish_volume(&inline(TARGET)).unwrap();
    bench.engine.publish_volume(&inline(TARGET)).unwrap();
    bench.restart();
    bench.engine.publish_volume(&inline(TARGET)).unwrap();
    assert_eq!(bench.host.count(Op::Format), 1);
    let other = PublishVolume { read_only: true, ..inline(TARGET) };
    refused!(bench.engine.publish_volume(&other), Error::Conflict { .. });
    unpublish(&bench).unwrap();
    bench.assert_node_is_clean();
}

/// A workload's data is never thrown away because a repeated or second call fails.
#[test]
fn a_refused_second_publish_does_not_take_it_away() {
    let bench = Bench::new();
    bench.engine.publish_volume(&inline(TARGET)).unwrap();
    refused!(
        bench.engine.publish_volume(&PublishVolume { read_only: true, ..inline(TARGET) }),
        Error::Conflict { .. }
    );
    refused!(bench.engine.publish_volume(&inline(OTHER_TARGET)), Error::Precondition(_));
    let (id, _) = only_volume(&bench);
    assert!(bench.host.mounts().contains(&path(TARGET)));
    assert_eq!(bench.node_record(&id).publications.len(), 1);
}

#[test]
fn after_a_reboot_it_is_published_again_or_cleaned_up() {
    let mut bench = Bench::new();
    bench.engine.publish_volume(&inline(TARGET)).unwrap();
    bench.host.reboot();
    bench.pool().reboot();
    bench.restart();
    bench.engine.publish_volume(&inline(TARGET)).unwrap();
    assert_eq!(bench.host.count(Op::Format), 1);
    bench.host.reboot();
    bench.pool().reboot();
    bench.restart();
    unpublish(&bench).unwrap();
    assert!(bench.names().is_empty());
    bench.assert_node_is_clean();
}

#[test]
fn one_that_cannot_be_published_is_not_made() {
    for step in [Op::Format, Op::Mount, Op::BindDirectory] {
        let bench = Bench::new();
        bench.host.fail_next(step, Error::failed("try", "broken on purpose"));
        bench.engine.publish_volume(&inline(TARGET)).unwrap_err();
        assert!(bench.names().is_empty(), "{step:?}");
        bench.assert_node_is_clean();
        bench.engine.publish_volume(&inline(TARGET)).unwrap();
    }
}

/// After a reboot nothing is recorded on the node, but the volume holds the workload's data.
#[test]
fn a_failed_publish_keeps_a_volume_that_it_found() {
    for step in [Op::Mount, Op::BindDirectory] {
        let mut bench = Bench::new();
        bench.engine.publish_volume(&inline(TARGET)).unwrap();
        let (id, _) = only_volume(&bench);
        bench.pool().write_tag(&id, "data").unwrap();
        bench.host.reboot();
        bench.pool().reboot();
        bench.restart();
        bench.host.fail_next(step, Error::failed("try", "broken on purpose"));
        bench.engine.publish_volume(&inline(TARGET)).unwrap_err();
        assert_eq!(bench.names().len(), 1, "{step:?}");
        bench.assert_node_is_clean();
        bench.restart();
        bench.engine.publish_volume(&inline(TARGET)).unwrap();
        assert_eq!(bench.pool().tag(&id).unwrap(), "data", "{step:?}");
        unpublish(&bench).unwrap();
        assert!(bench.names().is_empty());
    }
}

/// The process dies between making the volume and publishing it.
fn left_unpublished(bench: &Bench) {
    bench.host.fail_next(Op::Mount, Error::failed("try", "broken on purpose"));
    bench.pool().fail_next("ensure_no_volume", Error::failed("try", "broken on purpose"));
    bench.engine.publish_volume(&inline(TARGET)).unwrap_err();
    assert_eq!(bench.names().len(), 1);
}

#[test]
fn one_that_was_never_published_goes_with_a_failed_call() {
    let bench = Bench::new();
    left_unpublished(&bench);
    bench.host.fail_next(Op::Mount, Error::failed("try", "broken on purpose"));
    bench.engine.publish_volume(&inline(TARGET)).unwrap_err();
    assert!(bench.names().is_empty());
    bench.assert_node_is_clean();
}

#[test]
fn one_that_was_never_published_goes_at_the_next_start() {
    let mut bench = Bench::new();
    left_unpublished(&bench);
    bench.restart();
    assert!(bench.names().is_empty());
    bench.assert_node_is_clean();
}

#[test]
fn it_is_known_by_the_orchestrators_id() {
    let bench = Bench::new();
    bench.engine.publish_volume(&inline(TARGET)).unwrap();
    let volume = VolumeRef::parse(ID);
    let stats = bench.engine.volume_stats(&volume, &path(TARGET)).unwrap();
    assert!(matches!(stats.usage, VolumeUsage::Filesystem(_)));
    assert!(!stats.condition.abnormal);
    let expand = NodeExpand { volume, path: path(TARGET), range: None, capability: None };
    assert_eq!(bench.engine.expand_node_volume(&expand).unwrap(), 2 * GIB);
}

#[test]
fn no_other_call_can_use_it() {
    let bench = Bench::new();
    bench.engine.publish_volume(&inline(TARGET)).unwrap();
    refused!(bench.engine.create_volume(&volume(ID)), Error::Conflict { .. });
    let (id, _) = only_volume(&bench);
    let issued = PublishVolume { volume: issued(&id), ..inline(OTHER_TARGET) };
    refused!(bench.engine.publish_volume(&issued), Error::Invalid { .. });
    refused!(bench.engine.delete_volume(&id), Error::Precondition(_));
}

#[test]
fn a_volume_of_that_name_is_not_taken_over() {
    let bench = Bench::new();
    bench.create(ID);
    refused!(bench.engine.publish_volume(&inline(TARGET)), Error::Conflict { .. });
    unpublish(&bench).unwrap();
    assert_eq!(bench.names(), [ID]);
}

#[test]
fn an_id_that_cannot_be_a_name_is_invalid() {
    let bench = Bench::new();
    for text in ["", &"x".repeat(129), "a\u{7}b"] {
        let request =
            PublishVolume { volume: VolumeRef::Foreign(text.to_owned()), ..inline(TARGET) };
        refused!(bench.engine.publish_volume(&request), Error::Invalid { field: "volume_id", .. });
    }
    assert!(bench.names().is_empty());
}

#[test]
fn without_room_there_is_none() {
    let bench = Bench::with_pools(vec![pool("small", &zone("z1"), GIB)]);
    refused!(
        bench.engine.publish_volume(&inline(TARGET)),
        Error::Exhausted(_) | Error::OutOfRange(_)
    );
    bench.assert_node_is_clean();
}

/// GEN-27: an unpublish that overtakes its publish must not be answered with OK.
#[test]
fn while_it_is_being_made_it_is_busy() {
    let bench = Bench::new();
    let engine = Arc::clone(&bench.engine);
    bench.pool().during_next_cut(move || {
        refused!(engine.unpublish_volume(&VolumeRef::parse(ID), &path(TARGET)), Error::Busy { .. });
        refused!(engine.publish_volume(&inline(TARGET)), Error::Busy { .. });
    });
    bench.engine.publish_volume(&inline(TARGET)).unwrap();
    unpublish(&bench).unwrap();
    bench.assert_node_is_clean();
    assert!(bench.names().is_empty());
}
