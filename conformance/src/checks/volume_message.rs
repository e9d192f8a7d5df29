//! The Volume message (VO).

use std::collections::BTreeSet;

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::options::Pairs;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use crate::wire::csi::v1::plugin_capability::service::Type::VolumeAccessibilityConstraints;
use crate::wire::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use crate::wire::csi::v1::{
    ControllerExpandVolumeRequest, ControllerGetVolumeRequest, ControllerModifyVolumeRequest,
    ControllerPublishVolumeRequest, CreateVolumeRequest, NodeStageVolumeRequest,
    ValidateVolumeCapabilitiesRequest, Volume,
};

pub(super) const SECTION: Section = Section {
    title: "Volume",
    service: Service::Controller,
    needs: &[Need::Controller(Rpc::CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "volumes-have-ids-and-sizes",
        "creates, lists and gets a volume and reads its id and its capacity",
        &["VO-01", "VO-04"],
        run!(ids_and_sizes),
    ),
    check(
        "ids-of-volumes-are-unique",
        "creates several volumes and compares their ids",
        &["VO-02"],
        run!(ids_are_unique),
    ),
    check(
        "the-id-is-enough",
        "validates, expands and gets a volume by nothing but its id",
        &["VO-03"],
        run!(the_id_is_enough),
    ),
    check(
        "context-never-changes",
        "compares a volume's context after creating, repeating, listing, expanding, modifying",
        &["VO-05"],
        run!(context_never_changes),
    ),
    check(
        "context-can-be-cached",
        "expands and modifies a volume and then uses it with the context from before",
        &["VO-06"],
        run!(context_can_be_cached),
    )
    .needs(&[Need::NodeService]),
    check(
        "context-holds-no-secrets",
        "creates a volume with a secret and looks for it in the context",
        &["VO-07"],
        run!(context_holds_no_secrets),
    ),
    check(
        "context-is-no-name",
        "deletes one of two volumes that have the same context",
        &["VO-08"],
        run!(context_is_no_name),
    ),
    check(
        "context-of-another-is-refused",
        "attaches, stages and validates with an altered context",
        &["VO-09"],
        run!(altered_context_is_refused),
    )
    .needs(&[Need::NodeService]),
    check(
        "context-left-out",
        "attaches and stages without a context",
        &["VO-10"],
        run!(context_left_out),
    )
    .needs(&[Need::NodeService]),
    check(
        "copies-name-their-snapshot",
        "creates a volume from a snapshot and reads its source",
        &["VO-11"],
        run!(copies_name_their_snapshot),
    )
    .needs(&[Need::Controller(Rpc::CreateDeleteSnapshot)]),
    check(
        "copies-name-their-volume",
        "clones a volume and reads its source",
        &["VO-11"],
        run!(copies_name_their_volume),
    )
    .needs(&[Need::Controller(Rpc::CloneVolume)]),
    check(
        "topology-of-volumes-is-announced",
        "creates a volume and looks whether it says where it is without the capability for that",
        &["VO-12"],
        run!(topology_is_announced),
    ),
];

const UNSEEN: &[(&str, &str)] = &[
    ("VO-13", "A permission: one place or several, either is right."),
    ("VO-14", "It says how far VO-02 reaches; there is nothing that a plugin could get wrong."),
];

/// The volume as every call shows it that can.
async fn seen(t: &CheckContext, volume: &Volume) -> Outcome<Vec<Volume>> {
    let mut seen: Vec<_> =
        t.listed_as(volume).await?.and_then(|it| it.volume).into_iter().collect();
    if t.features().has_controller(Rpc::GetVolume) {
        let request = ControllerGetVolumeRequest { volume_id: volume.volume_id.clone() };
        seen.extend(t.ok(request).await?.volume);
    }
    Ok(seen)
}

async fn ids_and_sizes(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let mut all = seen(t, &volume).await?;
    all.push(volume);
    for volume in all {
        blamed("VO-01", t.expect(!volume.volume_id.is_empty(), "a volume_id"))?;
        blamed("VO-04", t.expect(volume.capacity_bytes >= 0, "a capacity_bytes of 0 or more"))?;
    }
    Ok(())
}

async fn ids_are_unique(t: &CheckContext) -> Outcome {
    let mut ids = BTreeSet::new();
    for _ in 0..4 {
        let volume = t.volume().await?;
        t.expect(ids.insert(volume.volume_id), "an id that no other volume has")?;
    }
    Ok(())
}

async fn the_id_is_enough(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let without_context = Volume { volume_context: Pairs::new(), ..volume.clone() };
    let reply = t.ok(t.validate(&without_context)).await?;
    t.expect(reply.confirmed.is_some(), "confirmed, with nothing but the id")?;
    if t.features().has_controller(Rpc::ExpandVolume) {
        t.ok(t.expand(&volume, 2 * t.size())).await?;
    }
    for again in seen(t, &volume).await? {
        t.expect(again.volume_id == volume.volume_id, "the volume with that id")?;
    }
    Ok(())
}

/// All that may change about a volume in use.
async fn changed(t: &CheckContext, volume: &Volume) -> Outcome {
    let features = t.features();
    if features.has_controller(Rpc::ExpandVolume) {
        t.ok(t.expand(volume, 2 * t.size())).await?;
    }
    if features.has_controller(Rpc::ModifyVolume) && !t.options().mutable_parameters.is_empty() {
        let request = ControllerModifyVolumeRequest {
            volume_id: volume.volume_id.clone(),
            secrets: t.secrets(),
            mutable_parameters: t.options().changed_parameters.clone(),
        };
        t.ok(request).await?;
    }
    Ok(())
}

async fn context_never_changes(t: &CheckContext) -> Outcome {
    let request = t.new_volume();
    let volume = t.create(request.clone()).await?;
    let mut all = vec![t.create(request).await?];
    all.extend(seen(t, &volume).await?);
    changed(t, &volume).await?;
    all.extend(seen(t, &volume).await?);
    for again in all {
        let same = again.volume_context == volume.volume_context;
        t.expect(same, "the volume_context that CreateVolume returned")?;
    }
    let reply = t.ok(t.validate(&volume)).await?;
    t.expect(reply.confirmed.is_some(), "the first volume_context still to be right")
}

async fn context_can_be_cached(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let request = ControllerExpandVolumeRequest {
        volume_capability: Some(capability.clone()),
        ..t.expand(&volume, 2 * t.size())
    };
    if t.features().has_controller(Rpc::ExpandVolume) {
        t.ok(request).await?;
    }
    let placed = t.placed(&volume, capability).await?;
    t.withdrawn(&placed).await
}

async fn context_holds_no_secrets(t: &CheckContext) -> Outcome {
    let marker = t.name("confidential");
    let mut secrets = t.secrets();
    secrets.insert("conformance".to_owned(), marker.clone());
    let kept = secrets.values().cloned().collect::<Vec<_>>();
    let volume = t.create(CreateVolumeRequest { secrets, ..t.new_volume() }).await?;
    let holds = |secret: &String| {
        !secret.is_empty() && volume.volume_context.values().any(|it| it.contains(secret))
    };
    t.expect(!kept.iter().any(holds), "no secret in volume_context")
}

async fn context_is_no_name(t: &CheckContext) -> Outcome {
    let (one, other) = (t.volume().await?, t.volume().await?);
    if one.volume_context != other.volume_context {
        return t.not_applicable("volumes of the same kind do not have the same context");
    }
    t.ok(t.delete(&one)).await?;
    t.refused(t.validate(&one), Code::NotFound).await?;
    t.ok(t.validate(&other)).await?;
    Ok(())
}

/// Codes that can be defended for a context that is not the volume's.
const MISMATCH: &[Code] = &[Code::InvalidArgument, Code::FailedPrecondition, Code::NotFound];

async fn altered_context_is_refused(t: &CheckContext) -> Outcome {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    let volume_context = t.other_context(&volume)?;
    let request = ValidateVolumeCapabilitiesRequest {
        volume_context: volume_context.clone(),
        ..t.validate(&volume)
    };
    match t.settled(request).await? {
        Ok(reply) => t.expect(reply.confirmed.is_none(), "OK without confirmed")?,
        Err(status) => t.expect(MISMATCH.contains(&status.code()), "OK without confirmed")?,
    }
    if t.attaches() {
        let request = ControllerPublishVolumeRequest {
            volume_context: volume_context.clone(),
            ..t.attach(&volume, &capability)
        };
        t.refused_with(request, MISMATCH).await?;
    }
    if t.stages() {
        let context = t.attached(&volume, &capability).await?;
        let request =
            NodeStageVolumeRequest { volume_context, ..t.stage(&volume, &capability, &context)? };
        t.refused_with(request, MISMATCH).await?;
    }
    Ok(())
}

async fn context_left_out(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    if volume.volume_context.is_empty() {
        return t.not_applicable("the plugin issues no volume_context");
    }
    let bare = Volume { volume_context: Pairs::new(), ..volume };
    let either = "OK, or INVALID_ARGUMENT if it is needed";
    let mut context = Pairs::new();
    if t.attaches() {
        match t.settled(t.attach(&bare, &capability)).await? {
            Ok(reply) => context = reply.publish_context,
            Err(status) => return t.expect(status.code() == Code::InvalidArgument, either),
        }
    }
    if t.stages()
        && let Err(status) = t.settled(t.stage(&bare, &capability, &context)?).await?
    {
        t.expect(status.code() == Code::InvalidArgument, either)?;
    }
    Ok(())
}

async fn copy_names(t: &CheckContext, source: Type) -> Outcome {
    let request = t.new_copy(source, t.capability());
    let wanted = request.volume_content_source.clone();
    let volume = t.create(request).await?;
    t.expect(volume.content_source == wanted, "the source that was asked for")
}

async fn copies_name_their_snapshot(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let snapshot_id = t.snapshot(&volume).await?.snapshot_id;
    copy_names(t, Type::Snapshot(SnapshotSource { snapshot_id })).await
}

async fn copies_name_their_volume(t: &CheckContext) -> Outcome {
    let volume_id = t.volume().await?.volume_id;
    copy_names(t, Type::Volume(VolumeSource { volume_id })).await
}

async fn topology_is_announced(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let announced = t.features().has_plugin(VolumeAccessibilityConstraints);
    t.expect(
        volume.accessible_topology.is_empty() || announced,
        "no accessible_topology without VOLUME_ACCESSIBILITY_CONSTRAINTS",
    )
}
