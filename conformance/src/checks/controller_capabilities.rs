//! ControllerGetCapabilities (CC).

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{CheckContext, code_of};
use crate::need::Need;
use crate::wire::Rpc;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v1::node_service_capability::rpc::Type as NodeRpc;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{
    ControllerExpandVolumeRequest, ControllerGetCapabilitiesRequest, ControllerGetVolumeRequest,
    ControllerModifyVolumeRequest, ControllerPublishVolumeRequest,
    ControllerUnpublishVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest,
    DeleteSnapshotRequest, DeleteVolumeRequest, GetCapacityRequest, GetSnapshotRequest,
    ListSnapshotsRequest, ListVolumesRequest,
};

pub(super) const SECTION: Section = Section {
    title: "ControllerGetCapabilities",
    service: Service::Controller,
    needs: &[Need::ControllerService],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "controller-capabilities",
        "asks for the capabilities, twice",
        &["CC-01"],
        run!(capabilities),
    ),
    check(
        "controller-capabilities-are-true",
        "makes an empty call of each method and compares with what is offered",
        &["CC-02"],
        run!(are_true),
    ),
    check(
        "controller-capabilities-published-nodes",
        "looks whether a plugin that tells of publications can make them",
        &["CC-06"],
        run!(published_nodes),
    )
    .needs(&[Need::Controller(ControllerRpc::ListVolumesPublishedNodes)]),
    check(
        "controller-capabilities-single-node-modes",
        "makes a volume in a new single-node mode, and one in the old one",
        &["CC-07"],
        run!(single_node_modes),
    )
    .needs(&[
        Need::Controller(ControllerRpc::SingleNodeMultiWriter),
        Need::Controller(ControllerRpc::CreateDeleteVolume),
    ]),
    check(
        "controller-capabilities-expansion",
        "compares EXPAND_VOLUME with the VolumeExpansion of the plugin",
        &["CC-08"],
        run!(expansion),
    ),
    check(
        "controller-capabilities-without-storage",
        "asks for the capabilities while the storage is away",
        &["CC-10"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[
    ("CC-04", "a permission: cloning may be offered or not; what it means once offered is CV-25"),
    ("CC-09", "a permission: what can be made may be listed or not"),
];

async fn capabilities(t: &CheckContext) -> Outcome {
    let first = t.ok(ControllerGetCapabilitiesRequest::default()).await?;
    let second = t.ok(ControllerGetCapabilitiesRequest::default()).await?;
    t.expect(first == second, "the same capabilities again")
}

/// An empty call does nothing: a method that is there misses its fields or answers, and one that
/// is not there says so.
async fn is_there<R: Rpc>(t: &CheckContext, offered: bool) -> Outcome {
    let unknown = code_of(&t.ask(R::default()).await?) == Code::Unimplemented;
    let expected = if offered { "any answer but UNIMPLEMENTED" } else { "UNIMPLEMENTED" };
    t.expect(unknown != offered, format!("{expected}, by the capabilities"))
}

async fn are_true(t: &CheckContext) -> Outcome {
    let has = |rpc| t.features().has_controller(rpc);
    is_there::<CreateVolumeRequest>(t, has(ControllerRpc::CreateDeleteVolume)).await?;
    is_there::<DeleteVolumeRequest>(t, has(ControllerRpc::CreateDeleteVolume)).await?;
    let attaches = has(ControllerRpc::PublishUnpublishVolume);
    is_there::<ControllerPublishVolumeRequest>(t, attaches).await?;
    is_there::<ControllerUnpublishVolumeRequest>(t, attaches).await?;
    is_there::<ListVolumesRequest>(t, has(ControllerRpc::ListVolumes)).await?;
    is_there::<GetCapacityRequest>(t, has(ControllerRpc::GetCapacity)).await?;
    is_there::<CreateSnapshotRequest>(t, has(ControllerRpc::CreateDeleteSnapshot)).await?;
    is_there::<DeleteSnapshotRequest>(t, has(ControllerRpc::CreateDeleteSnapshot)).await?;
    is_there::<ListSnapshotsRequest>(t, has(ControllerRpc::ListSnapshots)).await?;
    is_there::<ControllerExpandVolumeRequest>(t, has(ControllerRpc::ExpandVolume)).await?;
    is_there::<ControllerGetVolumeRequest>(t, has(ControllerRpc::GetVolume)).await?;
    is_there::<ControllerModifyVolumeRequest>(t, has(ControllerRpc::ModifyVolume)).await?;
    is_there::<GetSnapshotRequest>(t, has(ControllerRpc::GetSnapshot)).await
}

async fn published_nodes(t: &CheckContext) -> Outcome {
    t.ok(ControllerGetCapabilitiesRequest::default()).await?;
    t.expect(t.attaches(), "PUBLISH_UNPUBLISH_VOLUME beside LIST_VOLUMES_PUBLISHED_NODES")
}

async fn single_node_modes(t: &CheckContext) -> Outcome {
    let mut works = false;
    for mode in [Mode::SingleNodeSingleWriter, Mode::SingleNodeMultiWriter] {
        for capability in t.capabilities(mode) {
            works |= t.settled(t.new_volume_for(capability)).await?.is_ok();
        }
    }
    t.expect(works, "OK for SINGLE_NODE_SINGLE_WRITER or SINGLE_NODE_MULTI_WRITER")?;
    for capability in t.capabilities(Mode::SingleNodeWriter) {
        t.volume_for(capability).await?;
    }
    Ok(())
}

async fn expansion(t: &CheckContext) -> Outcome {
    t.ok(ControllerGetCapabilitiesRequest::default()).await?;
    let by_controller = t.features().has_controller(ControllerRpc::ExpandVolume);
    let by_node = t.features().has_node(NodeRpc::ExpandVolume);
    let said = !t.features().expansion.is_empty();
    t.expect(!by_controller || said, "VolumeExpansion in GetPluginCapabilities")?;
    t.expect(!said || by_controller || by_node, "EXPAND_VOLUME of the controller or of the node")
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let answer = t.during_outage(t.ask(ControllerGetCapabilitiesRequest::default())).await?;
    let whole = t.ok(ControllerGetCapabilitiesRequest::default()).await?;
    let Ok(reply) = answer else { return Ok(()) };
    t.expect(reply == whole, "a refusal while the storage was away, or all capabilities")
}
