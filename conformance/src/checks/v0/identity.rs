//! Who the plugin is, what it offers, and how it is.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{CheckContext, code_of};
use crate::need::Need;
use crate::wire::csi::v0::controller_service_capability::Type as ControllerType;
use crate::wire::csi::v0::controller_service_capability::rpc::Type::PublishUnpublishVolume;
use crate::wire::csi::v0::node_service_capability::Type as NodeType;
use crate::wire::csi::v0::plugin_capability::Type as PluginType;
use crate::wire::csi::v0::volume_capability::access_mode::Mode;
use crate::wire::csi::v0::{
    ControllerGetCapabilitiesRequest, ControllerPublishVolumeRequest,
    ControllerUnpublishVolumeRequest, CreateVolumeRequest, DeleteVolumeRequest,
    GetPluginCapabilitiesRequest, GetPluginInfoRequest, NodeGetCapabilitiesRequest,
    NodeGetIdRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, ProbeRequest, ValidateVolumeCapabilitiesRequest,
};
use crate::wire::csi::v1;

pub(in crate::checks) const SECTION: Section = Section {
    title: "csi.v0: identity",
    service: Service::V0,
    needs: &[Need::V0],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "v0-services",
        "calls a method of each service of the package csi.v0",
        &["V0-01"],
        run!(services),
    ),
    check(
        "v0-and-v1",
        "asks both versions for capabilities, and sees each under its own field number",
        &["V0-02"],
        run!(both_versions),
    ),
    check(
        "v0-node-id",
        "asks for the node's id and looks at its length",
        &["V0-05", "V0-07"],
        run!(node_id),
    )
    .needs(&[Need::V0Controller(PublishUnpublishVolume)]),
    check(
        "v0-node-id-not-offered",
        "asks for the node's id where volumes are not attached",
        &["V0-06"],
        run!(node_id_not_offered),
    ),
    check(
        "v0-plugin-name",
        "reads the plugin's name, its length and its form",
        &["V0-20"],
        run!(plugin_name),
    ),
    check(
        "v0-capabilities",
        "looks for capabilities that this version does not have",
        &["V0-21", "V0-22", "V0-23"],
        run!(capabilities),
    ),
    check(
        "v0-secrets-not-logged",
        "sends secrets in all six fields and searches the log for them",
        &["V0-13"],
        run!(secrets_not_logged),
    )
    .needs(&[Need::Logs]),
    check(
        "v0-probe-when-broken",
        "takes the storage away and probes",
        &["V0-43"],
        run!(probe_when_broken),
    )
    .needs(&[Need::Faults])
    .alone(),
    check(
        "v0-missing-fields",
        "sends empty requests to all calls that have required fields",
        &["V0-45"],
        run!(missing_fields),
    ),
];

async fn services(t: &CheckContext) -> Outcome {
    for path in [
        "/csi.v0.Identity/GetPluginInfo",
        "/csi.v0.Controller/ControllerGetCapabilities",
        "/csi.v0.Node/NodeGetCapabilities",
    ] {
        t.expect_code_at(path, Code::Ok).await?;
    }
    Ok(())
}

/// `capabilities` is field 2 in csi.v0 and field 1 in csi.v1, so neither can be read as the other.
async fn both_versions(t: &CheckContext) -> Outcome {
    let old = t.ok_bytes(&ControllerGetCapabilitiesRequest::default()).await?;
    t.expect(!t.messages_in(&old, 2)?.is_empty(), "capabilities in field 2")?;
    let new = t.ok_bytes(&v1::ControllerGetCapabilitiesRequest::default()).await?;
    t.expect(!t.messages_in(&new, 1)?.is_empty(), "capabilities in field 1")?;
    let old = t.ok(GetPluginInfoRequest::default()).await?;
    let new = t.ok(v1::GetPluginInfoRequest::default()).await?;
    t.expect(old.vendor_version == new.vendor_version, "one plugin behind both versions")
}

async fn node_id(t: &CheckContext) -> Outcome {
    let encoded = t.ok_bytes(&NodeGetIdRequest::default()).await?;
    t.only_fields("NodeGetIdResponse", &encoded, &[1])?;
    let id = t.ok(NodeGetIdRequest::default()).await?.node_id;
    t.expect((1..=128).contains(&id.len()), "a node_id of 1 to 128 bytes")
}

async fn node_id_not_offered(t: &CheckContext) -> Outcome {
    let answer = t.ask(NodeGetIdRequest::default()).await?;
    if answer.is_ok() {
        return t.not_applicable("NodeGetId is implemented");
    }
    t.expect(code_of(&answer) == Code::Unimplemented, "UNIMPLEMENTED")
}

async fn plugin_name(t: &CheckContext) -> Outcome {
    let name = t.ok(GetPluginInfoRequest::default()).await?.name;
    t.expect((1..=63).contains(&name.len()), "a name of 1 to 63 characters")?;
    let ends = |c: char| c.is_ascii_alphanumeric();
    t.expect(name.starts_with(ends) && name.ends_with(ends), "a letter or a digit at each end")?;
    t.expect(
        name.chars().all(|c| ends(c) || matches!(c, '-' | '_' | '.')),
        "nothing but letters, digits, dashes, underscores and dots",
    )?;
    t.expect(
        name.contains('.') && name.split('.').all(|label| !label.is_empty()),
        "a domain name turned round, with dots between labels",
    )
}

async fn capabilities(t: &CheckContext) -> Outcome {
    for entry in t.ok(GetPluginCapabilitiesRequest::default()).await?.capabilities {
        let Some(PluginType::Service(service)) = entry.r#type else {
            return Err(t.failed("a service in each plugin capability"));
        };
        t.expect(service.r#type == 1, "CONTROLLER_SERVICE (1), the only one there is")?;
    }
    for entry in t.ok(ControllerGetCapabilitiesRequest::default()).await?.capabilities {
        let Some(ControllerType::Rpc(rpc)) = entry.r#type else {
            return Err(t.failed("an rpc in each controller capability"));
        };
        t.expect((1..=4).contains(&rpc.r#type), "controller capabilities from 1 to 4")?;
    }
    for entry in t.ok(NodeGetCapabilitiesRequest::default()).await?.capabilities {
        let Some(NodeType::Rpc(rpc)) = entry.r#type else {
            return Err(t.failed("an rpc in each node capability"));
        };
        t.expect(rpc.r#type == 1, "STAGE_UNSTAGE_VOLUME (1), the only one there is")?;
    }
    Ok(())
}

/// Whether a call succeeds with secrets that the plugin does not need does not matter.
async fn secrets_not_logged(t: &CheckContext) -> Outcome {
    let hidden = t.name("hidden-value");
    let secrets = || [("conformance".to_owned(), hidden.clone())].into();
    let mut placed =
        t.v0_attached(&t.v0_volume().await?, t.v0_capability(Mode::SingleNodeWriter)).await?;
    placed.target = t.v0_target(&placed.capability)?;
    let volume = placed.volume.clone();
    let create = CreateVolumeRequest { controller_create_secrets: secrets(), ..t.v0_new_volume() };
    t.ask(create).await?.ok();
    let attach = t.v0_attach(&volume, &placed.capability);
    t.ask(ControllerPublishVolumeRequest { controller_publish_secrets: secrets(), ..attach })
        .await?
        .ok();
    let stage = t.v0_stage(&placed);
    t.ask(NodeStageVolumeRequest { node_stage_secrets: secrets(), ..stage }).await?.ok();
    let publish = t.v0_publish(&placed);
    t.ask(NodePublishVolumeRequest { node_publish_secrets: secrets(), ..publish }).await?.ok();
    let detach = t.v0_detach(&volume);
    t.ask(ControllerUnpublishVolumeRequest { controller_unpublish_secrets: secrets(), ..detach })
        .await?
        .ok();
    let delete = t.v0_delete(&volume);
    t.ask(DeleteVolumeRequest { controller_delete_secrets: secrets(), ..delete }).await?.ok();
    t.expect(!t.logs()?.contains(&hidden), "the value of a secret nowhere in the log")
}

async fn probe_when_broken(t: &CheckContext) -> Outcome {
    t.ok(ProbeRequest::default()).await?;
    let answer = t.during_outage(t.ask_until_refused(ProbeRequest::default())).await?;
    t.expect(
        code_of(&answer) == Code::FailedPrecondition,
        "FAILED_PRECONDITION, as the storage is away",
    )?;
    t.ok(ProbeRequest::default()).await?;
    Ok(())
}

/// Of the general errors there are only those of INVALID_ARGUMENT.
async fn missing_fields(t: &CheckContext) -> Outcome {
    use crate::wire::csi::v0::controller_service_capability::rpc::Type::CreateDeleteVolume;
    let wrong = Code::InvalidArgument;
    if t.features().has_v0_controller(CreateDeleteVolume) {
        t.refused(CreateVolumeRequest::default(), wrong).await?;
        t.refused(DeleteVolumeRequest::default(), wrong).await?;
    }
    if t.v0_attaches() {
        t.refused(ControllerPublishVolumeRequest::default(), wrong).await?;
        t.refused(ControllerUnpublishVolumeRequest::default(), wrong).await?;
    }
    t.refused(ValidateVolumeCapabilitiesRequest::default(), wrong).await?;
    if t.features().v0_stages {
        t.refused(NodeStageVolumeRequest::default(), wrong).await?;
        t.refused(NodeUnstageVolumeRequest::default(), wrong).await?;
    }
    t.refused(NodePublishVolumeRequest::default(), wrong).await?;
    t.refused(NodeUnpublishVolumeRequest::default(), wrong).await?;
    Ok(())
}
