//! How to take back what a check did. Each call that makes something is noted when it succeeds,
//! so that a check cleans up after itself wherever it ends.

use std::any::Any;

use crate::wire::csi::{v0, v1};
use crate::wire::volumegroup;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undo {
    Volume(String),
    Snapshot(String),
    GroupSnapshot { id: String, snapshots: Vec<String> },
    ControllerPublication { volume: String, node: String },
    Stage { volume: String, path: String },
    Publication { volume: String, target: String },
    VolumeGroup(String),
    V0Volume(String),
    V0ControllerPublication { volume: String, node: String },
    V0Stage { volume: String, path: String },
    V0Publication { volume: String, target: String },
}

/// What a call that succeeded has made.
pub(crate) fn made(request: &dyn Any, reply: &dyn Any) -> Option<Undo> {
    if let Some(reply) = reply.downcast_ref::<v1::CreateVolumeResponse>() {
        return reply.volume.as_ref().map(|volume| Undo::Volume(volume.volume_id.clone()));
    }
    if let Some(reply) = reply.downcast_ref::<v1::CreateSnapshotResponse>() {
        return reply.snapshot.as_ref().map(|it| Undo::Snapshot(it.snapshot_id.clone()));
    }
    if let Some(reply) = reply.downcast_ref::<v1::CreateVolumeGroupSnapshotResponse>() {
        return reply.group_snapshot.as_ref().map(|group| Undo::GroupSnapshot {
            id: group.group_snapshot_id.clone(),
            snapshots: group.snapshots.iter().map(|it| it.snapshot_id.clone()).collect(),
        });
    }
    if let Some(reply) = reply.downcast_ref::<volumegroup::CreateVolumeGroupResponse>() {
        return reply.volume_group.as_ref().map(|it| Undo::VolumeGroup(it.volume_group_id.clone()));
    }
    if let Some(reply) = reply.downcast_ref::<v0::CreateVolumeResponse>() {
        return reply.volume.as_ref().map(|volume| Undo::V0Volume(volume.id.clone()));
    }
    placed(request)
}

/// Calls whose reply says nothing of what was made.
fn placed(request: &dyn Any) -> Option<Undo> {
    if let Some(request) = request.downcast_ref::<v1::ControllerPublishVolumeRequest>() {
        let (volume, node) = (request.volume_id.clone(), request.node_id.clone());
        return Some(Undo::ControllerPublication { volume, node });
    }
    if let Some(request) = request.downcast_ref::<v1::NodeStageVolumeRequest>() {
        let (volume, path) = (request.volume_id.clone(), request.staging_target_path.clone());
        return Some(Undo::Stage { volume, path });
    }
    if let Some(request) = request.downcast_ref::<v1::NodePublishVolumeRequest>() {
        let (volume, target) = (request.volume_id.clone(), request.target_path.clone());
        return Some(Undo::Publication { volume, target });
    }
    if let Some(request) = request.downcast_ref::<v0::ControllerPublishVolumeRequest>() {
        let (volume, node) = (request.volume_id.clone(), request.node_id.clone());
        return Some(Undo::V0ControllerPublication { volume, node });
    }
    if let Some(request) = request.downcast_ref::<v0::NodeStageVolumeRequest>() {
        let (volume, path) = (request.volume_id.clone(), request.staging_target_path.clone());
        return Some(Undo::V0Stage { volume, path });
    }
    if let Some(request) = request.downcast_ref::<v0::NodePublishVolumeRequest>() {
        let (volume, target) = (request.volume_id.clone(), request.target_path.clone());
        return Some(Undo::V0Publication { volume, target });
    }
    None
}

/// What a call that succeeded has taken back already.
pub(crate) fn unmade(request: &dyn Any) -> Option<Undo> {
    if let Some(request) = request.downcast_ref::<v1::DeleteVolumeRequest>() {
        return Some(Undo::Volume(request.volume_id.clone()));
    }
    if let Some(request) = request.downcast_ref::<v1::DeleteSnapshotRequest>() {
        return Some(Undo::Snapshot(request.snapshot_id.clone()));
    }
    if let Some(request) = request.downcast_ref::<v1::NodeUnstageVolumeRequest>() {
        let (volume, path) = (request.volume_id.clone(), request.staging_target_path.clone());
        return Some(Undo::Stage { volume, path });
    }
    if let Some(request) = request.downcast_ref::<v1::NodeUnpublishVolumeRequest>() {
        let (volume, target) = (request.volume_id.clone(), request.target_path.clone());
        return Some(Undo::Publication { volume, target });
    }
    if let Some(request) = request.downcast_ref::<v1::ControllerUnpublishVolumeRequest>() {
        let (volume, node) = (request.volume_id.clone(), request.node_id.clone());
        return Some(Undo::ControllerPublication { volume, node });
    }
    None
}
