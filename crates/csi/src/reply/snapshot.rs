//! Snapshots as a caller sees them.

use orlop_model::SnapshotRecord;

use super::bytes;
use crate::proto::csi::v1;

/// Always ready: a snapshot exists once its data is cut and whole (SN-04, CS-07).
pub(crate) fn snapshot(record: &SnapshotRecord) -> v1::Snapshot {
    v1::Snapshot {
        size_bytes: bytes(record.size_bytes),
        snapshot_id: record.id.to_string(),
        source_volume_id: record.source.to_string(),
        creation_time: Some(prost_types::Timestamp {
            seconds: record.created.seconds,
            nanos: record.created.nanos,
        }),
        ready_to_use: true,
        group_snapshot_id: String::new(),
    }
}
