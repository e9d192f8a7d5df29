//! Snapshots as a caller sees them.

use orlop_engine::request::GroupSnapshot;
use orlop_model::{Consistency, SnapshotRecord, Timestamp, Topology};
use tonic::Response;
use tonic::metadata::MetadataMap;

use super::{accessible_from, bytes};
use crate::proto::csi::v1;

/// Always ready: a snapshot exists once its point-in-time copy is complete (SN-04, CS-07).
pub(crate) fn snapshot(record: &SnapshotRecord, topology: &Topology) -> v1::Snapshot {
    v1::Snapshot {
        size_bytes: bytes(record.size_bytes),
        snapshot_id: record.id.to_string(),
        source_volume_id: record.source.to_string(),
        creation_time: Some(timestamp(record.created)),
        ready_to_use: true,
        group_snapshot_id: record.group.as_ref().map(ToString::to_string).unwrap_or_default(),
        accessible_topology: accessible_from(topology),
    }
}

/// GG-18 to GG-24. Ready, as all its members are.
pub(crate) fn group_snapshot(
    group: &GroupSnapshot,
    topology: &Topology,
) -> v1::VolumeGroupSnapshot {
    let member = |record: &SnapshotRecord| snapshot(record, topology);
    v1::VolumeGroupSnapshot {
        group_snapshot_id: group.record.whole().to_string(),
        snapshots: group.members.iter().map(member).collect(),
        creation_time: Some(timestamp(group.record.created)),
        ready_to_use: true,
    }
}

fn timestamp(time: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: time.seconds, nanos: time.nanos }
}

/// What each new snapshot guarantees, for which CSI has no field: metadata of the reply, one
/// value for each snapshot.
pub(crate) const CONSISTENCY_KEY: &str = "orlop-consistency";

/// Peers limit the size of headers. Of a group with more members, one value is reported, for the group: the
/// weakest guarantee among its members.
const MAX_VALUES: usize = 64;

pub(crate) fn with_consistency<'a, Reply>(
    reply: Reply,
    snapshots: impl IntoIterator<Item = &'a SnapshotRecord>,
) -> Response<Reply> {
    let mut response = Response::new(reply);
    for snapshot in snapshots {
        guarantee(response.metadata_mut(), &snapshot.id.to_string(), snapshot.consistency);
    }
    response
}

pub(crate) fn with_group_consistency<Reply>(
    reply: Reply,
    group: &GroupSnapshot,
) -> Response<Reply> {
    if group.members.len() <= MAX_VALUES {
        return with_consistency(reply, &group.members);
    }
    let least = group.members.iter().map(|member| member.consistency).min().unwrap_or_default();
    let mut response = Response::new(reply);
    guarantee(response.metadata_mut(), &group.record.whole().to_string(), least);
    response
}

fn guarantee(metadata: &mut MetadataMap, id: &str, consistency: Consistency) {
    // Ids are ASCII, so this never fails; if it did, the snapshot would be no worse for it.
    if let Ok(value) = format!("{id}={}", consistency.as_str()).parse() {
        metadata.append(CONSISTENCY_KEY, value);
    }
}
