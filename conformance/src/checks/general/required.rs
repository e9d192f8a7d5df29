//! Each call with each of its required fields left out.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use crate::wire::csi::v1::node_service_capability::rpc::Type as NodeRpc;
use crate::wire::csi::v1::plugin_capability::service::Type::SnapshotMetadataService;
use crate::wire::csi::v1::*;

pub(in crate::checks) const SECTION: Section = Section {
    title: "General rules: required fields",
    service: Service::Protocol,
    needs: &[Need::Controller(Rpc::CreateDeleteVolume)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "required-fields-of-the-controller",
        "leaves out each required field of each call of the controller",
        &["GEN-10"],
        run!(of_the_controller),
    ),
    check(
        "required-fields-of-snapshots",
        "leaves out each required field of each call about snapshots",
        &["GEN-10"],
        run!(of_snapshots),
    )
    .needs(&[Need::Controller(Rpc::CreateDeleteSnapshot)]),
    check(
        "required-fields-of-the-node",
        "leaves out each required field of each call of the node",
        &["GEN-10"],
        run!(of_the_node),
    )
    .needs(&[Need::NodeService]),
    check(
        "required-fields-of-group-snapshots",
        "leaves out each required field of each call about group snapshots",
        &["GEN-10"],
        run!(of_group_snapshots),
    )
    .needs(&[Need::GroupSnapshots]),
    check(
        "required-fields-of-snapshot-metadata",
        "leaves out each required field of both streams",
        &["GEN-10"],
        run!(of_snapshot_metadata),
    )
    .needs(&[Need::Plugin(SnapshotMetadataService)]),
    check(
        "required-lists-hold-something",
        "sends empty lists where at least one element is required",
        &["GEN-09"],
        run!(lists_hold_something),
    ),
];

/// Refused once for each of the changes, made to a request that would do otherwise.
async fn each_refused<R: crate::wire::Rpc>(
    t: &CheckContext,
    request: R,
    changes: &[fn(&mut R)],
) -> Outcome {
    for change in changes {
        let mut request = request.clone();
        change(&mut request);
        t.refused(request, Code::InvalidArgument).await?;
    }
    Ok(())
}

async fn of_the_controller(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    each_refused(
        t,
        t.new_volume(),
        &[|request| request.name.clear(), |request| request.volume_capabilities.clear()],
    )
    .await?;
    each_refused(t, t.delete(&volume), &[|request| request.volume_id.clear()]).await?;
    each_refused(
        t,
        t.validate(&volume),
        &[|request| request.volume_id.clear(), |request| request.volume_capabilities.clear()],
    )
    .await?;
    let features = t.features();
    if t.attaches() {
        each_refused(
            t,
            t.attach(&volume, &t.capability()),
            &[
                |request| request.volume_id.clear(),
                |request| request.node_id.clear(),
                |request| request.volume_capability = None,
            ],
        )
        .await?;
        each_refused(t, t.detach(&volume), &[|request| request.volume_id.clear()]).await?;
    }
    if features.has_controller(Rpc::ExpandVolume) {
        let request = t.expand(&volume, t.size());
        each_refused(
            t,
            request,
            &[|request| request.volume_id.clear(), |request| request.capacity_range = None],
        )
        .await?;
    }
    if features.has_controller(Rpc::GetVolume) {
        t.refused(ControllerGetVolumeRequest::default(), Code::InvalidArgument).await?;
    }
    if features.has_controller(Rpc::ModifyVolume) {
        let request = ControllerModifyVolumeRequest {
            volume_id: volume.volume_id.clone(),
            secrets: t.secrets(),
            mutable_parameters: t.options().mutable_parameters.clone(),
        };
        each_refused(
            t,
            request,
            &[|request| request.volume_id.clear(), |request| request.mutable_parameters.clear()],
        )
        .await?;
    }
    Ok(())
}

async fn of_snapshots(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    each_refused(
        t,
        t.new_snapshot(&volume),
        &[|request| request.name.clear(), |request| request.source_volume_id.clear()],
    )
    .await?;
    t.refused(DeleteSnapshotRequest::default(), Code::InvalidArgument).await?;
    if t.features().has_controller(Rpc::GetSnapshot) {
        t.refused(GetSnapshotRequest::default(), Code::InvalidArgument).await?;
    }
    Ok(())
}

async fn of_the_node(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability.clone()).await?;
    let features = t.features();
    if t.stages() {
        each_refused(
            t,
            t.stage(&volume, &capability, &placed.publish_context)?,
            &[
                |request| request.volume_id.clear(),
                |request| request.staging_target_path.clear(),
                |request| request.volume_capability = None,
            ],
        )
        .await?;
        each_refused(
            t,
            t.unstage(&placed),
            &[|request| request.volume_id.clear(), |request| request.staging_target_path.clear()],
        )
        .await?;
    }
    each_refused(
        t,
        t.publish(&placed)?,
        &[
            |request| request.volume_id.clear(),
            |request| request.target_path.clear(),
            |request| request.volume_capability = None,
        ],
    )
    .await?;
    each_refused(
        t,
        t.unpublish(&placed),
        &[|request| request.volume_id.clear(), |request| request.target_path.clear()],
    )
    .await?;
    let (volume_id, volume_path) = (volume.volume_id.clone(), placed.target.clone());
    if features.has_node(NodeRpc::GetVolumeStats) {
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume_id.clone(),
            volume_path: volume_path.clone(),
            ..Default::default()
        };
        each_refused(
            t,
            request,
            &[|request| request.volume_id.clear(), |request| request.volume_path.clear()],
        )
        .await?;
    }
    if features.has_node(NodeRpc::ExpandVolume) {
        let request = NodeExpandVolumeRequest { volume_id, volume_path, ..Default::default() };
        each_refused(
            t,
            request,
            &[|request| request.volume_id.clear(), |request| request.volume_path.clear()],
        )
        .await?;
    }
    t.withdrawn(&placed).await
}

async fn of_group_snapshots(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    each_refused(
        t,
        t.new_group_snapshot(&[&volume]),
        &[|request| request.name.clear(), |request| request.source_volume_ids.clear()],
    )
    .await?;
    t.refused(DeleteVolumeGroupSnapshotRequest::default(), Code::InvalidArgument).await?;
    t.refused(GetVolumeGroupSnapshotRequest::default(), Code::InvalidArgument).await?;
    Ok(())
}

async fn of_snapshot_metadata(t: &CheckContext) -> Outcome {
    t.stream_refused(GetMetadataAllocatedRequest::default(), Code::InvalidArgument).await?;
    let some = t.unknown_id();
    let without_base =
        GetMetadataDeltaRequest { target_snapshot_id: some.clone(), ..Default::default() };
    let without_target = GetMetadataDeltaRequest { base_snapshot_id: some, ..Default::default() };
    t.stream_refused(without_base, Code::InvalidArgument).await?;
    t.stream_refused(without_target, Code::InvalidArgument).await?;
    Ok(())
}

async fn lists_hold_something(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    each_refused(t, t.new_volume(), &[|request| request.volume_capabilities.clear()]).await?;
    each_refused(t, t.validate(&volume), &[|request| request.volume_capabilities.clear()]).await?;
    if t.features().group_snapshots {
        let request = t.new_group_snapshot(&[]);
        t.refused(request, Code::InvalidArgument).await?;
    }
    Ok(())
}
