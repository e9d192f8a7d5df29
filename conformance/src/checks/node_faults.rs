//! Calls of the Node service while the storage is away (NS, NU, NP, NN, ST, NE, NC, NI).
//!
//! An error is right. OK is right only if what it says is so when the storage is back.

use super::node_expand::growing::{expand, grows_in_use, requested, shows};
use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::{CheckContext, Placed};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;
use crate::wire::csi::v1::node_service_capability::rpc::Type::{
    ExpandVolume, GetVolumeStats, StageUnstageVolume,
};
use crate::wire::csi::v1::{NodeGetCapabilitiesRequest, NodeGetInfoRequest};

pub(super) const SECTION: Section = Section {
    title: "Node service without storage",
    service: Service::Node,
    needs: &[Need::NodeService, Need::Controller(CreateDeleteVolume), Need::Faults],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "stage-without-storage",
        "stages a volume while the storage is away, and publishes it when it is back",
        &["NS-17"],
        run!(stage),
    )
    .needs(&[Need::Node(StageUnstageVolume)])
    .alone(),
    check(
        "publish-without-storage",
        "publishes a volume while the storage is away, and looks for it when it is back",
        &["NP-36", "NP-37"],
        run!(publish),
    )
    .alone(),
    check(
        "take-back-without-storage",
        "unpublishes and unstages while the storage is away, and looks again when it is back",
        &["NN-11", "NU-10"],
        run!(take_back),
    )
    .alone(),
    check(
        "stats-without-storage",
        "asks for a volume's numbers while the storage is away",
        &["ST-15"],
        run!(stats),
    )
    .needs(&[Need::Node(GetVolumeStats)])
    .alone(),
    check(
        "node-expand-without-storage",
        "expands a volume on the node while the storage is away",
        &["NE-21"],
        run!(node_expand),
    )
    .needs(&[Need::Node(ExpandVolume)])
    .alone(),
    check(
        "node-tells-of-itself-without-storage",
        "asks for the node's capabilities and its id while the storage is away",
        &["NC-06", "NI-10"],
        run!(tells_of_itself),
    )
    .alone(),
];

async fn stage(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let publish_context = t.attached(&volume, &capability).await?;
    let request = t.stage(&volume, &capability, &publish_context)?;
    let answer = t.during_outage(t.settled(request.clone())).await?;
    let staging = request.staging_target_path.clone();
    if answer.is_err() {
        t.ok(request).await?;
    }
    let target = String::new();
    let staged = Placed { volume, capability, publish_context, staging, target };
    t.ok(t.publish(&staged)?).await?;
    Ok(())
}

async fn publish(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let staged = t.staged(&volume, capability).await?;
    let request = t.publish(&staged)?;
    let placed = Placed { target: request.target_path.clone(), ..staged };
    let answer = t.during_outage(t.settled(request.clone())).await?;
    if answer.is_ok() {
        let there = t.is_published(&placed).await?;
        return blamed("NP-36", t.expect(there, "OK only with the volume at the target"));
    }
    let stray = t.exists(&placed.target_path());
    blamed("NP-37", t.expect(!stray, "nothing at the target after the refusal"))?;
    t.ok(request).await?;
    Ok(())
}

async fn take_back(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let unpublished = t.during_outage(t.settled(t.unpublish(&placed))).await?;
    if unpublished.is_ok() {
        let gone = !t.is_published(&placed).await?;
        blamed("NN-11", t.expect(gone, "OK only with the volume gone from the target"))?;
    } else {
        blamed("NN-11", t.ok(t.unpublish(&placed)).await)?;
    }
    if !t.stages() {
        return Ok(());
    }
    let unstaged = t.during_outage(t.settled(t.unstage(&placed))).await?;
    if unstaged.is_ok() {
        let published = t.settled(t.publish(&placed)?).await?;
        blamed("NU-10", t.expect(published.is_err(), "an error, as unstaging was said to be done"))
    } else {
        blamed("NU-10", t.ok(t.unstage(&placed)).await)?;
        Ok(())
    }
}

async fn stats(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let request = t.stats(&placed, &placed.target);
    if let Ok(reply) = t.during_outage(t.settled(request.clone())).await? {
        let abnormal = reply.volume_condition.is_some_and(|it| it.abnormal);
        let numbers = reply.usage.iter().any(|it| it.total > 0);
        t.expect(numbers || abnormal, "an error, numbers, or an abnormal condition")?;
    }
    t.ok(request).await?;
    Ok(())
}

async fn node_expand(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    if !grows_in_use(t) {
        requested(t, &volume, &capability, 2).await?;
    }
    let placed = t.placed(&volume, capability.clone()).await?;
    if grows_in_use(t) {
        requested(t, &volume, &capability, 2).await?;
    }
    let bytes = t.size().saturating_mul(2);
    let request = expand(t, &placed, bytes);
    let answer = t.during_outage(t.settled(request.clone())).await?;
    if answer.is_err() {
        t.ok(request).await?;
    }
    shows(t, &placed, bytes)
}

async fn tells_of_itself(t: &CheckContext) -> Outcome {
    let capabilities = t.ok(NodeGetCapabilitiesRequest::default()).await?;
    let info = t.ok(NodeGetInfoRequest::default()).await?;
    let (capabilities_now, info_now) = t
        .during_outage(async {
            let capabilities = t.settled(NodeGetCapabilitiesRequest::default()).await?;
            Ok((capabilities, t.settled(NodeGetInfoRequest::default()).await?))
        })
        .await?;
    let same = capabilities_now.map_or(true, |it| it == capabilities);
    blamed("NC-06", t.expect(same, "an error, or the capabilities as before"))?;
    let same = info_now.map_or(true, |it| it == info);
    blamed("NI-10", t.expect(same, "an error, or all as before"))
}
