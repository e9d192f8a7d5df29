//! Facts of the published interfaces, those above all that are easy to get wrong: where the
//! versions differ, where numbers do not follow the order of their neighbours.

pub(super) const FIELDS: [(&str, &[&str]); 17] = [
    (
        "csi.v1.CreateVolumeRequest",
        &[
            "1 name",
            "2 capacity_range",
            "3 volume_capabilities",
            "4 parameters",
            "5 secrets",
            "6 volume_content_source",
            "7 accessibility_requirements",
            "8 mutable_parameters",
        ],
    ),
    // The capacity comes before the id, unlike in every request.
    (
        "csi.v1.Volume",
        &[
            "1 capacity_bytes",
            "2 volume_id",
            "3 volume_context",
            "4 content_source",
            "5 accessible_topology",
        ],
    ),
    (
        "csi.v1.Snapshot",
        &[
            "1 size_bytes",
            "2 snapshot_id",
            "3 source_volume_id",
            "4 creation_time",
            "5 ready_to_use",
            "6 group_snapshot_id",
        ],
    ),
    // v0 has the capabilities before the attributes, v1 the context before the capabilities.
    (
        "csi.v1.ValidateVolumeCapabilitiesRequest",
        &[
            "1 volume_id",
            "2 volume_context",
            "3 volume_capabilities",
            "4 parameters",
            "5 secrets",
            "6 mutable_parameters",
        ],
    ),
    (
        "csi.v0.ValidateVolumeCapabilitiesRequest",
        &[
            "1 volume_id",
            "2 volume_capabilities",
            "3 volume_attributes",
        ],
    ),
    (
        "csi.v1.ValidateVolumeCapabilitiesResponse",
        &["1 confirmed", "2 message"],
    ),
    (
        "csi.v0.ValidateVolumeCapabilitiesResponse",
        &["1 supported", "2 message"],
    ),
    ("csi.v1.GetPluginCapabilitiesResponse", &["1 capabilities"]),
    ("csi.v0.GetPluginCapabilitiesResponse", &["2 capabilities"]),
    (
        "csi.v1.ControllerGetCapabilitiesResponse",
        &["1 capabilities"],
    ),
    (
        "csi.v0.ControllerGetCapabilitiesResponse",
        &["2 capabilities"],
    ),
    ("csi.v0.NodeGetCapabilitiesResponse", &["1 capabilities"]),
    ("csi.v0.ProbeResponse", &[]),
    (
        "csi.v0.Volume",
        &["1 capacity_bytes", "2 id", "3 attributes"],
    ),
    (
        "csi.v0.NodePublishVolumeRequest",
        &[
            "1 volume_id",
            "2 publish_info",
            "3 staging_target_path",
            "4 target_path",
            "5 volume_capability",
            "6 readonly",
            "7 node_publish_secrets",
            "8 volume_attributes",
        ],
    ),
    (
        "volumegroup.CreateVolumeGroupRequest",
        &["1 name", "2 parameters", "3 secrets", "4 volume_ids"],
    ),
    (
        "volumegroup.ModifyVolumeGroupMembershipRequest",
        &[
            "1 volume_group_id",
            "2 volume_ids",
            "3 secrets",
            "4 parameters",
        ],
    ),
];

pub(super) const ENUMS: [(&str, &[&str]); 7] = [
    (
        "csi.v1.VolumeCapability.AccessMode.Mode",
        &[
            "0 UNKNOWN",
            "1 SINGLE_NODE_WRITER",
            "2 SINGLE_NODE_READER_ONLY",
            "3 MULTI_NODE_READER_ONLY",
            "4 MULTI_NODE_SINGLE_WRITER",
            "5 MULTI_NODE_MULTI_WRITER",
            "6 SINGLE_NODE_SINGLE_WRITER",
            "7 SINGLE_NODE_MULTI_WRITER",
        ],
    ),
    (
        "csi.v1.ControllerServiceCapability.RPC.Type",
        &[
            "0 UNKNOWN",
            "1 CREATE_DELETE_VOLUME",
            "2 PUBLISH_UNPUBLISH_VOLUME",
            "3 LIST_VOLUMES",
            "4 GET_CAPACITY",
            "5 CREATE_DELETE_SNAPSHOT",
            "6 LIST_SNAPSHOTS",
            "7 CLONE_VOLUME",
            "8 PUBLISH_READONLY",
            "9 EXPAND_VOLUME",
            "10 LIST_VOLUMES_PUBLISHED_NODES",
            "11 VOLUME_CONDITION",
            "12 GET_VOLUME",
            "13 SINGLE_NODE_MULTI_WRITER",
            "14 MODIFY_VOLUME",
            "15 GET_SNAPSHOT",
        ],
    ),
    (
        "csi.v1.NodeServiceCapability.RPC.Type",
        &[
            "0 UNKNOWN",
            "1 STAGE_UNSTAGE_VOLUME",
            "2 GET_VOLUME_STATS",
            "3 EXPAND_VOLUME",
            "4 VOLUME_CONDITION",
            "5 SINGLE_NODE_MULTI_WRITER",
            "6 VOLUME_MOUNT_GROUP",
        ],
    ),
    // Online and offline change places between the two interfaces.
    (
        "csi.v1.PluginCapability.VolumeExpansion.Type",
        &["0 UNKNOWN", "1 ONLINE", "2 OFFLINE"],
    ),
    (
        "identity.Capability.ReclaimSpace.Type",
        &["0 UNKNOWN", "1 OFFLINE", "2 ONLINE"],
    ),
    (
        "csi.v1.BlockMetadataType",
        &["0 UNKNOWN", "1 FIXED_LENGTH", "2 VARIABLE_LENGTH"],
    ),
    (
        "identity.Capability.VolumeGroup.Type",
        &[
            "0 UNKNOWN",
            "1 VOLUME_GROUP",
            "2 LIMIT_VOLUME_TO_ONE_VOLUME_GROUP",
            "3 DO_NOT_ALLOW_VG_TO_DELETE_VOLUMES",
            "4 MODIFY_VOLUME_GROUP",
            "5 GET_VOLUME_GROUP",
            "6 LIST_VOLUME_GROUPS",
        ],
    ),
];

/// With the number of methods of each.
pub(super) const SERVICES: [&str; 12] = [
    "csi.v1.Identity 3",
    "csi.v1.Controller 15",
    "csi.v1.GroupController 4",
    "csi.v1.SnapshotMetadata 2",
    "csi.v1.Node 8",
    "csi.v0.Identity 3",
    "csi.v0.Controller 8",
    "csi.v0.Node 6",
    "identity.Identity 3",
    "volumegroup.Controller 5",
    "reclaimspace.ReclaimSpaceController 1",
    "reclaimspace.ReclaimSpaceNode 1",
];

pub(super) const OPTIONS: [&str; 7] = [
    "FieldOptions 1059 csi.v1.csi_secret",
    "FieldOptions 1060 csi.v1.alpha_field",
    "ServiceOptions 1060 csi.v1.alpha_service",
    "MethodOptions 1060 csi.v1.alpha_method",
    "MessageOptions 1060 csi.v1.alpha_message",
    "EnumOptions 1060 csi.v1.alpha_enum",
    "EnumValueOptions 1060 csi.v1.alpha_enum_value",
];

pub(super) const SECRET_FIELDS: [&str; 26] = [
    "5 csi.v1.CreateVolumeRequest.secrets",
    "2 csi.v1.DeleteVolumeRequest.secrets",
    "5 csi.v1.ControllerPublishVolumeRequest.secrets",
    "3 csi.v1.ControllerUnpublishVolumeRequest.secrets",
    "5 csi.v1.ValidateVolumeCapabilitiesRequest.secrets",
    "2 csi.v1.ControllerModifyVolumeRequest.secrets",
    "3 csi.v1.CreateSnapshotRequest.secrets",
    "2 csi.v1.DeleteSnapshotRequest.secrets",
    "5 csi.v1.ListSnapshotsRequest.secrets",
    "2 csi.v1.GetSnapshotRequest.secrets",
    "3 csi.v1.ControllerExpandVolumeRequest.secrets",
    "5 csi.v1.NodeStageVolumeRequest.secrets",
    "7 csi.v1.NodePublishVolumeRequest.secrets",
    "6 csi.v1.NodeExpandVolumeRequest.secrets",
    "3 csi.v1.CreateVolumeGroupSnapshotRequest.secrets",
    "3 csi.v1.DeleteVolumeGroupSnapshotRequest.secrets",
    "3 csi.v1.GetVolumeGroupSnapshotRequest.secrets",
    "4 csi.v1.GetMetadataAllocatedRequest.secrets",
    "5 csi.v1.GetMetadataDeltaRequest.secrets",
    "3 volumegroup.CreateVolumeGroupRequest.secrets",
    "3 volumegroup.ModifyVolumeGroupMembershipRequest.secrets",
    "2 volumegroup.DeleteVolumeGroupRequest.secrets",
    "3 volumegroup.ListVolumeGroupsRequest.secrets",
    "2 volumegroup.ControllerGetVolumeGroupRequest.secrets",
    "3 reclaimspace.ControllerReclaimSpaceRequest.secrets",
    "5 reclaimspace.NodeReclaimSpaceRequest.secrets",
];

pub(super) const ALPHA: [&str; 21] = [
    "csi.v1.SnapshotMetadata",
    "csi.v1.Controller.GetSnapshot",
    "csi.v1.Controller.ControllerGetVolume",
    "csi.v1.GetSnapshotRequest",
    "csi.v1.GetSnapshotResponse",
    "csi.v1.ControllerGetVolumeRequest",
    "csi.v1.ControllerGetVolumeResponse",
    "csi.v1.VolumeCondition",
    "csi.v1.ListVolumesResponse.VolumeStatus.volume_condition",
    "csi.v1.NodeGetVolumeStatsResponse.volume_condition",
    "csi.v1.GetCapacityResponse.minimum_volume_size",
    "csi.v1.NodeExpandVolumeRequest.secrets",
    "csi.v1.PluginCapability.Service.Type.SNAPSHOT_METADATA_SERVICE",
    "csi.v1.VolumeCapability.AccessMode.Mode.SINGLE_NODE_SINGLE_WRITER",
    "csi.v1.VolumeCapability.AccessMode.Mode.SINGLE_NODE_MULTI_WRITER",
    "csi.v1.ControllerServiceCapability.RPC.Type.VOLUME_CONDITION",
    "csi.v1.ControllerServiceCapability.RPC.Type.GET_VOLUME",
    "csi.v1.ControllerServiceCapability.RPC.Type.SINGLE_NODE_MULTI_WRITER",
    "csi.v1.ControllerServiceCapability.RPC.Type.GET_SNAPSHOT",
    "csi.v1.NodeServiceCapability.RPC.Type.VOLUME_CONDITION",
    "csi.v1.NodeServiceCapability.RPC.Type.SINGLE_NODE_MULTI_WRITER",
];
