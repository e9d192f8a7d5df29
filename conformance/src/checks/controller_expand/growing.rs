//! ControllerExpandVolume: volumes in use, and what their users see.

use tonic::Code;

use super::{doubled, known_capacity};
use crate::capability::block;
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{CheckContext, Placed};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, ExpandVolume,
};
use crate::wire::csi::v1::node_service_capability::rpc::Type::ExpandVolume as NodeExpandVolume;
use crate::wire::csi::v1::plugin_capability::volume_expansion::Type::{Offline, Online};
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, NodeExpandVolumeRequest,
};

pub(in crate::checks) const SECTION: Section = Section {
    title: "ControllerExpandVolume: in use",
    service: Service::Controller,
    needs: &[Need::Controller(ExpandVolume), Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "expand-volume-mounted",
        "grows a mounted volume, on the node if the reply says so, and looks at the filesystem",
        &["CE-07"],
        run!(mounted),
    )
    .needs(&[Need::NodeService, Need::LocalFiles, Need::MountAccess]),
    check(
        "expand-volume-raw",
        "grows a raw volume, on the node if the reply says so, and looks at the device",
        &["CE-08"],
        run!(raw),
    )
    .needs(&[Need::NodeService, Need::LocalFiles, Need::BlockAccess]),
    check(
        "expand-volume-keeps-data",
        "writes to a volume, grows it, and compares content and size",
        &["CE-18"],
        run!(keeps_data),
    )
    .needs(&[Need::NodeService, Need::LocalFiles]),
    check(
        "expand-volume-shows",
        "grows a volume and asks for its capacity",
        &["CE-18"],
        run!(shows),
    ),
    check(
        "expand-volume-without-the-node",
        "grows a volume where the node cannot",
        &["CE-09"],
        run!(without_the_node),
    )
    .needs(&[Need::NoNode(NodeExpandVolume)]),
    check(
        "expand-volume-online",
        "grows a volume before, while and after it is in use",
        &["CE-14"],
        run!(online),
    )
    .needs(&[Need::NodeService, Need::Expansion(Online)]),
    check(
        "expand-volume-offline-in-use",
        "grows a volume that is in use",
        &["CE-12"],
        run!(offline_in_use),
    )
    .needs(&[Need::NodeService]),
    check(
        "expand-volume-offline-after-use",
        "grows a volume as soon as it is no longer in use",
        &["CE-15"],
        run!(offline_after_use),
    )
    .needs(&[Need::NodeService, Need::Expansion(Offline)]),
];

fn is_online(t: &CheckContext) -> bool {
    t.features().expansion.contains(&Online)
}

/// Grows a volume that is at a path, by whatever steps the plugin asks for.
async fn grown(
    t: &CheckContext,
    placed: Placed,
    required: i64,
) -> Outcome<(Placed, ControllerExpandVolumeResponse)> {
    let capability = placed.capability.clone();
    let request = ControllerExpandVolumeRequest {
        volume_capability: Some(capability.clone()),
        ..t.expand(&placed.volume, required)
    };
    let (placed, reply) = if is_online(t) {
        (placed, t.ok(request).await?)
    } else {
        t.withdrawn(&placed).await?;
        let reply = t.ok(request).await?;
        (t.placed(&placed.volume, capability.clone()).await?, reply)
    };
    if reply.node_expansion_required {
        let request = NodeExpandVolumeRequest {
            volume_id: placed.volume.volume_id.clone(),
            volume_path: placed.target.clone(),
            capacity_range: t.range(required, 0),
            staging_target_path: placed.staging.clone(),
            volume_capability: Some(capability),
            secrets: t.secrets(),
        };
        t.ok(request).await?;
    }
    Ok((placed, reply))
}

/// A filesystem keeps some of the space for itself.
fn nearly(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or_default() / 10 * 8
}

async fn mounted(t: &CheckContext) -> Outcome {
    let capability = t.mount(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let (placed, reply) = grown(t, placed, doubled(t, &volume)).await?;
    let capacity = reply.capacity_bytes;
    let seen = t.statfs(&placed.target_path())?.total_bytes;
    t.expect(seen >= nearly(capacity), format!("a filesystem of about {capacity} bytes"))
}

async fn raw(t: &CheckContext) -> Outcome {
    let capability = block(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let (placed, reply) = grown(t, placed, doubled(t, &volume)).await?;
    let capacity = reply.capacity_bytes;
    let seen = t.device_size(&placed.target_path())?;
    let whole = u64::try_from(capacity).is_ok_and(|capacity| seen >= capacity);
    if !whole && reply.node_expansion_required {
        return t.not_applicable("the node is asked to grow the device and does not (NE-11)");
    }
    t.expect(whole, format!("a device of {capacity} bytes, not {seen}"))
}

async fn keeps_data(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let content = t.fill(&placed)?;
    let (placed, _) = grown(t, placed, doubled(t, &volume)).await?;
    t.holds(&placed, &content)
}

async fn shows(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let required = doubled(t, &volume);
    t.ok(t.expand(&volume, required)).await?;
    match known_capacity(t, &volume).await? {
        Some(now) => t.expect(now >= required, format!("a volume of {required} bytes")),
        None => t.not_applicable("there is no call that tells a volume's size"),
    }
}

async fn without_the_node(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let reply = t.ok(t.expand(&volume, doubled(t, &volume))).await?;
    t.expect(!reply.node_expansion_required, "node_expansion_required to be false")
}

async fn online(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let step = volume.capacity_bytes.max(t.size());
    t.ok(t.expand(&volume, step.saturating_mul(2))).await?;
    let placed = t.placed(&volume, t.capability()).await?;
    t.ok(t.expand(&volume, step.saturating_mul(3))).await?;
    t.withdrawn(&placed).await?;
    t.ok(t.expand(&volume, step.saturating_mul(4))).await?;
    Ok(())
}

async fn offline_in_use(t: &CheckContext) -> Outcome {
    if is_online(t) {
        return t.not_applicable("the plugin capability VolumeExpansion ONLINE is offered");
    }
    let volume = t.volume().await?;
    t.placed(&volume, t.capability()).await?;
    t.refused(t.expand(&volume, doubled(t, &volume)), Code::FailedPrecondition).await?;
    Ok(())
}

async fn offline_after_use(t: &CheckContext) -> Outcome {
    if is_online(t) {
        return t.not_applicable("the plugin capability VolumeExpansion ONLINE is offered");
    }
    let volume = t.volume().await?;
    let placed = t.placed(&volume, t.capability()).await?;
    t.withdrawn(&placed).await?;
    t.ok(t.expand(&volume, doubled(t, &volume))).await?;
    Ok(())
}
