//! What a new volume starts with.

use crate::wire::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};

pub fn from_snapshot(snapshot_id: &str) -> Type {
    Type::Snapshot(SnapshotSource { snapshot_id: snapshot_id.to_owned() })
}

pub fn from_volume(volume_id: &str) -> Type {
    Type::Volume(VolumeSource { volume_id: volume_id.to_owned() })
}
