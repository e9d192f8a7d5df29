//! NodeGetInfo (NI).

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, PublishUnpublishVolume,
};
use crate::wire::csi::v1::plugin_capability::service::Type::VolumeAccessibilityConstraints;
use crate::wire::csi::v1::{ControllerPublishVolumeRequest, NodeGetInfoRequest};

pub(super) const SECTION: Section = Section {
    title: "NodeGetInfo",
    service: Service::Node,
    needs: &[Need::NodeService],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "node-info-is-served",
        "asks, as a controller that publishes to nodes makes it necessary",
        &["NI-01"],
        run!(is_served),
    )
    .needs(&[Need::Controller(PublishUnpublishVolume)]),
    check(
        "node-id-is-this-node",
        "publishes to the node_id and to another one, and uses the volume here",
        &["NI-02", "NI-08"],
        run!(is_this_node),
    )
    .needs(&[Need::Controller(PublishUnpublishVolume), Need::Controller(CreateDeleteVolume)]),
    check("node-id-length", "measures node_id", &["NI-03"], run!(length)),
    check("node-id-is-short", "measures node_id for older orchestrators", &["NI-04"], run!(short)),
    check("node-limit", "looks at max_volumes_per_node", &["NI-05"], run!(limit)),
    check(
        "node-topology-is-announced",
        "looks for the plugin capability that goes with accessible_topology, and at its keys",
        &["NI-06"],
        run!(topology_is_announced),
    ),
    check(
        "node-topology-is-told",
        "looks for accessible_topology, as VOLUME_ACCESSIBILITY_CONSTRAINTS is offered",
        &["NI-11"],
        run!(topology_is_reported),
    )
    .needs(&[Need::Plugin(VolumeAccessibilityConstraints)]),
    check("node-id-stays", "asks twice", &["NI-09"], run!(stays)),
    check(
        "node-id-outlives-a-restart",
        "restarts the plugin and asks again",
        &["NI-09"],
        run!(outlives_a_restart),
    )
    .needs(&[Need::Restart])
    .alone(),
    check(
        "node-is-known-after-a-restart",
        "restarts the plugin and publishes to the node_id that it gave before",
        &["NI-07"],
        run!(is_known_after_a_restart),
    )
    .needs(&[
        Need::Restart,
        Need::Controller(PublishUnpublishVolume),
        Need::Controller(CreateDeleteVolume),
    ])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[];

async fn is_served(t: &CheckContext) -> Outcome {
    t.ok(NodeGetInfoRequest::default()).await?;
    Ok(())
}

async fn node_id(t: &CheckContext) -> Outcome<String> {
    Ok(t.ok(NodeGetInfoRequest::default()).await?.node_id)
}

async fn is_this_node(t: &CheckContext) -> Outcome {
    let node_id = node_id(t).await?;
    t.expect(!node_id.is_empty(), "a node_id")?;
    if let Some(other) = &t.options().other_node {
        t.expect(node_id != *other, "another node_id than that of the other node")?;
    }
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let unknown = format!("{node_id}-x");
    let elsewhere =
        ControllerPublishVolumeRequest { node_id: unknown, ..t.attach(&volume, &capability) };
    t.refused(elsewhere, Code::NotFound).await?;
    let here = ControllerPublishVolumeRequest { node_id, ..t.attach(&volume, &capability) };
    t.ok(here).await?;
    let placed = t.placed(&volume, capability).await?;
    if t.options().local_files {
        t.expect(t.is_published(&placed).await?, "the volume on this machine")?;
    }
    Ok(())
}

async fn length(t: &CheckContext) -> Outcome {
    let length = node_id(t).await?.len();
    t.expect(length <= 256, format!("at most 256 bytes, not {length}"))
}

async fn short(t: &CheckContext) -> Outcome {
    let length = node_id(t).await?.len();
    t.expect(length <= 128, format!("at most 128 bytes, not {length}"))
}

async fn limit(t: &CheckContext) -> Outcome {
    let limit = t.ok(NodeGetInfoRequest::default()).await?.max_volumes_per_node;
    t.expect(limit >= 0, "no negative number")
}

async fn topology_is_announced(t: &CheckContext) -> Outcome {
    let Some(topology) = t.ok(NodeGetInfoRequest::default()).await?.accessible_topology else {
        return t.not_applicable("there is no accessible_topology in the reply");
    };
    t.expect(
        t.features().has_plugin(VolumeAccessibilityConstraints),
        "VOLUME_ACCESSIBILITY_CONSTRAINTS among the plugin's capabilities",
    )?;
    for (key, value) in &topology.segments {
        let (prefix, name) = key.rsplit_once('/').unwrap_or(("", key));
        let proper_prefix =
            !key.contains('/') || is_label(prefix) && prefix == prefix.to_lowercase();
        t.expect(is_label(name) && proper_prefix, format!("a key [prefix/]name, not {key}"))?;
        t.expect(is_label(value), format!("a proper value of {key}, not {value}"))?;
    }
    Ok(())
}

/// At most 63 characters, with letters and digits at both ends.
fn is_label(text: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.len() <= 63
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
        && text.chars().all(is_inside)
}

async fn topology_is_reported(t: &CheckContext) -> Outcome {
    let topology = t.ok(NodeGetInfoRequest::default()).await?.accessible_topology;
    t.some(topology, "accessible_topology in the reply")?;
    Ok(())
}

async fn stays(t: &CheckContext) -> Outcome {
    let first = node_id(t).await?;
    t.expect(node_id(t).await? == first, format!("the same node_id again: {first}"))
}

async fn outlives_a_restart(t: &CheckContext) -> Outcome {
    let before = node_id(t).await?;
    t.restart_plugin()?;
    t.expect(node_id(t).await? == before, format!("the node_id of before the restart: {before}"))
}

async fn is_known_after_a_restart(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    t.restart_plugin()?;
    t.ok(t.attach(&volume, &capability)).await?;
    Ok(())
}
