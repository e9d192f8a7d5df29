//! Pools that several nodes and several controllers use at once.

use orlop_engine::request::{ControllerPublish, CreateVolume, StageVolume, VolumeUsage};
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{
    AccessMode, CapabilitySet, Consistency, ContentSource, Device, DeviceAccess, DeviceSignature,
    Error, FormatState, FsType, FsUuid, Pool, ReaderState, Topology, VolumeId, VolumeRecord,
};

use crate::fixture::*;

const THERE: &str = "n2";

fn block_of(name: &str, mode: AccessMode) -> CreateVolume {
    CreateVolume { capabilities: only(block(mode)), ..volume(name) }
}

fn publish_as(id: &VolumeId, to: &str, mode: AccessMode) -> ControllerPublish {
    ControllerPublish { capability: block(mode), ..controller_publish(id, to) }
}

fn nodes_of(fixture: &Fixture, id: &VolumeId) -> Vec<String> {
    fixture.record(id).published.keys().map(ToString::to_string).collect()
}

#[test]
fn node_is_known_once_it_opened_the_pool() {
    let (here, _) = Fixture::sharing();
    let id = here.create("v");
    refused!(here.engine.controller_publish(&controller_publish(&id, "n3")), Error::NoSuchNode(_));
    here.engine.controller_publish(&controller_publish(&id, THERE)).unwrap();
}

#[test]
fn repeated_publish_to_a_vanished_node_succeeds() {
    let (here, _) = Fixture::sharing();
    let id = here.create("v");
    let request = controller_publish(&id, THERE);
    here.engine.controller_publish(&request).unwrap();
    here.pool().share_with(&[&node(HERE)]);
    here.engine.controller_publish(&request).unwrap();
    let other = here.create("w");
    refused!(
        here.engine.controller_publish(&controller_publish(&other, THERE)),
        Error::NoSuchNode(_)
    );
}

#[test]
fn racing_controllers_publish_to_one_node_only() {
    let (here, there) = Fixture::sharing();
    let id = here.create("v");
    std::thread::scope(|scope| {
        let racing = [(&here, HERE), (&there, THERE)].map(|(fixture, to)| {
            let request = controller_publish(&id, to);
            scope.spawn(move || fixture.engine.controller_publish(&request).is_ok())
        });
        let won = racing.map(|thread| thread.join().unwrap());
        assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    });
    assert_eq!(nodes_of(&here, &id).len(), 1);
}

#[test]
fn access_check_is_atomic_with_the_update() {
    let (here, there) = Fixture::sharing();
    let id = here.create("v");
    // As a controller that has looked and not yet written would find it.
    there.engine.controller_publish(&controller_publish(&id, THERE)).unwrap();
    let refusal = here.pool().catalogue().update_volume(&id, &mut |record| {
        assert_eq!(record.published.len(), 1);
        Err(Error::precondition("taken"))
    });
    refused!(refusal, Error::Precondition(_));
    assert_eq!(nodes_of(&here, &id), [THERE]);
}

#[test]
fn node_is_fenced_before_another_gets_the_volume() {
    let (here, there) = Fixture::sharing();
    let id = here.create("v");
    here.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    here.pool().fail_next("ensure_fenced", Error::failed("fence", "the cluster is away"));
    refused!(there.engine.controller_unpublish(&id, Some(&node(HERE))), Error::Failed { .. });
    // Until it is certain that the old node cannot write, no node gets the volume, not even that one.
    refused!(
        there.engine.controller_publish(&controller_publish(&id, THERE)),
        Error::Precondition(_)
    );
    refused!(here.engine.stage_volume(&stage(&id)), Error::Precondition(_));
    there.engine.controller_unpublish(&id, Some(&node(HERE))).unwrap();
    assert_eq!(here.pool().fenced(), [(id.clone(), node(HERE))]);
    there.engine.controller_publish(&controller_publish(&id, THERE)).unwrap();
    assert_eq!(nodes_of(&here, &id), [THERE]);
}

#[test]
fn node_can_be_published_again_during_unpublish() {
    let (here, there) = Fixture::sharing();
    let id = here.create("v");
    here.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    here.pool().fail_next("ensure_fenced", Error::failed("fence", "killed"));
    refused!(there.engine.controller_unpublish(&id, None), Error::Failed { .. });
    here.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    assert_eq!(here.pool().fenced(), [(id.clone(), node(HERE))]);
    here.stage(&id);
}

#[test]
fn stage_must_match_the_controller_publication() {
    let (here, there) = Fixture::sharing();
    let id = here.create("v");
    refused!(here.engine.stage_volume(&stage(&id)), Error::Precondition(_));
    let reading = ControllerPublish { read_only: true, ..controller_publish(&id, HERE) };
    here.engine.controller_publish(&reading).unwrap();
    refused!(there.engine.stage_volume(&stage(&id)), Error::Precondition(_));
    refused!(here.engine.stage_volume(&stage(&id)), Error::Precondition(_));
    here.assert_node_is_clean();
}

/// Alone it would mount a device that it may write to, under the eyes of the others.
#[test]
fn one_of_several_readers_cannot_stage_as_the_only_reader() {
    let (here, _) = Fixture::sharing();
    let both = [mount(None, MultiNodeReaderOnly), block(SingleNodeWriter)].to_vec();
    let capabilities = CapabilitySet::new(both).unwrap();
    let id = here.create_as(CreateVolume { capabilities, ..volume("v") });
    let capability = mount(None, MultiNodeReaderOnly);
    let reading = ControllerPublish { capability, ..controller_publish(&id, HERE) };
    here.engine.controller_publish(&reading).unwrap();
    for capability in [mount(None, SingleNodeReaderOnly), block(SingleNodeReaderOnly)] {
        let alone = StageVolume { capability, ..stage(&id) };
        refused!(here.engine.stage_volume(&alone), Error::Precondition(_));
        here.assert_node_is_clean();
    }
    show_on_read_only_device(&here, &id);
    here.engine.stage_volume(&reader(&id)).unwrap();
    let other = StageVolume { capability: block(SingleNodeReaderOnly), ..stage(&id) };
    refused!(here.engine.stage_volume(&other), Error::Conflict { .. });
}

/// The readers would get damaged files, and mounting may replay a journal under the writers.
#[test]
fn filesystem_is_not_shared_with_raw_writers() {
    let reading = mount(None, MultiNodeReaderOnly);
    for mode in [MultiNodeMultiWriter, MultiNodeSingleWriter] {
        let (here, _) = Fixture::sharing();
        let both = CapabilitySet::new(vec![reading.clone(), block(mode)]).unwrap();
        let id = here.create_as(CreateVolume { capabilities: both, ..volume("v") });
        let reader =
            ControllerPublish { capability: reading.clone(), ..controller_publish(&id, HERE) };
        let writer = publish_as(&id, THERE, mode);
        let raw_reader = ControllerPublish { read_only: true, ..writer.clone() };
        for (first, second) in [(&reader, &writer), (&writer, &reader)] {
            here.engine.controller_publish(first).unwrap();
            refused!(here.engine.controller_publish(second), Error::Precondition(_));
            assert_eq!(nodes_of(&here, &id), [first.node.to_string()]);
            here.engine.controller_unpublish(&id, None).unwrap();
        }
        here.engine.controller_publish(&reader).unwrap();
        here.engine.controller_publish(&raw_reader).unwrap();
    }
}

#[test]
fn several_writers_share_raw_devices_only() {
    let (here, there) = Fixture::sharing();
    for mode in [MultiNodeMultiWriter, MultiNodeSingleWriter] {
        let mounted = CreateVolume { capabilities: only(mount(None, mode)), ..volume("m") };
        refused!(here.engine.create_volume(&mounted), Error::Invalid { .. });
    }
    let id = here.create_as(block_of("b", MultiNodeMultiWriter));
    for (fixture, to) in [(&here, HERE), (&there, THERE)] {
        fixture.engine.controller_publish(&publish_as(&id, to, MultiNodeMultiWriter)).unwrap();
    }
    there.engine.controller_unpublish(&id, Some(&node(THERE))).unwrap();
    assert_eq!(here.pool().fenced(), [(id.clone(), node(THERE))]);
    assert_eq!(nodes_of(&here, &id), [HERE]);
}

fn reader(id: &VolumeId) -> StageVolume {
    StageVolume { capability: mount(None, MultiNodeReaderOnly), ..stage(id) }
}

/// The machine of the imagination does not know that two of its devices are one volume.
fn show_on_read_only_device(fixture: &Fixture, id: &VolumeId) {
    let device = fixture.pool().devices().ensure_attached(id, DeviceAccess::ReadOnly).unwrap();
    fixture.pool().devices().ensure_detached(id, DeviceAccess::ReadOnly).unwrap();
    let (fs, uuid) = (FsType::Xfs, FsUuid::from_bytes([1; 16]));
    let signature = DeviceSignature::Filesystem { fs, uuid, needs_check: false };
    fixture.host.set_signature(&device, signature);
}

fn state_of(fixture: &Fixture, id: &VolumeId, on: &str) -> ReaderState {
    fixture.record(id).published[&node(on)].reader
}

#[test]
fn failed_preparation_is_reported_even_if_undo_fails() {
    let (here, _) = Fixture::sharing();
    let capabilities = only(mount(None, MultiNodeReaderOnly));
    let id = here.create_as(CreateVolume { capabilities, ..volume("v") });
    let request = ControllerPublish {
        capability: mount(None, MultiNodeReaderOnly),
        ..controller_publish(&id, HERE)
    };
    here.engine.controller_publish(&request).unwrap();
    let killed = Error::failed("mkfs", "killed");
    here.host.fail_next(Op::Format, killed.clone());
    here.pool().fail_next("ensure_detached", Error::failed("detach", "in use"));
    assert_eq!(here.engine.stage_volume(&reader(&id)), Err(killed));
}

#[test]
fn readers_share_a_filesystem_prepared_by_one_node() {
    let (here, _) = Fixture::sharing();
    let capabilities = only(mount(None, MultiNodeReaderOnly));
    let id = here.create_as(CreateVolume { capabilities, ..volume("v") });
    for to in [HERE, THERE] {
        let request = ControllerPublish {
            capability: mount(None, MultiNodeReaderOnly),
            ..controller_publish(&id, to)
        };
        here.engine.controller_publish(&request).unwrap();
    }
    // Another node is at it, or died at it.
    let claim = |state| {
        here.pool()
            .catalogue()
            .update_volume(&id, &mut |record| {
                record.published.get_mut(&node(THERE)).unwrap().reader = state;
                Ok(())
            })
            .unwrap();
    };
    claim(ReaderState::Preparing);
    refused!(here.engine.stage_volume(&reader(&id)), Error::Busy { .. });
    here.assert_node_is_clean();
    claim(ReaderState::Away);

    show_on_read_only_device(&here, &id);
    here.engine.stage_volume(&reader(&id)).unwrap();
    assert!(matches!(here.format(&id), FormatState::Formatted { .. }));
    let attached = |access| -> Option<Device> { here.attached(&id, access) };
    assert!(attached(DeviceAccess::ReadWrite).is_none());
    assert!(attached(DeviceAccess::ReadOnly).is_some());
    assert_eq!(state_of(&here, &id, HERE), ReaderState::Reading);
    here.engine.stage_volume(&reader(&id)).unwrap();
    here.unstage(&id).unwrap();
    here.assert_node_is_clean();
}

#[test]
fn copy_of_a_remotely_mounted_volume_is_crash_consistent() {
    let (here, there) = Fixture::sharing();
    let id = here.create("v");
    let consistency = |fixture: &Fixture, name| {
        fixture.engine.create_snapshot(&snapshot(name, &id)).unwrap().consistency
    };
    assert_eq!(consistency(&here, "s1"), Consistency::Filesystem);
    here.engine.controller_publish(&controller_publish(&id, THERE)).unwrap();
    assert_eq!(consistency(&here, "s2"), Consistency::Crash);
    // Who asks may be a controller of the node's name, which does not see what the node has.
    assert_eq!(consistency(&there, "s3"), Consistency::Crash);
    there.stage(&id);
    assert_eq!(consistency(&there, "s4"), Consistency::Filesystem);
    refused!(here.engine.reclaim_on_pool(&id), Error::Precondition(_));
}

#[test]
fn broken_device_is_reported_and_not_staged() {
    let (here, _) = Fixture::sharing();
    let id = here.create("v");
    here.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    here.stage(&id);
    here.pool().break_device(&id, "its export has ended");
    let stats = here.engine.volume_stats(&issued(&id), &path(STAGING)).unwrap();
    assert!(stats.condition.is_abnormal());
    assert!(matches!(stats.usage, VolumeUsage::Unknown));
    let error = refused!(here.engine.stage_volume(&stage(&id)), Error::Precondition(_));
    assert!(error.to_string().contains("its export has ended"));
    refused!(here.engine.publish_volume(&publish(&id, TARGET)), Error::Precondition(_));
    here.unstage(&id).unwrap();
}

#[test]
fn full_node_refuses_publish_and_stage() {
    let (here, _) = Fixture::sharing();
    let full = orlop_engine::EngineSettings { max_volumes: 1, ..settings() };
    let pools = here.pools.iter().map(|pool| std::sync::Arc::clone(pool) as _).collect();
    let engine = orlop_engine::Engine::new(pools, here.host.clone(), full).unwrap();
    let [first, second] = ["a", "b"].map(|name| here.create(name));
    engine.controller_publish(&controller_publish(&first, HERE)).unwrap();
    refused!(engine.controller_publish(&controller_publish(&second, HERE)), Error::Exhausted(_));
    // Another controller has not seen the first one yet.
    here.engine.controller_publish(&controller_publish(&second, HERE)).unwrap();
    engine.stage_volume(&stage(&first)).unwrap();
    let other = StageVolume { path: path("/staging/w"), ..stage(&second) };
    refused!(engine.stage_volume(&other), Error::Exhausted(_));
    here.unstage(&first).unwrap();
    engine.stage_volume(&other).unwrap();
}

#[test]
fn records_are_counted_only_near_the_volume_limit() {
    let (here, _) = Fixture::sharing();
    let roomy = orlop_engine::EngineSettings { max_volumes: 102, ..settings() };
    let pools = here.pools.iter().map(|pool| std::sync::Arc::clone(pool) as _).collect();
    let engine = orlop_engine::Engine::new(pools, here.host.clone(), roomy).unwrap();
    let ids = ["a", "b", "c"].map(|name| here.create(name));
    engine.controller_publish(&controller_publish(&ids[0], HERE)).unwrap();
    here.pool().fail_next("volumes", Error::failed("read", "all records"));
    engine.controller_publish(&controller_publish(&ids[1], HERE)).unwrap();
    // Less than a hundred places would be left: now it has to be known how many.
    let third = controller_publish(&ids[2], HERE);
    refused!(engine.controller_publish(&third), Error::Failed { .. });
    engine.controller_publish(&third).unwrap();
}

/// A call that goes on after a long time must not go by what it read before.
#[test]
fn filesystem_written_by_another_node_is_not_formatted() {
    let (here, there) = Fixture::sharing();
    let id = here.create("v");
    here.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    here.host.fail_next(Op::Format, Error::failed("mkfs", "killed"));
    refused!(here.engine.stage_volume(&stage(&id)), Error::Failed { .. });
    assert!(matches!(here.format(&id), FormatState::Formatting { .. }));

    let (elsewhere, machine, volume) = (there, here.host.clone(), id.clone());
    here.pool().during_next_attach(move || {
        let engine = &elsewhere.engine;
        engine.controller_unpublish(&volume, Some(&node(HERE))).unwrap();
        engine.controller_publish(&controller_publish(&volume, THERE)).unwrap();
        elsewhere.stage(&volume);
        machine.set_signature(&elsewhere.device(&volume), signature_of(&elsewhere, &volume));
        elsewhere.unstage(&volume).unwrap();
        engine.controller_unpublish(&volume, Some(&node(THERE))).unwrap();
        engine.controller_publish(&controller_publish(&volume, HERE)).unwrap();
    });
    here.stage(&id);
    assert_eq!(here.host.count(Op::Format), 0);
}

fn signature_of(fixture: &Fixture, id: &VolumeId) -> DeviceSignature {
    let FormatState::Formatted { fs, uuid } = fixture.format(id) else {
        panic!("{:?}", fixture.format(id));
    };
    DeviceSignature::Filesystem { fs, uuid, needs_check: false }
}

#[test]
fn node_that_lost_its_claim_does_not_format() {
    let (here, there) = Fixture::sharing();
    let capability = mount(None, MultiNodeReaderOnly);
    let id = here.create_as(CreateVolume { capabilities: only(capability.clone()), ..volume("v") });
    let request = ControllerPublish { capability, ..controller_publish(&id, HERE) };
    here.engine.controller_publish(&request).unwrap();
    let volume = id.clone();
    here.pool().during_next_attach(move || {
        there.engine.controller_unpublish(&volume, Some(&node(HERE))).unwrap();
        there.engine.controller_publish(&request).unwrap();
    });
    refused!(here.engine.stage_volume(&reader(&id)), Error::Busy { .. });
    assert_eq!(here.format(&id), FormatState::Blank);
    here.assert_node_is_clean();
}

#[test]
fn format_state_of_another_node_is_not_overwritten() {
    let (here, there) = Fixture::sharing();
    let id = here.create("v");
    here.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    let further = FormatState::Formatted { fs: FsType::Ext4, uuid: FsUuid::from_bytes([7; 16]) };
    let volume = id.clone();
    here.host.during_next(Op::Format, move || {
        let change = &mut |record: &mut VolumeRecord| {
            record.format = further;
            Ok(())
        };
        there.pool().catalogue().update_volume(&volume, change).unwrap();
    });
    refused!(here.engine.stage_volume(&stage(&id)), Error::Busy { .. });
    assert_eq!(here.format(&id), further);
}

/// There, what is committed is a clone that the cluster makes of the source itself.
#[test]
fn source_on_a_shared_pool_is_kept_until_copied() {
    let (here, _) = Fixture::sharing();
    let saved = here.snapshot("s", &here.create("origin"));
    let (engine, source) = (here.engine.clone(), saved.clone());
    here.pool().during_next_commit(move || {
        refused!(engine.delete_snapshot(&source), Error::Busy { .. });
    });
    here.create_as(restored("back", &saved));
    here.engine.delete_snapshot(&saved).unwrap();
}

/// Not "busy", which would be tried again without end: the volume would wait for its own lock.
#[test]
fn a_source_of_the_same_name_on_another_pool_is_refused() {
    let topology = Topology::default();
    let fixture =
        Fixture::with_pools(vec![pool("shared", &topology, GIB), pool("own", &topology, GIB)]);
    fixture.pool().share_with(&[&node(HERE)]);
    let wanted = |name: &str| CreateVolume {
        parameters: parameters(&[("pool", "shared")]),
        range: Some(range(16 << 20, 0)),
        ..block_volume(name)
    };
    let source = fixture.create_as(wanted("x"));
    let copy = CreateVolume {
        source: Some(ContentSource::Volume(source)),
        parameters: parameters(&[("pool", "own")]),
        ..wanted("x")
    };
    let error = refused!(fixture.engine.create_volume(&copy), Error::Invalid { .. });
    assert!(error.to_string().contains("another pool"), "{error}");
}
