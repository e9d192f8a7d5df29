//! What replies look like on the wire, and which methods there are.

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::fields::Value;
use crate::need::Need;
use crate::wire::csi::v0::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v0::volume_capability::access_mode::Mode;
use crate::wire::csi::v0::{
    ControllerGetCapabilitiesRequest, GetCapacityRequest, GetPluginCapabilitiesRequest,
    ListVolumesRequest, NodeGetCapabilitiesRequest, ProbeRequest,
};
use crate::wire::{Rpc, methods_of};

pub(in crate::checks) const SECTION: Section = Section {
    title: "csi.v0: messages",
    service: Service::V0,
    needs: &[Need::V0],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "v0-controller-methods",
        "calls the eight methods of the controller, and those of later versions",
        &["V0-03"],
        run!(controller_methods),
    ),
    check(
        "v0-node-methods",
        "calls the six methods of the node, and those of later versions",
        &["V0-04"],
        run!(node_methods),
    ),
    check(
        "v0-plugin-capabilities-field",
        "reads the bytes of GetPluginCapabilities",
        &["V0-14"],
        run!(plugin_capabilities_field),
    ),
    check(
        "v0-controller-capabilities-field",
        "reads the bytes of ControllerGetCapabilities",
        &["V0-15"],
        run!(controller_capabilities_field),
    ),
    check(
        "v0-node-capabilities-field",
        "reads the bytes of NodeGetCapabilities",
        &["V0-16"],
        run!(node_capabilities_field),
    ),
    check("v0-probe-is-empty", "reads the bytes of Probe", &["V0-19"], run!(probe_is_empty)),
    check(
        "v0-volume-message",
        "creates a volume and reads the bytes of the reply",
        &["V0-08"],
        run!(volume_message),
    )
    .needs(&[Need::V0Controller(ControllerRpc::CreateDeleteVolume)]),
    check(
        "v0-list-entry",
        "lists volumes and reads the bytes of the entries",
        &["V0-26"],
        run!(list_entry),
    )
    .needs(&[
        Need::V0Controller(ControllerRpc::CreateDeleteVolume),
        Need::V0Controller(ControllerRpc::ListVolumes),
    ]),
    check(
        "v0-capacity-reply",
        "asks for the capacity and reads the bytes of the reply",
        &["V0-27"],
        run!(capacity_reply),
    )
    .needs(&[Need::V0Controller(ControllerRpc::GetCapacity)]),
    check(
        "v0-publish-info",
        "attaches a volume, reads the bytes of the reply, and passes the map on",
        &["V0-11"],
        run!(publish_info),
    )
    .needs(&[Need::V0Controller(ControllerRpc::PublishUnpublishVolume)]),
];

async fn controller_methods(t: &CheckContext) -> Outcome {
    let features = |rpc| t.features().has_v0_controller(rpc);
    for path in methods_of("csi.v0.Controller") {
        let is_offered = match path.rsplit('/').next().unwrap_or_default() {
            "CreateVolume" | "DeleteVolume" => features(ControllerRpc::CreateDeleteVolume),
            "ControllerPublishVolume" | "ControllerUnpublishVolume" => t.v0_attaches(),
            "ListVolumes" => features(ControllerRpc::ListVolumes),
            "GetCapacity" => features(ControllerRpc::GetCapacity),
            _ => true,
        };
        if is_offered {
            t.expect(t.is_served(&path).await, "a method of csi.v0 to be there")?;
        }
    }
    not_served(t, "Controller", &methods_of("csi.v1.Controller"), "csi.v0.Controller").await
}

async fn node_methods(t: &CheckContext) -> Outcome {
    for path in methods_of("csi.v0.Node") {
        let is_offered = match path.rsplit('/').next().unwrap_or_default() {
            "NodeStageVolume" | "NodeUnstageVolume" => t.features().v0_stages,
            "NodeGetId" => t.v0_attaches(),
            _ => true,
        };
        if is_offered {
            t.expect(t.is_served(&path).await, "a method of csi.v0 to be there")?;
        }
    }
    not_served(t, "Node", &methods_of("csi.v1.Node"), "csi.v0.Node").await
}

/// The methods that only csi.v1 has are not in csi.v0.
async fn not_served(t: &CheckContext, service: &str, newer: &[String], older: &str) -> Outcome {
    let known = methods_of(older);
    for path in newer {
        let method = path.rsplit('/').next().unwrap_or_default();
        let path = format!("/csi.v0.{service}/{method}");
        if !known.contains(&path) {
            t.expect(!t.is_served(&path).await, "UNIMPLEMENTED, as csi.v0 has no such method")?;
        }
    }
    Ok(())
}

async fn plugin_capabilities_field(t: &CheckContext) -> Outcome {
    capabilities_in(t, &GetPluginCapabilitiesRequest::default(), 2).await
}

async fn controller_capabilities_field(t: &CheckContext) -> Outcome {
    capabilities_in(t, &ControllerGetCapabilitiesRequest::default(), 2).await
}

async fn node_capabilities_field(t: &CheckContext) -> Outcome {
    if !t.features().v0_stages {
        // Nothing is offered, or it is in a field that no client reads.
        let encoded = t.ok_bytes(&NodeGetCapabilitiesRequest::default()).await?;
        t.expect(encoded.is_empty(), "capabilities in field 1 or no capability")?;
        return t.not_applicable("the csi.v0 node service offers no capability");
    }
    capabilities_in(t, &NodeGetCapabilitiesRequest::default(), 1).await
}

/// Each entry is a message whose field 1 is a message whose field 1 is the type.
async fn capabilities_in<R: Rpc>(t: &CheckContext, request: &R, number: u32) -> Outcome {
    let encoded = t.ok_bytes(request).await?;
    t.only_fields(R::REPLY, &encoded, &[number])?;
    let entries = t.messages_in(&encoded, number)?;
    t.expect(!entries.is_empty(), format!("capabilities in field {number}"))?;
    for entry in entries {
        t.only_fields("a capability", &entry, &[1])?;
        let kinds = t.messages_in(&entry, 1)?;
        t.expect(kinds.len() == 1, "one kind of capability in field 1")?;
        for kind in kinds {
            let fields = t.fields_of(&kind)?;
            let is_type = |value: &Value| matches!(value, Value::Varint(kind) if *kind > 0);
            t.expect(
                fields.len() == 1
                    && fields.iter().all(|field| field.number == 1 && is_type(&field.value)),
                "a type in field 1 of a capability",
            )?;
        }
    }
    Ok(())
}

async fn probe_is_empty(t: &CheckContext) -> Outcome {
    let encoded = t.ok_bytes(&ProbeRequest::default()).await?;
    t.expect(encoded.is_empty(), "an empty ProbeResponse, as csi.v0 has no `ready`")
}

async fn volume_message(t: &CheckContext) -> Outcome {
    let encoded = t.ok_bytes(&t.v0_new_volume()).await?;
    t.only_fields("CreateVolumeResponse", &encoded, &[1])?;
    let volumes = t.messages_in(&encoded, 1)?;
    t.expect(volumes.len() == 1, "one volume in field 1")?;
    for volume in volumes {
        a_volume(t, &volume, true)?;
    }
    Ok(())
}

fn a_volume(t: &CheckContext, encoded: &[u8], is_new: bool) -> Outcome {
    t.only_fields("Volume", encoded, &[1, 2, 3])?;
    let size = u64::try_from(t.size()).unwrap_or_default();
    for field in t.fields_of(encoded)? {
        match (field.number, field.value) {
            (1, Value::Varint(bytes)) => {
                t.expect(!is_new || bytes >= size, "the size that was asked for in field 1")?;
            }
            (2, Value::Bytes(id)) => {
                t.expect(!id.is_empty() && String::from_utf8(id).is_ok(), "an id in field 2")?;
            }
            (3, Value::Bytes(entry)) => t.only_fields("an attribute", &entry, &[1, 2])?,
            (number, _) => return Err(t.failed(format!("another kind of value in field {number}"))),
        }
    }
    t.expect(t.messages_in(encoded, 2)?.len() == 1, "an id in field 2")
}

async fn list_entry(t: &CheckContext) -> Outcome {
    t.v0_volume().await?;
    let encoded = t.ok_bytes(&ListVolumesRequest::default()).await?;
    t.only_fields("ListVolumesResponse", &encoded, &[1, 2])?;
    let entries = t.messages_in(&encoded, 1)?;
    t.expect(!entries.is_empty(), "entries in field 1")?;
    for entry in entries {
        t.only_fields("an entry", &entry, &[1])?;
        let volumes = t.messages_in(&entry, 1)?;
        t.expect(volumes.len() == 1, "one volume in each entry")?;
        for volume in volumes {
            a_volume(t, &volume, false)?;
        }
    }
    Ok(())
}

async fn capacity_reply(t: &CheckContext) -> Outcome {
    let parameters = t.options().parameters.clone();
    let request = GetCapacityRequest {
        volume_capabilities: vec![t.v0_capability(Mode::SingleNodeWriter)],
        parameters,
    };
    let encoded = t.ok_bytes(&request).await?;
    t.only_fields("GetCapacityResponse", &encoded, &[1])?;
    let is_number = |value: &Value| matches!(value, Value::Varint(_));
    t.expect(
        t.fields_of(&encoded)?.iter().all(|field| is_number(&field.value)),
        "available_capacity in field 1, and nothing else",
    )?;
    t.reads_field(&request, 1).await?;
    t.reads_field(&request, 2).await?;
    // In csi.v1 this is a topology.
    t.ignores_field(&request, 3).await
}

async fn publish_info(t: &CheckContext) -> Outcome {
    let volume = t.v0_volume().await?;
    let capability = t.v0_capability(Mode::SingleNodeWriter);
    let encoded = t.ok_bytes(&t.v0_attach(&volume, &capability)).await?;
    t.only_fields("ControllerPublishVolumeResponse", &encoded, &[1])?;
    for entry in t.messages_in(&encoded, 1)? {
        t.only_fields("an entry of publish_info", &entry, &[1, 2])?;
    }
    let placed = t.v0_placed(&volume, capability).await?;
    if t.features().v0_stages {
        t.reads_field(&t.v0_stage(&placed), 2).await?;
    }
    t.reads_field(&t.v0_publish(&placed), 2).await
}
