//! From the wire to the model, once: what comes out of here cannot be wrong.
//!
//! Every call checks in the same order (open point 8 of the requirements): first that all
//! required fields are there, then that values are legal, last whether ids name anything. The rules for
//! fields of any call are here: presence, size, secrets, ranges, paths.

mod capability;
mod context;
mod creation;
mod ids;
mod paging;

use std::collections::BTreeMap;

use orlop_model::{CapacityRange, Error, Result, TargetPath};

use crate::proto::csi::v1;

pub(crate) use capability::{
    capability, capability_in_use, capability_set, capability_set_to_validate,
};
pub(crate) use context::{inline_volume, publish_context, volume_context};
pub(crate) use creation::{
    capacity_parameters, check_snapshot_parameters, content_source, mutable_parameters, place,
    topology_requirement, volume_group_parameters, volume_parameters,
};
pub(crate) use ids::{
    group_snapshot_id, issued_group_snapshot, issued_snapshot, issued_volume, issued_volume_group,
    optional_node, snapshot_id, volume_group_id, volume_id, volume_ids, volume_path, volume_ref,
};
pub(crate) use paging::{max_entries, max_results, page_token, starting_offset};

/// GEN-04: strings without a limit of their own.
const LONGEST_TEXT: usize = 128;

/// GEN-02, open point 13: all keys and values of one map.
const LARGEST_MAP: usize = 4096;

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

#[cfg(test)]
mod tests;
