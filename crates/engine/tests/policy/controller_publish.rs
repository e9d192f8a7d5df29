//! Which nodes may use a volume, and how.

use orlop_engine::EngineSettings;
use orlop_engine::request::{ControllerPublish, CreateVolume, PublishContext};
use orlop_host::MemoryHost;
use orlop_model::AccessMode::*;
use orlop_model::{AccessMode, CapabilitySet, Error, NameDigest, Topology, VolumeId};

use crate::fixture::*;

/// A pool that every node reaches.
fn shared() -> Fixture {
    Fixture::with_pools(vec![pool("shared", &Topology::default(), 100 * GIB)])
}

fn with_modes(name: &str, modes: &[AccessMode]) -> CreateVolume {
    let capabilities = modes.iter().map(|mode| mount(None, *mode)).collect();
    CreateVolume { capabilities: CapabilitySet::new(capabilities).unwrap(), ..volume(name) }
}

fn as_mode(id: &VolumeId, node: &str, mode: AccessMode, read_only: bool) -> ControllerPublish {
    ControllerPublish { capability: mount(None, mode), read_only, ..controller_publish(id, node) }
}

fn nodes_of(fixture: &Fixture, id: &VolumeId) -> Vec<String> {
    fixture.record(id).published.keys().map(ToString::to_string).collect()
}

#[test]
fn repeated_publish_gives_the_same_answer() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    for read_only in [false, true] {
        let request = ControllerPublish { read_only, ..controller_publish(&id, HERE) };
        for _ in 0..2 {
            let context = fixture.engine.controller_publish(&request).unwrap();
            assert_eq!(context, PublishContext { read_only });
        }
        let other = ControllerPublish { read_only: !read_only, ..request.clone() };
        refused!(fixture.engine.controller_publish(&other), Error::Conflict { .. });
        fixture.engine.controller_unpublish(&id, Some(&node(HERE))).unwrap();
    }
}

#[test]
fn another_capability_on_the_same_node_conflicts() {
    let fixture = Fixture::new();
    let id = fixture.create_as(with_modes("v", &[SingleNodeWriter, MultiNodeMultiWriter]));
    fixture.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    for other in [SingleNodeReaderOnly, MultiNodeMultiWriter, SingleNodeMultiWriter] {
        refused!(
            fixture.engine.controller_publish(&as_mode(&id, HERE, other, false)),
            Error::Conflict { .. }
        );
    }
}

#[test]
fn capability_the_volume_lacks_is_refused() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let wrong = [
        as_mode(&id, HERE, MultiNodeMultiWriter, false),
        ControllerPublish { capability: block(SingleNodeWriter), ..controller_publish(&id, HERE) },
    ];
    for request in wrong {
        refused!(fixture.engine.controller_publish(&request), Error::Precondition(_));
    }
    assert_eq!(nodes_of(&fixture, &id), [""; 0]);
}

#[test]
fn unknown_volumes_and_nodes_are_not_found() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let error = refused!(
        fixture.engine.controller_publish(&controller_publish(&id, "elsewhere")),
        Error::NoSuchNode(_)
    );
    assert!(error.to_string().contains("elsewhere"));
    let never = VolumeId::new(id.pool().clone(), NameDigest::of_text("never made"));
    refused!(
        fixture.engine.controller_publish(&controller_publish(&never, HERE)),
        Error::NoSuchVolume(_)
    );
}

/// AM-09 to AM-13, for the second node that asks.
#[test]
fn access_modes_decide_about_a_second_node() {
    const RW: bool = false;
    const RO: bool = true;
    // (mode, readonly) of the first node, the same of the second, and whether the second may publish.
    let table = [
        ((SingleNodeWriter, RW), (SingleNodeWriter, RW), false),
        ((SingleNodeWriter, RO), (SingleNodeWriter, RO), false),
        ((SingleNodeReaderOnly, RO), (SingleNodeReaderOnly, RO), false),
        ((SingleNodeSingleWriter, RW), (SingleNodeSingleWriter, RW), false),
        ((SingleNodeMultiWriter, RW), (SingleNodeMultiWriter, RW), false),
        ((SingleNodeWriter, RW), (MultiNodeReaderOnly, RO), false),
        ((MultiNodeReaderOnly, RO), (SingleNodeWriter, RW), false),
        ((MultiNodeReaderOnly, RO), (MultiNodeReaderOnly, RO), true),
        ((MultiNodeReaderOnly, RW), (MultiNodeReaderOnly, RW), true),
        ((MultiNodeSingleWriter, RW), (MultiNodeSingleWriter, RO), true),
        ((MultiNodeSingleWriter, RO), (MultiNodeSingleWriter, RW), true),
        ((MultiNodeSingleWriter, RW), (MultiNodeSingleWriter, RW), false),
        ((MultiNodeSingleWriter, RW), (MultiNodeReaderOnly, RO), true),
        ((MultiNodeMultiWriter, RW), (MultiNodeMultiWriter, RW), true),
        ((MultiNodeMultiWriter, RW), (MultiNodeSingleWriter, RW), false),
    ];
    let fixture = shared();
    let all = [
        SingleNodeWriter,
        SingleNodeReaderOnly,
        MultiNodeReaderOnly,
        MultiNodeSingleWriter,
        MultiNodeMultiWriter,
        SingleNodeSingleWriter,
        SingleNodeMultiWriter,
    ];
    for (number, (first, second, allowed)) in table.into_iter().enumerate() {
        let id = fixture.create_as(with_modes(&format!("v{number}"), &all));
        fixture.engine.controller_publish(&as_mode(&id, "n1", first.0, first.1)).unwrap();
        let answer = fixture.engine.controller_publish(&as_mode(&id, "n2", second.0, second.1));
        if allowed {
            answer.unwrap_or_else(|error| panic!("{first:?} then {second:?}: {error}"));
            assert_eq!(nodes_of(&fixture, &id), ["n1", "n2"]);
            continue;
        }
        let error = refused!(answer, Error::Precondition(_));
        assert!(error.to_string().contains("n1"), "CP-16: {error}");
        assert_eq!(nodes_of(&fixture, &id), ["n1"], "{first:?} then {second:?}");
    }
}

/// A MULTI_NODE_READER_ONLY publication reads, whatever `readonly` says (NP-35), so it is no
/// second writer.
#[test]
fn reader_beside_a_single_writer_needs_no_readonly() {
    let fixture = shared();
    let id = fixture.create_as(with_modes("v", &[MultiNodeSingleWriter, MultiNodeReaderOnly]));
    fixture.engine.controller_publish(&as_mode(&id, "n1", MultiNodeSingleWriter, false)).unwrap();
    fixture.engine.controller_publish(&as_mode(&id, "n2", MultiNodeReaderOnly, false)).unwrap();
    fixture.engine.controller_unpublish(&id, Some(&node("n1"))).unwrap();
    fixture.engine.controller_publish(&as_mode(&id, "n3", MultiNodeSingleWriter, false)).unwrap();
}

#[test]
fn unpublishing_frees_the_volume_for_another_node() {
    let fixture = shared();
    let id = fixture.create("v");
    fixture.engine.controller_publish(&controller_publish(&id, "n1")).unwrap();
    fixture.engine.controller_unpublish(&id, Some(&node("n2"))).unwrap();
    assert_eq!(nodes_of(&fixture, &id), ["n1"]);
    for _ in 0..2 {
        fixture.engine.controller_unpublish(&id, Some(&node("n1"))).unwrap();
    }
    fixture.engine.controller_publish(&controller_publish(&id, "n2")).unwrap();
    assert_eq!(nodes_of(&fixture, &id), ["n2"]);
}

#[test]
fn unpublish_without_node_means_all_nodes() {
    let fixture = shared();
    let id = fixture.create_as(with_modes("v", &[MultiNodeMultiWriter]));
    for node in ["n1", "n2", "n3"] {
        fixture
            .engine
            .controller_publish(&as_mode(&id, node, MultiNodeMultiWriter, false))
            .unwrap();
    }
    fixture.engine.controller_unpublish(&id, Some(&node("n2"))).unwrap();
    assert_eq!(nodes_of(&fixture, &id), ["n1", "n3"]);
    fixture.engine.controller_unpublish(&id, None).unwrap();
    assert_eq!(nodes_of(&fixture, &id), [""; 0]);
}

#[test]
fn unpublish_of_a_deleted_volume_succeeds() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.engine.delete_volume(&id).unwrap();
    fixture.engine.controller_unpublish(&id, Some(&node(HERE))).unwrap();
    let elsewhere = VolumeId::new("0badf00d".parse().unwrap(), NameDigest::of_text("v"));
    fixture.engine.controller_unpublish(&elsewhere, None).unwrap();
}

/// CU-07, CU-08: what cannot be looked up may still be published.
#[test]
fn unpublish_fails_if_the_lookup_fails() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.engine.controller_publish(&controller_publish(&id, HERE)).unwrap();
    fixture.pool().break_down("the disk is missing");
    for nodes in [None, Some(node(HERE)), Some(node("lost-node"))] {
        fixture.engine.controller_unpublish(&id, nodes.as_ref()).unwrap_err();
    }
    fixture.pool().mend();
    assert_eq!(nodes_of(&fixture, &id), [HERE]);
}

#[test]
fn node_volume_limit_holds_across_a_restart() {
    let settings = EngineSettings { max_volumes: 2, ..settings() };
    let pools = vec![pool("default", &zone("z1"), 100 * GIB)];
    let mut fixture = Fixture::assembled(pools, MemoryHost::default(), settings);
    let [a, b, c] = ["a", "b", "c"].map(|name| fixture.create(name));
    let publish = |fixture: &Fixture, id: &VolumeId| {
        fixture.engine.controller_publish(&controller_publish(id, HERE)).map(drop)
    };
    publish(&fixture, &a).unwrap();
    publish(&fixture, &b).unwrap();
    refused!(publish(&fixture, &c), Error::Exhausted(_));
    publish(&fixture, &a).expect("a repeated publish does not count twice");

    fixture.restart();
    refused!(publish(&fixture, &c), Error::Exhausted(_));
    fixture.engine.controller_unpublish(&a, None).unwrap();
    publish(&fixture, &c).unwrap();
}

#[test]
fn unrecorded_publication_does_not_count() {
    let settings = EngineSettings { max_volumes: 1, ..settings() };
    let pools = vec![pool("default", &zone("z1"), 100 * GIB)];
    let fixture = Fixture::assembled(pools, MemoryHost::default(), settings);
    let [a, b] = ["a", "b"].map(|name| fixture.create(name));
    fixture.pool().fail_next("update_volume", Error::failed("write", "broken on purpose"));
    fixture.engine.controller_publish(&controller_publish(&a, HERE)).unwrap_err();
    fixture.engine.controller_publish(&controller_publish(&b, HERE)).unwrap();
    assert_eq!(nodes_of(&fixture, &a), [""; 0]);
}

#[test]
fn wrong_context_is_refused_missing_one_accepted() {
    let fixture = Fixture::new();
    let volume = fixture.engine.create_volume(&volume("v")).unwrap();
    let id = volume.record.id;
    let with = |context| ControllerPublish { context, ..controller_publish(&id, HERE) };
    let mut altered = volume.context.clone();
    altered.insert("provisioning".to_owned(), "thick".to_owned());
    refused!(
        fixture.engine.controller_publish(&with(altered)),
        Error::Invalid { field: "volume_context", .. }
    );
    let mut foreign = volume.context.clone();
    foreign.insert("storage.kubernetes.io/csiProvisionerIdentity".to_owned(), "x".to_owned());
    for context in [volume.context, foreign, map(&[])] {
        fixture.engine.controller_publish(&with(context)).unwrap();
    }
}
