//! What a call is about, so that a router can forward it to the daemon that answers it. The call itself is
//! parsed and refused there: a message that says too little here is answered by any daemon.

use orlop_model::{
    ContentSource, PoolId, SnapshotId, TopologyRequirement, VolumeGroupId, VolumeId,
};
use prost::Message;

use crate::parse;
use crate::proto::csi::{v0, v1};
use crate::proto::{reclaimspace, volumegroup};

/// Which daemons a call concerns.
#[derive(Clone, PartialEq)]
pub enum Scope {
    /// The one that was called.
    Here,
    /// The one that serves this pool.
    Pool(PoolId),
    /// A daemon that can create the volume, or the one that has it already.
    Volume(Box<Creation>),
    /// The one that serves the pool of the source, unless a snapshot of this name exists elsewhere.
    Snapshot { name: String, pool: PoolId },
    /// The one that serves all these pools, those of the members, unless a group of this name exists elsewhere. A
    /// group without members may be on any.
    VolumeGroup { name: String, pools: Vec<PoolId> },
    /// The daemons that serve the pools of the sources.
    GroupSnapshot(Vec<PoolId>),
    /// The daemons that serve the pools of the members.
    GroupSnapshotParts,
    /// The one that serves the group's pool, if it serves those of its new members too.
    Membership { pool: PoolId, members: Vec<PoolId> },
    /// All of them.
    Everywhere,
}

/// What decides where a volume is created.
#[derive(Clone, PartialEq)]
pub struct Creation {
    pub name: String,
    /// The pool of the snapshot or volume that it is copied from.
    pub source: Option<PoolId>,
    pub topology: Option<TopologyRequirement>,
    /// Asks a daemon how much space it has for the volume.
    pub capacity: v1::GetCapacityRequest,
}

/// `path` is `/package.Service/Method`, `message` the encoded request.
pub fn scope(path: &str, message: &[u8]) -> Scope {
    let Some((service, method)) = path.trim_start_matches('/').split_once('/') else {
        return Scope::Here;
    };
    let found = match service {
        "csi.v1.Controller" => controller(method, message),
        "csi.v1.GroupController" => group_controller(method, message),
        "csi.v1.SnapshotMetadata" => snapshot_metadata(method, message),
        "csi.v0.Controller" => v0_controller(method, message),
        "volumegroup.Controller" => volume_groups(method, message),
        "reclaimspace.ReclaimSpaceController" => reclaim_space(method, message),
        _ => None,
    };
    found.unwrap_or(Scope::Here)
}

fn controller(method: &str, message: &[u8]) -> Option<Scope> {
    match method {
        "CreateVolume" => creation(read(message)?),
        "DeleteVolume" => of_volume(&read::<v1::DeleteVolumeRequest>(message)?.volume_id),
        "ControllerPublishVolume" => {
            of_volume(&read::<v1::ControllerPublishVolumeRequest>(message)?.volume_id)
        }
        "ControllerUnpublishVolume" => {
            of_volume(&read::<v1::ControllerUnpublishVolumeRequest>(message)?.volume_id)
        }
        "ValidateVolumeCapabilities" => {
            of_volume(&read::<v1::ValidateVolumeCapabilitiesRequest>(message)?.volume_id)
        }
        "ControllerGetVolume" => {
            of_volume(&read::<v1::ControllerGetVolumeRequest>(message)?.volume_id)
        }
        "ControllerExpandVolume" => {
            of_volume(&read::<v1::ControllerExpandVolumeRequest>(message)?.volume_id)
        }
        "ControllerModifyVolume" => {
            of_volume(&read::<v1::ControllerModifyVolumeRequest>(message)?.volume_id)
        }
        "CreateSnapshot" => {
            let request = read::<v1::CreateSnapshotRequest>(message)?;
            let source = request.source_volume_id.parse::<VolumeId>().ok()?;
            Some(Scope::Snapshot { name: request.name, pool: source.pool().clone() })
        }
        "DeleteSnapshot" => of_snapshot(&read::<v1::DeleteSnapshotRequest>(message)?.snapshot_id),
        "GetSnapshot" => of_snapshot(&read::<v1::GetSnapshotRequest>(message)?.snapshot_id),
        "ListSnapshots" => Some(listed_snapshots(&read(message)?)),
        "ControllerGetVolumeHealth" => {
            of_volume(&read::<v1::ControllerGetVolumeHealthRequest>(message)?.volume_id)
        }
        "ListVolumes"
        | "GetCapacity"
        | "ControllerGetCapabilities"
        | "ControllerListVolumeHealth" => Some(Scope::Everywhere),
        _ => None,
    }
}

fn creation(request: v1::CreateVolumeRequest) -> Option<Scope> {
    let source = parse::content_source(request.volume_content_source).ok()?;
    let topology = parse::topology_requirement(request.accessibility_requirements).ok()?;
    Some(Scope::Volume(Box::new(Creation {
        name: request.name,
        source: source.as_ref().map(ContentSource::pool).cloned(),
        topology,
        capacity: v1::GetCapacityRequest {
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
            accessible_topology: None,
        },
    })))
}

/// A filter names the pool; one that names nothing that was ever issued finds nothing anywhere.
fn listed_snapshots(request: &v1::ListSnapshotsRequest) -> Scope {
    if !request.snapshot_id.is_empty() {
        return of_snapshot(&request.snapshot_id).unwrap_or(Scope::Here);
    }
    if !request.source_volume_id.is_empty() {
        return of_volume(&request.source_volume_id).unwrap_or(Scope::Here);
    }
    Scope::Everywhere
}

fn group_controller(method: &str, message: &[u8]) -> Option<Scope> {
    match method {
        "CreateVolumeGroupSnapshot" => {
            let request = read::<v1::CreateVolumeGroupSnapshotRequest>(message)?;
            let pools = pools_of(&request.source_volume_ids)?;
            Some(match pools.as_slice() {
                [only] => Scope::Pool(only.clone()),
                _ => Scope::GroupSnapshot(pools),
            })
        }
        "DeleteVolumeGroupSnapshot" | "GetVolumeGroupSnapshot" => Some(Scope::GroupSnapshotParts),
        _ => None,
    }
}

fn snapshot_metadata(method: &str, message: &[u8]) -> Option<Scope> {
    match method {
        "GetMetadataAllocated" => {
            of_snapshot(&read::<v1::GetMetadataAllocatedRequest>(message)?.snapshot_id)
        }
        "GetMetadataDelta" => {
            of_snapshot(&read::<v1::GetMetadataDeltaRequest>(message)?.target_snapshot_id)
        }
        _ => None,
    }
}

/// csi.v0 has no topology and no sources.
fn v0_controller(method: &str, message: &[u8]) -> Option<Scope> {
    match method {
        "CreateVolume" => {
            let request = read::<v0::CreateVolumeRequest>(message)?;
            Some(Scope::Volume(Box::new(Creation {
                name: request.name,
                source: None,
                topology: None,
                capacity: v1::GetCapacityRequest {
                    parameters: request.parameters,
                    ..Default::default()
                },
            })))
        }
        "DeleteVolume" => of_volume(&read::<v0::DeleteVolumeRequest>(message)?.volume_id),
        "ControllerPublishVolume" => {
            of_volume(&read::<v0::ControllerPublishVolumeRequest>(message)?.volume_id)
        }
        "ControllerUnpublishVolume" => {
            of_volume(&read::<v0::ControllerUnpublishVolumeRequest>(message)?.volume_id)
        }
        "ValidateVolumeCapabilities" => {
            of_volume(&read::<v0::ValidateVolumeCapabilitiesRequest>(message)?.volume_id)
        }
        "ListVolumes" | "GetCapacity" => Some(Scope::Everywhere),
        _ => None,
    }
}

fn volume_groups(method: &str, message: &[u8]) -> Option<Scope> {
    match method {
        "CreateVolumeGroup" => {
            let request = read::<volumegroup::CreateVolumeGroupRequest>(message)?;
            let pools = match request.volume_ids.as_slice() {
                [] => Vec::new(),
                ids => pools_of(ids)?,
            };
            Some(Scope::VolumeGroup { name: request.name, pools })
        }
        "ModifyVolumeGroupMembership" => {
            let request = read::<volumegroup::ModifyVolumeGroupMembershipRequest>(message)?;
            let group = request.volume_group_id.parse::<VolumeGroupId>().ok()?;
            let pool = |id: &String| Some(id.parse::<VolumeId>().ok()?.pool().clone());
            let members = request.volume_ids.iter().filter_map(pool).collect();
            Some(Scope::Membership { pool: group.pool().clone(), members })
        }
        "DeleteVolumeGroup" => of_volume_group(
            &read::<volumegroup::DeleteVolumeGroupRequest>(message)?.volume_group_id,
        ),
        "ControllerGetVolumeGroup" => of_volume_group(
            &read::<volumegroup::ControllerGetVolumeGroupRequest>(message)?.volume_group_id,
        ),
        "ListVolumeGroups" => Some(Scope::Everywhere),
        _ => None,
    }
}

fn reclaim_space(method: &str, message: &[u8]) -> Option<Scope> {
    match method {
        "ControllerReclaimSpace" => {
            of_volume(&read::<reclaimspace::ControllerReclaimSpaceRequest>(message)?.volume_id)
        }
        _ => None,
    }
}

fn read<M: Message + Default>(message: &[u8]) -> Option<M> {
    M::decode(message).ok()
}

fn of_volume(id: &str) -> Option<Scope> {
    Some(Scope::Pool(id.parse::<VolumeId>().ok()?.pool().clone()))
}

/// None of an empty list, or one that holds something else.
fn pools_of(ids: &[String]) -> Option<Vec<PoolId>> {
    let pool = |id: &String| Some(id.parse::<VolumeId>().ok()?.pool().clone());
    let mut pools = ids.iter().map(pool).collect::<Option<Vec<_>>>()?;
    pools.sort();
    pools.dedup();
    Some(pools).filter(|pools| !pools.is_empty())
}

fn of_snapshot(id: &str) -> Option<Scope> {
    Some(Scope::Pool(id.parse::<SnapshotId>().ok()?.pool().clone()))
}

fn of_volume_group(id: &str) -> Option<Scope> {
    Some(Scope::Pool(id.parse::<VolumeGroupId>().ok()?.pool().clone()))
}
