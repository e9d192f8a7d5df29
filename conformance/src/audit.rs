//! Rules that hold for every answer, looked at with every answer.

use prost::bytes::Bytes;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage, Value};
use tonic::Status;

use crate::call_log::{descend, full_name};
use crate::wire::descriptor;

pub(crate) struct Finding {
    pub(crate) row: &'static str,
    pub(crate) expected: String,
}

const LONGEST_STRING: usize = 128;
const LARGEST_MAP: usize = 4096;
const LONGEST_NODE_ID: usize = 256;

/// Fields that an OK reply has to set, by the message that holds them (GEN-08).
const REQUIRED: &[(&str, &[&str])] = &[
    ("csi.v1.GetPluginInfoResponse", &["name", "vendor_version"]),
    ("csi.v1.CreateVolumeResponse", &["volume"]),
    ("csi.v1.Volume", &["volume_id"]),
    ("csi.v1.ListVolumesResponse.Entry", &["volume"]),
    ("csi.v1.ControllerGetVolumeResponse", &["volume", "status"]),
    ("csi.v1.CreateSnapshotResponse", &["snapshot"]),
    ("csi.v1.GetSnapshotResponse", &["snapshot"]),
    ("csi.v1.ListSnapshotsResponse.Entry", &["snapshot"]),
    ("csi.v1.Snapshot", &["snapshot_id", "source_volume_id", "creation_time"]),
    ("csi.v1.ControllerExpandVolumeResponse", &["capacity_bytes"]),
    ("csi.v1.NodeGetInfoResponse", &["node_id"]),
    ("csi.v1.VolumeUsage", &["unit"]),
    ("csi.v1.VolumeCondition", &["message"]),
    ("csi.v1.CreateVolumeGroupSnapshotResponse", &["group_snapshot"]),
    ("csi.v1.GetVolumeGroupSnapshotResponse", &["group_snapshot"]),
    ("csi.v1.VolumeGroupSnapshot", &["group_snapshot_id", "snapshots", "creation_time"]),
    ("csi.v1.GetMetadataAllocatedResponse", &["block_metadata_type", "volume_capacity_bytes"]),
    ("csi.v1.GetMetadataDeltaResponse", &["block_metadata_type", "volume_capacity_bytes"]),
    ("csi.v0.GetPluginInfoResponse", &["name", "vendor_version"]),
    ("csi.v0.CreateVolumeResponse", &["volume"]),
    ("csi.v0.Volume", &["id"]),
    ("csi.v0.NodeGetIdResponse", &["node_id"]),
    ("identity.GetIdentityResponse", &["name", "vendor_version"]),
    ("volumegroup.CreateVolumeGroupResponse", &["volume_group"]),
    ("volumegroup.VolumeGroup", &["volume_group_id"]),
];

/// What is wrong with a reply, whatever was asked.
pub(crate) fn reply(message: &str, encoded: &Bytes) -> Vec<Finding> {
    let Some(kind) = descriptor(message) else {
        return Vec::new();
    };
    let Ok(decoded) = DynamicMessage::decode(kind, encoded.clone()) else {
        let expected = format!("a reply that is a {message}");
        return vec![Finding { row: "PR-01", expected }];
    };
    let mut findings = Vec::new();
    required_fields(&decoded, &mut findings);
    unset_capability(&decoded, &mut findings);
    descend(&decoded, "reply", &mut |at, field, value| {
        sizes(at, field, value, &mut findings);
        for inner in messages_in(value) {
            required_fields(inner, &mut findings);
            unset_capability(inner, &mut findings);
        }
    });
    findings
}

fn messages_in(value: &Value) -> Vec<&DynamicMessage> {
    match value.as_list() {
        Some(entries) => entries.iter().filter_map(Value::as_message).collect(),
        None => value.as_message().into_iter().collect(),
    }
}

/// GEN-01, GEN-02. Paths are not in replies; `node_id` has another limit.
fn sizes(at: &str, field: &FieldDescriptor, value: &Value, findings: &mut Vec<Finding>) {
    if let Some(entries) = value.as_map() {
        let size: usize = entries
            .iter()
            .map(|(key, value)| {
                key.as_str().map_or(0, str::len) + value.as_str().map_or(0, str::len)
            })
            .sum();
        if size > LARGEST_MAP {
            let expected = format!("at most {LARGEST_MAP} bytes in the map {at}, not {size}");
            findings.push(Finding { row: "GEN-02", expected });
        }
        return;
    }
    let is_node_id = field.name() == "node_id" || field.name() == "published_node_ids";
    let (row, longest) =
        if is_node_id { ("NI-03", LONGEST_NODE_ID) } else { ("GEN-01", LONGEST_STRING) };
    let entries = value.as_list().unwrap_or_default();
    for text in value.as_str().into_iter().chain(entries.iter().filter_map(Value::as_str)) {
        if text.len() > longest {
            let expected = format!("at most {longest} bytes in {at}, not {}", text.len());
            findings.push(Finding { row, expected });
        }
    }
}

/// GEN-08, GEN-09.
fn required_fields(message: &DynamicMessage, findings: &mut Vec<Finding>) {
    let name = full_name(message);
    let required = REQUIRED.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, it)| it);
    for field in required {
        if !message.has_field_by_name(field) {
            let kind = message.descriptor().get_field_by_name(field);
            let is_many = kind.is_some_and(|kind| kind.is_list() || kind.is_map());
            let row = if is_many { "GEN-09" } else { "GEN-08" };
            findings.push(Finding { row, expected: format!("{field} to be set in {name}") });
        }
    }
}

/// GEN-40.
fn unset_capability(message: &DynamicMessage, findings: &mut Vec<Finding>) {
    let name = full_name(message);
    let last = name.rsplit('.').next().unwrap_or_default();
    if !last.ends_with("Capability") || last == "VolumeCapability" {
        return;
    }
    let unset = message.fields().next().is_none();
    let mut unknown = false;
    descend(message, "", &mut |_, field, value| {
        let is_enum = matches!(field.kind(), Kind::Enum(_));
        unknown |= is_enum && value.as_enum_number() == Some(0);
    });
    // An enum of value 0 is not on the wire at all: a set oneof with nothing in it.
    unknown |= message
        .fields()
        .any(|(_, value)| value.as_message().is_some_and(|inner| inner.fields().next().is_none()));
    if unset || unknown {
        let expected = format!("each {last} to say which one it is");
        findings.push(Finding { row: "GEN-40", expected });
    }
}

/// GEN-16, GEN-17.
pub(crate) fn status(status: &Status) -> Vec<Finding> {
    let mut findings = Vec::new();
    if status.message().trim().is_empty() {
        let expected = "a text that a person can read with the refusal".to_owned();
        findings.push(Finding { row: "GEN-16", expected });
    }
    if !status.details().is_empty() {
        let expected = "a status without details".to_owned();
        findings.push(Finding { row: "GEN-17", expected });
    }
    findings
}
