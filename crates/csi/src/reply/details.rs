//! What a record holds and no field of CSI has, as metadata of the reply: for people who look at one object.

use orlop_model::{IoLimits, ObjectName, SnapshotRecord, VolumeRecord};
use tonic::Response;
use tonic::metadata::{MetadataMap, MetadataValue};

use super::with_consistency;

/// The name that the orchestrator gave the object: any text, hence `-bin`.
pub const NAME_KEY: &str = "orlop-name-bin";

/// One `key=value` for each limit, with the keys of the mutable parameters.
pub const LIMITS_KEY: &str = "orlop-limits";

/// A volume whose record cannot be read has none of it.
pub(crate) fn with_volume_details<Reply>(
    reply: Reply,
    record: Option<&VolumeRecord>,
) -> Response<Reply> {
    let mut response = Response::new(reply);
    if let Some(record) = record {
        add_name(response.metadata_mut(), &record.name);
        add_limits(response.metadata_mut(), &record.limits);
    }
    response
}

pub(crate) fn with_snapshot_details<Reply>(
    reply: Reply,
    record: &SnapshotRecord,
) -> Response<Reply> {
    let mut response = with_consistency(reply, [record]);
    add_name(response.metadata_mut(), &record.name);
    response
}

fn add_name(metadata: &mut MetadataMap, name: &ObjectName) {
    metadata.insert_bin(NAME_KEY, MetadataValue::from_bytes(name.as_str().as_bytes()));
}

fn add_limits(metadata: &mut MetadataMap, limits: &IoLimits) {
    for (key, limit) in limits.entries() {
        // Digits and letters, so this never fails.
        if let Ok(value) = format!("{key}={limit}").parse() {
            metadata.append(LIMITS_KEY, value);
        }
    }
}
