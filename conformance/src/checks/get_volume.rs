//! ControllerGetVolume (GV), which is alpha.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, ExpandVolume, GetVolume, ListVolumesPublishedNodes, PublishUnpublishVolume,
    VolumeCondition,
};
use crate::wire::csi::v1::{
    ControllerExpandVolumeRequest, ControllerGetVolumeRequest, ControllerGetVolumeResponse, Volume,
};

pub(super) const SECTION: Section = Section {
    title: "ControllerGetVolume",
    service: Service::Controller,
    needs: &[Need::Controller(GetVolume), Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "get-volume",
        "gets a volume and compares it with what was created",
        &["GV-01", "GV-02"],
        run!(same_volume),
    ),
    check("get-volume-status", "looks for the status", &["GV-03"], run!(status)),
    check(
        "get-volume-after-growth",
        "expands a volume and looks whether its new size is told",
        &["GV-04"],
        run!(after_growth),
    )
    .needs(&[Need::Controller(ExpandVolume)]),
    check("get-volume-condition", "looks for the condition", &["GV-05"], run!(condition))
        .needs(&[Need::Controller(VolumeCondition)]),
    check(
        "get-volume-published-nodes",
        "looks where a volume is published before, during and after",
        &["GV-06"],
        run!(published_nodes),
    )
    .needs(&[
        Need::Controller(ListVolumesPublishedNodes),
        Need::Controller(PublishUnpublishVolume),
        Need::NodeService,
    ]),
    check("get-volume-without-id", "leaves out the id", &["GV-07"], run!(without_id)),
    check(
        "get-volume-unknown",
        "gets a volume that is gone, and one that never was",
        &["GV-08"],
        run!(unknown),
    ),
    check(
        "get-volume-without-storage",
        "gets a volume, and one that is gone, while the storage is away",
        &["GV-10"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] =
    &[("GV-09", "a permission: nodes that this plugin did not publish to may be named or not")];

fn get(volume: &Volume) -> ControllerGetVolumeRequest {
    ControllerGetVolumeRequest { volume_id: volume.volume_id.clone() }
}

async fn same_volume(t: &CheckContext) -> Outcome {
    let created = t.volume().await?;
    let reply = t.ok(get(&created)).await?;
    let volume = t.some(reply.volume, "the volume in the reply")?;
    t.expect(volume.volume_id == created.volume_id, "the volume that was asked for")?;
    t.expect(volume.capacity_bytes == created.capacity_bytes, "the size that it was made with")
}

async fn status(t: &CheckContext) -> Outcome {
    let reply = t.ok(get(&t.volume().await?)).await?;
    t.some(reply.status, "a status, even if nothing is in it")?;
    Ok(())
}

async fn condition(t: &CheckContext) -> Outcome {
    let reply = t.ok(get(&t.volume().await?)).await?;
    let condition = reply.status.and_then(|status| status.volume_condition);
    t.some(condition, "a volume_condition in the status")?;
    Ok(())
}

async fn after_growth(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let larger = volume.capacity_bytes.max(t.size()) + t.size();
    let grown = t
        .ok(ControllerExpandVolumeRequest {
            volume_capability: Some(t.capability()),
            ..t.expand(&volume, larger)
        })
        .await?;
    let now = t.some(t.ok(get(&volume)).await?.volume, "the volume in the reply")?;
    let current = now.capacity_bytes == grown.capacity_bytes;
    // The controller may know the new size only once the node has done its part.
    t.expect(current || grown.node_expansion_required && now.capacity_bytes == 0, "the new size")
}

async fn nodes_of(t: &CheckContext, volume: &Volume) -> Outcome<Vec<String>> {
    let status = t.ok(get(volume)).await?.status;
    Ok(t.some(status, "a status")?.published_node_ids)
}

async fn published_nodes(t: &CheckContext) -> Outcome {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    t.expect(nodes_of(t, &volume).await?.is_empty(), "no node before it is published")?;
    t.attached(&volume, &capability).await?;
    t.expect(nodes_of(t, &volume).await? == [t.node_id()], "the node that it is published to")?;
    t.ok(t.detach(&volume)).await?;
    t.expect(nodes_of(t, &volume).await?.is_empty(), "no node after it was unpublished")
}

async fn without_id(t: &CheckContext) -> Outcome {
    t.refused(get(&Volume::default()), Code::InvalidArgument).await?;
    Ok(())
}

async fn unknown(t: &CheckContext) -> Outcome {
    let gone = t.deleted_volume().await?;
    for volume_id in [gone, t.unknown_id()] {
        t.refused(ControllerGetVolumeRequest { volume_id }, Code::NotFound).await?;
    }
    Ok(())
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let gone = Volume { volume_id: t.deleted_volume().await?, ..Volume::default() };
    if let Ok(reply) = t.during_outage(t.ask(get(&gone))).await? {
        // Whether it is gone cannot be known without storage, but that something is wrong can.
        t.expect(is_abnormal(&reply), "a refusal, or a condition that is abnormal")?;
    }
    let volume = t.volume().await?;
    let Ok(reply) = t.during_outage(t.ask(get(&volume))).await? else { return Ok(()) };
    let found = reply.volume.as_ref().is_some_and(|found| found.volume_id == volume.volume_id);
    t.expect(found, "a refusal while the storage was away, or the volume that was asked for")
}

fn is_abnormal(reply: &ControllerGetVolumeResponse) -> bool {
    let condition = reply.status.as_ref().and_then(|status| status.volume_condition.as_ref());
    condition.is_some_and(|condition| condition.abnormal)
}
