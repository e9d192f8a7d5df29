//! GetPluginInfo, GetPluginCapabilities, Probe.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use crate::wire::csi::v1::node_service_capability::rpc::Type as NodeRpc;
use crate::wire::csi::v1::plugin_capability::service::Type as PluginService;
use crate::wire::csi::v1::plugin_capability::volume_expansion::Type as Expansion;
use crate::wire::csi::v1::{
    ControllerExpandVolumeRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest,
    NodeExpandVolumeRequest, ProbeRequest,
};

pub(super) const SECTION: Section = Section {
    title: "Identity",
    service: Service::Identity,
    needs: &[],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "identity-is-served",
        "calls the three calls that every plugin has",
        &["ID-01", "ID-10", "PR-04"],
        run!(identity_is_served),
    ),
    check(
        "plugin-has-a-proper-name",
        "reads the plugin's name, its length and its form",
        &["ID-02", "ID-03", "ID-04", "ID-05"],
        run!(plugin_has_a_proper_name),
    ),
    check(
        "plugin-has-a-version",
        "reads the plugin's version",
        &["ID-07"],
        run!(plugin_has_a_version),
    ),
    check(
        "manifest-is-small",
        "adds up the plugin's manifest",
        &["ID-08"],
        run!(manifest_is_small),
    ),
    check(
        "identity-holds-without-storage",
        "takes the storage away and asks who the plugin is and what it can do",
        &["ID-09", "ID-22"],
        run!(identity_holds_without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
    check(
        "instances-agree",
        "compares what the node's endpoint says of the plugin with what the controller's says",
        &["ID-01", "ID-11"],
        run!(instances_agree),
    )
    .needs(&[Need::NodeEndpoint]),
    check(
        "instances-agree-after-a-restart",
        "compares what two instances say of the plugin, one after the other",
        &["ID-11"],
        run!(instances_agree_after_a_restart),
    )
    .needs(&[Need::Restart])
    .alone(),
    check(
        "controller-service-is-reported",
        "compares CONTROLLER_SERVICE with whether the controller answers",
        &["ID-12", "ID-13"],
        run!(controller_service_is_reported),
    ),
    check(
        "topology-is-reported",
        "looks whether the node says where it is, which has to be announced",
        &["ID-14"],
        run!(topology_is_reported),
    )
    .needs(&[Need::NodeService]),
    check(
        "group-controller-is-served",
        "asks the group controller what it can do",
        &["ID-15"],
        run!(group_controller_is_served),
    )
    .needs(&[Need::Plugin(PluginService::GroupControllerService)]),
    check(
        "snapshot-metadata-is-served",
        "calls both streams of SnapshotMetadata",
        &["ID-16"],
        run!(snapshot_metadata_is_served),
    )
    .needs(&[Need::Plugin(PluginService::SnapshotMetadataService)]),
    check(
        "online-expansion-has-a-call",
        "looks for EXPAND_VOLUME of the controller or the node",
        &["ID-17"],
        run!(online_expansion_has_a_call),
    )
    .needs(&[Need::Expansion(Expansion::Online)]),
    check(
        "online-expansion-works",
        "expands a published volume",
        &["ID-18", "ID-19"],
        run!(online_expansion_works),
    )
    .needs(&[
        Need::Expansion(Expansion::Online),
        Need::Controller(Rpc::ExpandVolume),
        Need::Controller(Rpc::CreateDeleteVolume),
        Need::NodeService,
    ]),
    check(
        "offline-expansion-waits",
        "expands a published volume of a plugin that expands offline",
        &["ID-20"],
        run!(offline_expansion_waits),
    )
    .needs(&[
        Need::Expansion(Expansion::Offline),
        Need::Controller(Rpc::ExpandVolume),
        Need::Controller(Rpc::CreateDeleteVolume),
        Need::NodeService,
    ]),
    check(
        "offline-expansion-has-a-call",
        "looks for EXPAND_VOLUME of the controller",
        &["ID-21"],
        run!(offline_expansion_has_a_call),
    )
    .needs(&[Need::Expansion(Expansion::Offline)]),
    check(
        "probe-may-be-asked-often",
        "probes a hundred times",
        &["ID-23", "ID-27"],
        run!(probe_may_be_asked_often),
    ),
    check(
        "probe-notices-missing-storage",
        "takes the storage away, probes, brings it back and probes again",
        &["ID-24", "ID-31"],
        run!(probe_notices_missing_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[
    ("ID-06", "Whether a name holds that of a company and a plugin is for people to judge."),
    ("ID-25", "What a plugin depends on beside its storage, and how to take it away, differs."),
    ("ID-26", "How long a start takes, and how to make it slow, is the plugin's own affair."),
    ("ID-28", "A permission: during a slow start other calls may fail or succeed."),
    ("ID-29", "A permission: what Probe looks at is not told in its answer."),
    ("ID-30", "Guidance for Probe is in the plugin's documents."),
];

async fn identity_is_served(t: &CheckContext) -> Outcome {
    t.ok(GetPluginInfoRequest::default()).await?;
    t.ok(GetPluginCapabilitiesRequest::default()).await?;
    t.ok(ProbeRequest::default()).await?;
    Ok(())
}

async fn plugin_has_a_proper_name(t: &CheckContext) -> Outcome {
    let name = t.ok(GetPluginInfoRequest::default()).await?.name;
    blamed("ID-02", t.expect(!name.is_empty(), "a name"))?;
    blamed("ID-03", t.expect(name.len() <= 63, "a name of at most 63 characters"))?;
    let is_outer = |c: char| c.is_ascii_alphanumeric();
    let is_allowed = name.starts_with(is_outer)
        && name.ends_with(is_outer)
        && name.chars().all(|c| is_outer(c) || c == '-' || c == '.');
    blamed("ID-04", t.expect(is_allowed, "letters, digits, dashes and dots inside"))?;
    let is_label = |label: &str| label.starts_with(is_outer) && label.ends_with(is_outer);
    blamed("ID-05", t.expect(name.split('.').all(is_label), "labels with dots between"))
}

async fn plugin_has_a_version(t: &CheckContext) -> Outcome {
    let version = t.ok(GetPluginInfoRequest::default()).await?.vendor_version;
    t.expect(!version.is_empty(), "a vendor_version")
}

async fn manifest_is_small(t: &CheckContext) -> Outcome {
    let manifest = t.ok(GetPluginInfoRequest::default()).await?.manifest;
    let size: usize = manifest.iter().map(|(key, value)| key.len() + value.len()).sum();
    t.expect(size <= 4096, format!("a manifest of at most 4096 bytes, not {size}"))
}

async fn identity_holds_without_storage(t: &CheckContext) -> Outcome {
    let info = t.ok(GetPluginInfoRequest::default()).await?;
    let capabilities = t.ok(GetPluginCapabilitiesRequest::default()).await?;
    let calls = async {
        let info = t.ask(GetPluginInfoRequest::default()).await?;
        Ok((info, t.ask(GetPluginCapabilitiesRequest::default()).await?))
    };
    let (info_without, capabilities_without) = t.during_outage(calls).await?;
    let same = info_without.is_err() || info_without.is_ok_and(|it| it == info);
    blamed("ID-09", t.expect(same, "an error, or the GetPluginInfo of a healthy plugin"))?;
    let same =
        capabilities_without.is_err() || capabilities_without.is_ok_and(|it| it == capabilities);
    blamed("ID-22", t.expect(same, "an error, or the GetPluginCapabilities of a healthy plugin"))
}

async fn instances_agree(t: &CheckContext) -> Outcome {
    let info = t.ok(GetPluginInfoRequest::default()).await?;
    let capabilities = t.ok(GetPluginCapabilitiesRequest::default()).await?;
    t.expect(t.ask_at_node(ProbeRequest::default()).await?.is_ok(), "OK")?;
    let Ok(other) = t.ask_at_node(GetPluginInfoRequest::default()).await? else {
        return Err(t.failed("OK"));
    };
    let Ok(others) = t.ask_at_node(GetPluginCapabilitiesRequest::default()).await? else {
        return Err(t.failed("OK"));
    };
    let same = other.vendor_version != info.vendor_version || others == capabilities;
    t.expect(same, "the same capabilities from both endpoints")
}

async fn instances_agree_after_a_restart(t: &CheckContext) -> Outcome {
    let before = t.ok(GetPluginCapabilitiesRequest::default()).await?;
    t.restart_plugin()?;
    let after = t.ok(GetPluginCapabilitiesRequest::default()).await?;
    t.expect(before == after, "the capabilities of the instance before")
}

async fn controller_service_is_reported(t: &CheckContext) -> Outcome {
    t.ok(GetPluginCapabilitiesRequest::default()).await?;
    let reported = t.features().has_plugin(PluginService::ControllerService);
    let served = t.features().controller.is_some();
    blamed("ID-12", t.expect(reported || !served, "CONTROLLER_SERVICE, as it is served"))?;
    blamed("ID-13", t.expect(served || !reported, "no CONTROLLER_SERVICE, as it is not served"))
}

async fn topology_is_reported(t: &CheckContext) -> Outcome {
    let place = t.ok(crate::wire::csi::v1::NodeGetInfoRequest::default()).await?;
    let is_placed = place.accessible_topology.is_some_and(|it| !it.segments.is_empty());
    let reported = t.features().has_plugin(PluginService::VolumeAccessibilityConstraints);
    t.expect(
        reported || !is_placed,
        "VOLUME_ACCESSIBILITY_CONSTRAINTS, as nodes are in different places",
    )
}

async fn group_controller_is_served(t: &CheckContext) -> Outcome {
    t.ok(crate::wire::csi::v1::GroupControllerGetCapabilitiesRequest::default()).await?;
    Ok(())
}

async fn snapshot_metadata_is_served(t: &CheckContext) -> Outcome {
    for method in crate::wire::methods_of("csi.v1.SnapshotMetadata") {
        let code = t.code_at(&method).await;
        t.expect(code != Code::Unimplemented, "a call that is there, as it is advertised")?;
    }
    Ok(())
}

async fn online_expansion_has_a_call(t: &CheckContext) -> Outcome {
    let features = t.features();
    let has_call =
        features.has_controller(Rpc::ExpandVolume) || features.has_node(NodeRpc::ExpandVolume);
    t.expect(has_call, "EXPAND_VOLUME of the controller, the node or both")
}

async fn offline_expansion_has_a_call(t: &CheckContext) -> Outcome {
    let has_call = t.features().has_controller(Rpc::ExpandVolume);
    t.expect(has_call, "EXPAND_VOLUME of the controller")
}

async fn online_expansion_works(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability.clone()).await?;
    let larger = t.range(2 * t.size(), 0);
    let request = ControllerExpandVolumeRequest {
        volume_id: volume.volume_id.clone(),
        capacity_range: larger,
        secrets: t.secrets(),
        volume_capability: Some(capability.clone()),
    };
    let Ok(reply) = t.settled(request).await? else {
        return blamed("ID-18", Err(t.failed("OK, as it can be expanded while published")));
    };
    let is_large = reply.capacity_bytes >= 2 * t.size();
    blamed("ID-18", t.expect(is_large, "the size that was asked for"))?;
    if t.features().has_node(NodeRpc::ExpandVolume) {
        let request = NodeExpandVolumeRequest {
            volume_id: volume.volume_id.clone(),
            volume_path: placed.target.clone(),
            staging_target_path: placed.staging.clone(),
            capacity_range: larger,
            volume_capability: Some(capability),
            secrets: t.secrets(),
        };
        let expanded = t.settled(request).await?;
        blamed("ID-19", t.expect(expanded.is_ok(), "OK, as it can be expanded while published"))?;
    }
    t.withdrawn(&placed).await
}

async fn offline_expansion_waits(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability.clone()).await?;
    let request = ControllerExpandVolumeRequest {
        volume_capability: Some(capability),
        ..t.expand(&volume, 2 * t.size())
    };
    t.refused(request, Code::FailedPrecondition).await?;
    t.withdrawn(&placed).await
}

async fn probe_may_be_asked_often(t: &CheckContext) -> Outcome {
    for _ in 0..100 {
        let Ok(reply) = t.settled(ProbeRequest::default()).await? else {
            return blamed("ID-23", Err(t.failed("OK, however often it is asked")));
        };
        let is_ready = reply.ready.unwrap_or(true);
        blamed("ID-27", t.expect(is_ready, "ready=true, or no ready at all"))?;
    }
    Ok(())
}

async fn probe_notices_missing_storage(t: &CheckContext) -> Outcome {
    let Err(status) = t.during_outage(t.ask_until_refused(ProbeRequest::default())).await? else {
        return Err(t.failed("FAILED_PRECONDITION while the storage is away"));
    };
    let is_reported = status.code() == Code::FailedPrecondition;
    blamed("ID-24", t.expect(is_reported, "FAILED_PRECONDITION while the storage is away"))?;
    t.ok(ProbeRequest::default()).await?;
    Ok(())
}
