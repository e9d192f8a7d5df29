//! How many may use a volume at once, and whether they may write.

use tonic::Code;

use crate::capability::in_mode;
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{Answer, CheckContext, Placed};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use crate::wire::csi::v1::node_service_capability::rpc::Type as NodeRpc;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, Volume, VolumeCapability,
};

pub(in crate::checks) const SECTION: Section = Section {
    title: "Access modes",
    service: Service::Protocol,
    needs: &[Need::Controller(Rpc::CreateDeleteVolume), Need::NodeService],
    checks: CHECKS,
    unseen: &[],
};

const TWO_NODES: &[Need] = &[Need::Controller(Rpc::PublishUnpublishVolume), Need::OtherNode];

const CHECKS: &[Check] = &[
    check(
        "single-node-writer-has-one-publication",
        "publishes a SINGLE_NODE_WRITER volume at a second target",
        &["AM-09"],
        run!(writer_has_one_publication),
    ),
    check(
        "single-node-writer-keeps-out-a-second-node",
        "attaches a SINGLE_NODE_WRITER volume to a second node",
        &["AM-09"],
        run!(writer_keeps_out_a_second_node),
    )
    .needs(TWO_NODES),
    check(
        "single-node-reader-has-one-publication",
        "publishes a SINGLE_NODE_READER_ONLY volume at a second target, and attaches it elsewhere",
        &["AM-10"],
        run!(reader_has_one_publication),
    ),
    check(
        "a-reader-cannot-write",
        "writes to a volume published as SINGLE_NODE_READER_ONLY",
        &["AM-10"],
        run!(a_reader_cannot_write),
    )
    .needs(&[Need::LocalFiles]),
    check(
        "many-readers-cannot-write",
        "writes to a volume published as MULTI_NODE_READER_ONLY",
        &["AM-11"],
        run!(many_readers_cannot_write),
    )
    .needs(&[Need::LocalFiles]),
    check(
        "readers-on-two-nodes",
        "attaches a MULTI_NODE_READER_ONLY volume to two nodes",
        &["AM-11"],
        run!(readers_on_two_nodes),
    )
    .needs(TWO_NODES),
    check(
        "one-writer-on-two-nodes",
        "attaches a MULTI_NODE_SINGLE_WRITER volume to a second node that wants to write",
        &["AM-12"],
        run!(one_writer_on_two_nodes),
    )
    .needs(TWO_NODES),
    check(
        "writers-on-two-nodes",
        "attaches a MULTI_NODE_MULTI_WRITER volume to two nodes that want to write",
        &["AM-13"],
        run!(writers_on_two_nodes),
    )
    .needs(TWO_NODES),
    check(
        "single-node-single-writer-has-one-publication",
        "publishes a SINGLE_NODE_SINGLE_WRITER volume at a second target",
        &["AM-14"],
        run!(single_writer_has_one_publication),
    )
    .needs(&[Need::Node(NodeRpc::SingleNodeMultiWriter)]),
    check(
        "single-node-multi-writer-has-several-publications",
        "publishes a SINGLE_NODE_MULTI_WRITER volume at two targets and writes to both",
        &["AM-15"],
        run!(multi_writer_has_several_publications),
    )
    .needs(&[Need::Node(NodeRpc::SingleNodeMultiWriter)]),
    check(
        "older-callers-are-understood",
        "creates, validates and publishes with SINGLE_NODE_WRITER where modes 6 and 7 are known",
        &["AM-16"],
        run!(older_callers_are_understood),
    )
    .needs(&[Need::Controller(Rpc::SingleNodeMultiWriter)]),
];

/// Published once; then the answer to a second publication, elsewhere on this node.
async fn published_twice(t: &CheckContext, mode: Mode) -> Outcome<(Placed, Answer<String>)> {
    let (volume, capability) = t.volume_in_mode(mode).await?;
    let placed = t.placed(&volume, capability).await?;
    let request = t.publish(&placed)?;
    let target = request.target_path.clone();
    let answer = t.settled(request).await?;
    Ok((placed, answer.map(|_| target)))
}

async fn second_target_is_refused(t: &CheckContext, mode: Mode) -> Outcome {
    let (placed, second) = published_twice(t, mode).await?;
    let Err(_) = second else {
        return Err(t.failed("a refusal: the mode allows one publication"));
    };
    t.withdrawn(&placed).await
}

async fn writer_has_one_publication(t: &CheckContext) -> Outcome {
    second_target_is_refused(t, Mode::SingleNodeWriter).await
}

async fn single_writer_has_one_publication(t: &CheckContext) -> Outcome {
    second_target_is_refused(t, Mode::SingleNodeSingleWriter).await
}

async fn reader_has_one_publication(t: &CheckContext) -> Outcome {
    second_target_is_refused(t, Mode::SingleNodeReaderOnly).await?;
    if !t.attaches() || t.options().other_node.is_none() {
        return Ok(());
    }
    let (volume, capability) = t.volume_in_mode(Mode::SingleNodeReaderOnly).await?;
    t.attached(&volume, &capability).await?;
    let second = on_the_other_node(t, &volume, &capability, false).await?;
    t.expect(second.is_err(), "a refusal: the mode allows one node")
}

async fn on_the_other_node(
    t: &CheckContext,
    volume: &Volume,
    capability: &VolumeCapability,
    readonly: bool,
) -> Outcome<Answer<ControllerPublishVolumeResponse>> {
    let node_id = t.options().other_node.clone().unwrap_or_default();
    let request =
        ControllerPublishVolumeRequest { node_id, readonly, ..t.attach(volume, capability) };
    t.settled(request).await
}

async fn writer_keeps_out_a_second_node(t: &CheckContext) -> Outcome {
    let (volume, capability) = t.volume_in_mode(Mode::SingleNodeWriter).await?;
    t.attached(&volume, &capability).await?;
    let second = on_the_other_node(t, &volume, &capability, false).await?;
    t.expect(second.is_err(), "a refusal: the mode allows one node")
}

async fn a_reader_cannot_write(t: &CheckContext) -> Outcome {
    cannot_write(t, Mode::SingleNodeReaderOnly).await
}

async fn many_readers_cannot_write(t: &CheckContext) -> Outcome {
    cannot_write(t, Mode::MultiNodeReaderOnly).await
}

async fn cannot_write(t: &CheckContext, mode: Mode) -> Outcome {
    let (volume, capability) = t.volume_in_mode(mode).await?;
    let placed = t.placed(&volume, capability).await?;
    t.expect(!t.is_writable(&placed.target_path()), "no way to write")?;
    t.withdrawn(&placed).await
}

/// Attached to this node for writing, as far as the mode allows it.
async fn attached_in(t: &CheckContext, mode: Mode) -> Outcome<(Volume, VolumeCapability)> {
    let (volume, capability) = t.volume_in_mode(mode).await?;
    t.attached(&volume, &capability).await?;
    Ok((volume, capability))
}

async fn readers_on_two_nodes(t: &CheckContext) -> Outcome {
    let (volume, capability) = attached_in(t, Mode::MultiNodeReaderOnly).await?;
    let second = on_the_other_node(t, &volume, &capability, false).await?;
    t.expect(second.is_ok(), "OK: many nodes may read")
}

async fn one_writer_on_two_nodes(t: &CheckContext) -> Outcome {
    let (volume, capability) = attached_in(t, Mode::MultiNodeSingleWriter).await?;
    let writer = on_the_other_node(t, &volume, &capability, false).await?;
    let Err(status) = writer else {
        return Err(t.failed("FAILED_PRECONDITION: one node writes already"));
    };
    t.expect(status.code() == Code::FailedPrecondition, "FAILED_PRECONDITION")?;
    if !t.features().has_controller(Rpc::PublishReadonly) {
        return Ok(());
    }
    let reader = on_the_other_node(t, &volume, &capability, true).await?;
    t.expect(reader.is_ok(), "OK: many nodes may read")
}

async fn writers_on_two_nodes(t: &CheckContext) -> Outcome {
    let (volume, capability) = attached_in(t, Mode::MultiNodeMultiWriter).await?;
    let second = on_the_other_node(t, &volume, &capability, false).await?;
    t.expect(second.is_ok(), "OK: many nodes may write")
}

async fn multi_writer_has_several_publications(t: &CheckContext) -> Outcome {
    let (placed, second) = published_twice(t, Mode::SingleNodeMultiWriter).await?;
    let Ok(second) = second else {
        return Err(t.failed("OK: the mode allows several publications"));
    };
    let second = Placed { target: second, ..placed.clone() };
    if t.options().local_files {
        for target in [placed.target_path(), second.target_path()] {
            t.expect(t.is_writable(&target), "to be able to write at both targets")?;
        }
    }
    t.ok(t.unpublish(&second)).await?;
    t.withdrawn(&placed).await
}

async fn older_callers_are_understood(t: &CheckContext) -> Outcome {
    let capability = in_mode(&t.quick_capability(), Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let request = crate::wire::csi::v1::ValidateVolumeCapabilitiesRequest {
        volume_capabilities: vec![capability.clone()],
        ..t.validate(&volume)
    };
    let reply = t.ok(request).await?;
    t.expect(reply.confirmed.is_some(), "SINGLE_NODE_WRITER to be confirmed")?;
    let placed = t.placed(&volume, capability).await?;
    t.withdrawn(&placed).await
}
