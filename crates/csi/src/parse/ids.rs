//! Ids and the paths that go with them. An id that was never issued here is not malformed: it
//! names something that does not exist, and each call has its own answer to that.

use std::collections::BTreeSet;
use std::str::FromStr;

use orlop_engine::request::VolumeRef;
use orlop_model::{
    Error, GroupSnapshotId, NodeId, Result, SnapshotId, TargetPath, VolumeGroupId, VolumeId,
};

use super::check_length;

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
