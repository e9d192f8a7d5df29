//! From the wire to the model, once: what comes out of here cannot be wrong.
//!
//! Every call checks in the same order (point 8 of docs/specification.md): first that all
//! required fields are there, then that values are legal, last whether ids name anything. The fields of any
//! call are here: presence, size, secrets, ids, paths, contexts, pages. What a caller says of the volume
//! that it wants is in `volume.rs`.

mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use orlop_engine::request::{InlineVolume, PublishContext, VolumeContext, VolumeRef};
use orlop_model::{
    CapacityRange, Error, GroupSnapshotId, NodeId, Result, Secret, SnapshotId, TargetPath,
    VolumeGroupId, VolumeId, VolumeKeys, parse_quantity,
};

use crate::features::Features;
use crate::proto::csi::v1;
use crate::reply::READ_ONLY_KEY;

pub(crate) use volume::{
    capability, capability_in_use, capability_set, capability_set_to_validate, capacity_parameters,
    check_snapshot_parameters, content_source, mutable_parameters, topology, topology_requirement,
    volume_group_parameters, volume_parameters,
};

/// GEN-04: strings for which no other limit is given.
const LONGEST_TEXT: usize = 128;

/// GEN-02, point 13 of docs/specification.md: all keys and values of one map.
const LARGEST_MAP: usize = 4096;

const VOLUME_CONTEXT: &str = "volume_context";

/// How Kubernetes says that a volume lives and dies with its pod.
const EPHEMERAL_KEY: &str = "csi.storage.k8s.io/ephemeral";

/// The size of an inline volume, which has no claim to ask for one.
const SIZE_KEY: &str = "size";

/// Ranges in one message if the caller gives no limit (SM-14).
const DEFAULT_RESULTS: usize = 1024;

/// Some 100 KiB on the wire, far below the message size that receivers refuse.
const MAX_RESULTS: usize = 4096;

/// Refuses the call if one of these fields is not there (GEN-10).
pub(crate) fn require<const N: usize>(fields: [(&'static str, bool); N]) -> Result<()> {
    match fields.into_iter().find(|(_, is_given)| !is_given) {
        Some((field, _)) => Err(Error::invalid(field, "is missing")),
        None => Ok(()),
    }
}

pub(crate) fn check_length(field: &'static str, text: &str) -> Result<()> {
    if text.len() > LONGEST_TEXT {
        return Err(Error::invalid(field, "is longer than 128 bytes"));
    }
    Ok(())
}

fn check_map_size(field: &'static str, map: &BTreeMap<String, String>) -> Result<()> {
    let size: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > LARGEST_MAP {
        return Err(Error::invalid(field, "holds more than 4 KiB in all"));
    }
    Ok(())
}

/// No call needs secrets. Keys meant for others are fine (GEN-36) as long as they are keys at
/// all (GEN-31); everything is dropped here, unread. Keys are not shown: a caller that mixes up
/// keys and values would find its secret in a log.
pub(crate) fn discard_secrets(secrets: BTreeMap<String, String>) -> Result<()> {
    check_secret_keys(&secrets)
}

/// What of the secrets opens an encrypted volume. Others are their own callers' and mean nothing here.
pub(crate) fn volume_keys(mut secrets: BTreeMap<String, String>) -> Result<VolumeKeys> {
    check_secret_keys(&secrets)?;
    let mut key = |name: &'static str| {
        let text = secrets.remove(name);
        text.map(|text| Secret::new(name, text.into_bytes())).transpose()
    };
    let keys = VolumeKeys {
        current: key("encryptionPassphrase")?,
        previous: key("previousEncryptionPassphrase")?,
    };
    match (&keys.current, &keys.previous) {
        (None, Some(_)) => Err(Error::invalid(
            "secrets",
            "has a previousEncryptionPassphrase, but no encryptionPassphrase",
        )),
        _ => Ok(keys),
    }
}

fn check_secret_keys(secrets: &BTreeMap<String, String>) -> Result<()> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let is_key = |key: &String| !key.is_empty() && key.bytes().all(allowed);
    if secrets.keys().all(is_key) {
        return Ok(());
    }
    Err(Error::invalid(
        "secrets",
        "has a key that is not made of letters, digits, '-', '_' and '.'",
    ))
}

pub(crate) fn capacity_range(range: Option<v1::CapacityRange>) -> Result<Option<CapacityRange>> {
    range.map(|range| CapacityRange::parse(range.required_bytes, range.limit_bytes)).transpose()
}

pub(crate) fn optional_path(field: &'static str, text: &str) -> Result<Option<TargetPath>> {
    if text.is_empty() {
        return Ok(None);
    }
    TargetPath::parse(field, text).map(Some)
}

/// The same complaint, about the field that the caller filled.
fn about(field: &'static str, error: Error) -> Error {
    if let Error::Invalid { reason, .. } = error {
        return Error::Invalid { field, reason };
    }
    error
}

// An id that was never issued here is not malformed: it names something that does not exist, and each call
// has its own answer to that.

pub(crate) fn volume_id(field: &'static str, text: &str) -> Result<VolumeId> {
    check_length(field, text)?;
    text.parse()
}

/// Checks the form of every id before any of them can be reported as not found. Order and repetitions do
/// not matter.
pub(crate) fn volume_ids(field: &'static str, texts: &[String]) -> Result<BTreeSet<VolumeId>> {
    for text in texts {
        if text.is_empty() {
            return Err(Error::invalid(field, "holds an empty id"));
        }
        check_length(field, text)?;
    }
    texts.iter().map(|text| text.parse()).collect()
}

pub(crate) fn snapshot_id(field: &'static str, text: &str) -> Result<SnapshotId> {
    check_length(field, text)?;
    text.parse()
}

pub(crate) fn group_snapshot_id(text: &str) -> Result<GroupSnapshotId> {
    check_length("group_snapshot_id", text)?;
    text.parse()
}

pub(crate) fn volume_group_id(text: &str) -> Result<VolumeGroupId> {
    check_length("volume_group_id", text)?;
    text.parse()
}

/// `None`: never issued here, so there is nothing to undo and nothing to find (DV-10, CU-06,
/// LS-14).
pub(crate) fn issued_volume(field: &'static str, text: &str) -> Result<Option<VolumeId>> {
    issued(field, text)
}

/// As [`issued_volume`] (DS-02, LS-15).
pub(crate) fn issued_snapshot(text: &str) -> Result<Option<SnapshotId>> {
    issued("snapshot_id", text)
}

/// As [`issued_volume`] (GG-32).
pub(crate) fn issued_group_snapshot(text: &str) -> Result<Option<GroupSnapshotId>> {
    issued("group_snapshot_id", text)
}

/// As [`issued_volume`] (VG-15).
pub(crate) fn issued_volume_group(text: &str) -> Result<Option<VolumeGroupId>> {
    issued("volume_group_id", text)
}

fn issued<Id: FromStr>(field: &'static str, text: &str) -> Result<Option<Id>> {
    check_length(field, text)?;
    Ok(text.parse().ok())
}

pub(crate) fn volume_ref(text: &str) -> Result<VolumeRef> {
    check_length("volume_id", text)?;
    Ok(VolumeRef::parse(text))
}

/// CU-04: no node means all of them.
pub(crate) fn optional_node(text: &str) -> Result<Option<NodeId>> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some)
}

/// The path at which the caller expects the volume. No volume is ever at a relative path, so a relative
/// path is answered with NOT_FOUND, not INVALID_ARGUMENT (ST-05, NE-04).
pub(crate) fn volume_path(volume: &VolumeRef, text: &str) -> Result<TargetPath> {
    if text.starts_with('/') {
        return TargetPath::parse("volume_path", text);
    }
    Err(Error::NotAtPath {
        volume: volume.to_string(),
        path: orlop_model::id::shown(text),
        reason: "the path is not absolute".to_owned(),
    })
}

pub(crate) fn volume_context(context: BTreeMap<String, String>) -> Result<VolumeContext> {
    check_map_size(VOLUME_CONTEXT, &context)?;
    Ok(context)
}

/// Exactly what ControllerPublishVolume hands out, or nothing (NS-15).
pub(crate) fn publish_context(
    context: &BTreeMap<String, String>,
    features: &Features,
) -> Result<PublishContext> {
    const FIELD: &str = "publish_context";
    if context.is_empty() {
        return Ok(PublishContext::default());
    }
    if !features.attach {
        return Err(Error::invalid(
            FIELD,
            "is not empty, but this plugin does not attach volumes to nodes",
        ));
    }
    let mut entries = context.iter();
    let read_only = match (entries.next(), entries.next()) {
        (Some((key, value)), None) if key == READ_ONLY_KEY => parse_flag(value),
        (Some(_) | None, _) => None,
    };
    let read_only = read_only
        .ok_or_else(|| Error::invalid(FIELD, "is not what ControllerPublishVolume returned"))?;
    Ok(PublishContext { read_only })
}

fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// `None`: an ordinary volume.
pub(crate) fn inline_volume(
    context: &VolumeContext,
    features: &Features,
) -> Result<Option<InlineVolume>> {
    if context.get(EPHEMERAL_KEY).is_none_or(|value| value != "true") {
        return Ok(None);
    }
    let mut parameters = context.clone();
    let range = parameters.remove(SIZE_KEY).map(|size| inline_size(&size)).transpose()?;
    let (parameters, limits) =
        volume_parameters(&parameters, features).map_err(|error| about(VOLUME_CONTEXT, error))?;
    Ok(Some(InlineVolume { range, parameters, limits }))
}

fn inline_size(text: &str) -> Result<CapacityRange> {
    let bytes = parse_quantity(text).ok_or_else(|| {
        Error::invalid(VOLUME_CONTEXT, "size is not a quantity such as 500Mi, 1Gi or 10G")
    })?;
    CapacityRange::parse(bytes, 0)
}

/// 0 means all.
pub(crate) fn max_entries(count: i32) -> Result<usize> {
    usize::try_from(count).map_err(|_| Error::invalid("max_entries", "is negative"))
}

/// A page token is the id of the last entry of the page before. One that does not parse as an id was not issued here (LV-09, LS-12).
pub(crate) fn page_token<Id: FromStr>(text: &str) -> Result<Option<Id>> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| Error::StaleToken)
}

/// SM-13 to SM-15.
pub(crate) fn max_results(count: i32) -> Result<usize> {
    match usize::try_from(count) {
        Ok(0) => Ok(DEFAULT_RESULTS),
        Ok(count) => Ok(count.min(MAX_RESULTS)),
        Err(_) => Err(Error::invalid("max_results", "is negative")),
    }
}

/// SM-27, SM-32. The engine, which knows the size of the volume, refuses an offset beyond its end.
pub(crate) fn starting_offset(offset: i64) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Error::OutOfRange("starting_offset is negative".to_owned()))
}

#[cfg(test)]
mod tests;
