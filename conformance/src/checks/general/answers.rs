//! Replies and refusals: their form, and which calls have to be there.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::plugin_features::PluginFeatures;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use crate::wire::csi::v1::node_service_capability::rpc::Type as NodeRpc;
use crate::wire::csi::v1::plugin_capability::service::Type as PluginService;
use crate::wire::csi::v1::*;

pub(in crate::checks) const SECTION: Section = Section {
    title: "General rules: answers",
    service: Service::Protocol,
    needs: &[],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "replies-are-complete-and-within-limits",
        "collects a reply of each kind and measures every string, map and required field",
        &["GEN-01", "GEN-02", "GEN-08", "GEN-09", "GEN-40"],
        run!(replies_are_complete),
    ),
    check(
        "refusals-have-a-text-and-no-details",
        "collects refusals and looks at their text and their details",
        &["GEN-16", "GEN-17"],
        run!(refusals_have_a_text),
    ),
    check(
        "every-call-ends-with-a-grpc-status",
        "calls every method and reads its status off the wire",
        &["GEN-14", "GEN-15"],
        run!(every_call_ends_with_a_status),
    ),
    check(
        "error-tables-are-kept",
        "meets a condition of the error table of one call after another",
        &["GEN-19"],
        run!(error_tables_are_kept),
    )
    .needs(&[Need::Controller(Rpc::CreateDeleteVolume)]),
    check(
        "what-cannot-be-done-is-not-ok",
        "takes the storage away, changes things, and looks whether what was OK is so",
        &["GEN-18"],
        run!(what_cannot_be_done_is_not_ok),
    )
    .needs(&[Need::Controller(Rpc::CreateDeleteVolume), Need::Faults])
    .alone(),
    check(
        "calls-that-are-not-there",
        "calls a method that no version has, and those behind capabilities not offered",
        &["GEN-22"],
        run!(calls_that_are_not_there),
    ),
    check(
        "every-method-of-a-service-answers",
        "calls every method of every service that is offered",
        &["GEN-28"],
        run!(every_method_answers),
    ),
    check(
        "capabilities-are-true",
        "calls every method that an advertised capability stands for",
        &["GEN-29", "PR-05"],
        run!(capabilities_are_true),
    ),
];

async fn replies_are_complete(t: &CheckContext) -> Outcome {
    t.ask(GetPluginInfoRequest::default()).await?.ok();
    t.ask(GetPluginCapabilitiesRequest::default()).await?.ok();
    t.ask(ProbeRequest::default()).await?.ok();
    t.ask(ControllerGetCapabilitiesRequest::default()).await?.ok();
    t.ask(GroupControllerGetCapabilitiesRequest::default()).await?.ok();
    t.ask(NodeGetCapabilitiesRequest::default()).await?.ok();
    t.ask(NodeGetInfoRequest::default()).await?.ok();
    if t.features().has_controller(Rpc::CreateDeleteVolume) {
        replies_about_a_volume(t).await?;
    }
    Ok(())
}

async fn replies_about_a_volume(t: &CheckContext) -> Outcome {
    let Ok(CreateVolumeResponse { volume: Some(volume) }) = t.ask(t.new_volume()).await? else {
        return Ok(());
    };
    t.ask(t.validate(&volume)).await?.ok();
    t.ask(ListVolumesRequest::default()).await?.ok();
    t.ask(GetCapacityRequest::default()).await?.ok();
    t.ask(ControllerGetVolumeRequest { volume_id: volume.volume_id.clone() }).await?.ok();
    if t.attaches() {
        t.ask(t.attach(&volume, &t.capability())).await?.ok();
    }
    if t.features().has_controller(Rpc::CreateDeleteSnapshot) {
        t.ask(t.new_snapshot(&volume)).await?.ok();
        t.ask(ListSnapshotsRequest::default()).await?.ok();
    }
    if t.features().group_snapshots {
        t.ask(t.new_group_snapshot(&[&volume])).await?.ok();
    }
    Ok(())
}

async fn refusals_have_a_text(t: &CheckContext) -> Outcome {
    t.ask(CreateVolumeRequest::default()).await?.ok();
    t.ask(DeleteVolumeRequest::default()).await?.ok();
    t.ask(ValidateVolumeCapabilitiesRequest::default()).await?.ok();
    t.ask(ControllerPublishVolumeRequest::default()).await?.ok();
    t.ask(ControllerGetVolumeRequest { volume_id: t.unknown_id() }).await?.ok();
    t.ask(ListVolumesRequest { max_entries: -1, ..Default::default() }).await?.ok();
    t.ask(CreateSnapshotRequest::default()).await?.ok();
    t.ask(CreateVolumeGroupSnapshotRequest::default()).await?.ok();
    t.ask(NodeStageVolumeRequest::default()).await?.ok();
    t.ask(NodePublishVolumeRequest::default()).await?.ok();
    t.ask(NodeGetVolumeStatsRequest::default()).await?.ok();
    Ok(())
}

async fn every_call_ends_with_a_status(t: &CheckContext) -> Outcome {
    for path in t.methods() {
        let ending = t.ending(&path).await?;
        blamed(
            "GEN-14",
            t.expect(ending.http_status == 200, "HTTP status 200, as of every gRPC call"),
        )?;
        let Some(code) = ending.grpc_status else {
            return blamed("GEN-14", Err(t.failed("a grpc-status")));
        };
        let canonical = matches!(code.parse::<u8>(), Ok(0..=16));
        blamed("GEN-15", t.expect(canonical, "a grpc-status from 0 to 16"))?;
    }
    Ok(())
}

async fn error_tables_are_kept(t: &CheckContext) -> Outcome {
    let request = t.new_volume();
    let volume = t.create(request.clone()).await?;
    let larger = CreateVolumeRequest { capacity_range: t.range(2 * t.size(), 0), ..request };
    t.refused(larger, Code::AlreadyExists).await?;
    let unknown = Volume { volume_id: t.unknown_id(), ..Volume::default() };
    t.refused(t.validate(&unknown), Code::NotFound).await?;
    if t.attaches() {
        let capability = t.capability();
        t.refused(t.attach(&unknown, &capability), Code::NotFound).await?;
        let request = ControllerPublishVolumeRequest {
            node_id: t.unknown_id(),
            ..t.attach(&volume, &capability)
        };
        t.refused(request, Code::NotFound).await?;
    }
    if t.lists_volumes() {
        let starting_token = "no-token-of-yours".to_owned();
        t.refused(ListVolumesRequest { starting_token, max_entries: 1 }, Code::Aborted).await?;
    }
    if t.features().has_controller(Rpc::ExpandVolume) {
        let request = ControllerExpandVolumeRequest {
            volume_id: t.unknown_id(),
            capacity_range: t.range(t.size(), 0),
            secrets: t.secrets(),
            volume_capability: None,
        };
        t.refused(request, Code::NotFound).await?;
    }
    Ok(())
}

async fn what_cannot_be_done_is_not_ok(t: &CheckContext) -> Outcome {
    let doomed = t.volume().await?;
    let kept = t.volume().await?;
    let expand = ControllerExpandVolumeRequest {
        volume_capability: Some(t.capability()),
        ..t.expand(&kept, 2 * t.size())
    };
    let calls = async {
        let created = t.ask(t.new_volume()).await?;
        let deleted = t.ask(t.delete(&doomed)).await?;
        let expanded = t.ask(expand).await?;
        Ok((created, deleted, expanded))
    };
    let (created, deleted, expanded) = t.during_outage(calls).await?;
    if let Ok(CreateVolumeResponse { volume: Some(volume) }) = created {
        let found = t.settled(t.validate(&volume)).await?;
        t.expect(found.is_ok(), "the volume that CreateVolume said it made")?;
    }
    if deleted.is_ok() {
        t.refused(t.validate(&doomed), Code::NotFound).await?;
    }
    if expanded.is_ok()
        && let Some(Volume { capacity_bytes, .. }) =
            t.listed_as(&kept).await?.and_then(|entry| entry.volume)
    {
        t.expect(capacity_bytes >= 2 * t.size(), "the size that the volume was expanded to")?;
    }
    // What was not undone while the storage was away.
    t.ok(t.delete(&doomed)).await?;
    Ok(())
}

async fn calls_that_are_not_there(t: &CheckContext) -> Outcome {
    t.expect_code_at("/csi.v1.Identity/NoSuchCall", Code::Unimplemented).await?;
    for path in t.methods() {
        if offered(t.features(), &path) == Some(false) {
            t.expect_code_at(&path, Code::Unimplemented).await?;
        }
    }
    Ok(())
}

async fn every_method_answers(t: &CheckContext) -> Outcome {
    for path in t.methods() {
        let code = t.code_at(&path).await;
        let answered = !matches!(code, Code::Unknown | Code::Unavailable | Code::Internal);
        t.expect(answered, "an answer, or UNIMPLEMENTED where it is not supported")?;
    }
    Ok(())
}

async fn capabilities_are_true(t: &CheckContext) -> Outcome {
    for path in t.methods() {
        if offered(t.features(), &path) == Some(true) {
            let code = t.code_at(&path).await;
            t.expect(code != Code::Unimplemented, "a call that is there, as it is advertised")?;
        }
    }
    Ok(())
}

/// Does the plugin say that it has the call? `None`: no capability stands for it.
fn offered(features: &PluginFeatures, path: &str) -> Option<bool> {
    let method = path.rsplit('/').next().unwrap_or_default();
    if path.starts_with("/csi.v1.GroupController/") {
        let is_always_there = method == "GroupControllerGetCapabilities";
        return Some(is_always_there || features.group_snapshots);
    }
    let controller = |rpc| Some(features.has_controller(rpc));
    match method {
        "GetPluginInfo" | "GetPluginCapabilities" | "Probe" => Some(true),
        "CreateVolume" | "DeleteVolume" => controller(Rpc::CreateDeleteVolume),
        "ControllerPublishVolume" | "ControllerUnpublishVolume" => {
            controller(Rpc::PublishUnpublishVolume)
        }
        "ValidateVolumeCapabilities" | "ControllerGetCapabilities" => Some(true),
        "ListVolumes" => controller(Rpc::ListVolumes),
        "GetCapacity" => controller(Rpc::GetCapacity),
        "CreateSnapshot" | "DeleteSnapshot" => controller(Rpc::CreateDeleteSnapshot),
        "ListSnapshots" => controller(Rpc::ListSnapshots),
        "GetSnapshot" => controller(Rpc::GetSnapshot),
        "ControllerExpandVolume" => controller(Rpc::ExpandVolume),
        "ControllerGetVolume" => controller(Rpc::GetVolume),
        "ControllerModifyVolume" => controller(Rpc::ModifyVolume),
        "ControllerGetVolumeHealth" => controller(Rpc::GetVolumeHealth),
        "ControllerListVolumeHealth" => controller(Rpc::ListVolumeHealth),
        "NodeStageVolume" | "NodeUnstageVolume" => {
            Some(features.has_node(NodeRpc::StageUnstageVolume))
        }
        "NodePublishVolume" | "NodeUnpublishVolume" | "NodeGetCapabilities" => Some(true),
        "NodeGetVolumeStats" => {
            let stats = [NodeRpc::GetVolumeStats, NodeRpc::VolumeCondition];
            Some(stats.into_iter().any(|rpc| features.has_node(rpc)))
        }
        "NodeExpandVolume" => Some(features.has_node(NodeRpc::ExpandVolume)),
        "NodeGetVolumeHealth" => Some(features.has_node(NodeRpc::GetVolumeHealth)),
        "NodeGetStorageHealth" => Some(features.has_node(NodeRpc::GetStorageHealth)),
        "GetMetadataAllocated" | "GetMetadataDelta" => {
            Some(features.has_plugin(PluginService::SnapshotMetadataService))
        }
        _ => None,
    }
}
