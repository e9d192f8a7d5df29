//! No message through which a secret could be formatted implements `Debug` (GEN-37, GEN-38, V0-13).

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::marker::PhantomData;

use protox::prost_reflect::FieldDescriptor;

use super::{
    assert_same, encryptionkeyrotation, has_option, pool, reclaimspace, v0, v1, volumegroup,
};
use v0::volume_capability as v0_volume_capability;
use v1::node_get_storage_health_response as v1_storage_health;
use v1::validate_volume_capabilities_response as v1_validate_response;
use v1::volume_capability as v1_volume_capability;

struct Probe<T>(PhantomData<T>);

/// What `Probe<T>` says of a `T` for which the inherent constant below does not exist.
trait Otherwise {
    const HAS_DEBUG: bool = false;
}

impl<T> Otherwise for Probe<T> {}

impl<T: Debug> Probe<T> {
    const HAS_DEBUG: bool = true;
}

macro_rules! has_debug {
    ($type:ty) => {
        <Probe<$type>>::HAS_DEBUG
    };
}

/// Pairs each message's protobuf name with whether its Rust type has `Debug`.
macro_rules! messages {
    ($($package:literal $module:ident { $($message:ident),* $(,)? })*) => {
        [$($((
            concat!($package, ".", stringify!($message)),
            has_debug!($module::$message),
        ),)*)*]
    };
}

const SENSITIVE: [(&str, bool); 47] = messages! {
    "csi.v1" v1 {
        VolumeCapability,
        CreateVolumeRequest,
        DeleteVolumeRequest,
        ControllerPublishVolumeRequest,
        ControllerUnpublishVolumeRequest,
        ValidateVolumeCapabilitiesRequest,
        ValidateVolumeCapabilitiesResponse,
        GetCapacityRequest,
        CreateSnapshotRequest,
        DeleteSnapshotRequest,
        ListSnapshotsRequest,
        GetSnapshotRequest,
        ControllerExpandVolumeRequest,
        ControllerModifyVolumeRequest,
        CreateVolumeGroupSnapshotRequest,
        DeleteVolumeGroupSnapshotRequest,
        GetVolumeGroupSnapshotRequest,
        GetMetadataAllocatedRequest,
        GetMetadataDeltaRequest,
        NodeStageVolumeRequest,
        NodePublishVolumeRequest,
        NodeExpandVolumeRequest,
        ControllerListVolumeHealthRequest,
        ControllerGetVolumeHealthRequest,
        NodeGetStorageHealthRequest,
        NodeGetStorageHealthResponse,
    }
    "csi.v1.NodeGetStorageHealthResponse" v1_storage_health { StorageBackendHealth }
    "csi.v1.VolumeCapability" v1_volume_capability { MountVolume }
    "csi.v1.ValidateVolumeCapabilitiesResponse" v1_validate_response { Confirmed }
    "csi.v0" v0 {
        VolumeCapability,
        CreateVolumeRequest,
        DeleteVolumeRequest,
        ControllerPublishVolumeRequest,
        ControllerUnpublishVolumeRequest,
        ValidateVolumeCapabilitiesRequest,
        GetCapacityRequest,
        NodeStageVolumeRequest,
        NodePublishVolumeRequest,
    }
    "csi.v0.VolumeCapability" v0_volume_capability { MountVolume }
    "volumegroup" volumegroup {
        CreateVolumeGroupRequest,
        ModifyVolumeGroupMembershipRequest,
        DeleteVolumeGroupRequest,
        ListVolumeGroupsRequest,
        ControllerGetVolumeGroupRequest,
    }
    "reclaimspace" reclaimspace { ControllerReclaimSpaceRequest, NodeReclaimSpaceRequest }
    "encryptionkeyrotation" encryptionkeyrotation { EncryptionKeyRotateRequest }
};

#[test]
fn sensitive_messages_have_no_debug() {
    for (message, has_debug) in SENSITIVE {
        assert!(!has_debug, "{message} implements Debug");
    }
    let around_them = [
        has_debug!(v1_volume_capability::AccessType),
        has_debug!(v0_volume_capability::AccessType),
        has_debug!(tonic::Request<v1::NodeStageVolumeRequest>),
    ];
    assert_eq!(around_them, [false; 3]);
}

#[test]
fn the_list_of_sensitive_messages_is_complete() {
    let pool = pool();
    let is_sensitive = |field: &FieldDescriptor| {
        has_option(&pool, &field.options(), "csi.v1.csi_secret")
            || field.name().ends_with("secrets")
            || field.name() == "mount_flags"
    };
    // No message of these interfaces nests anything sensitive deeper than this.
    const DEPTH: usize = 4;
    let mut found: BTreeSet<String> = BTreeSet::new();
    for _ in 0..DEPTH {
        for message in pool.all_messages() {
            let holds_found = |field: &FieldDescriptor| {
                field.kind().as_message().is_some_and(|inner| found.contains(inner.full_name()))
            };
            if message.fields().any(|field| is_sensitive(&field) || holds_found(&field)) {
                found.insert(message.full_name().to_owned());
            }
        }
    }
    assert_same(&found, &SENSITIVE.map(|(message, _)| message));
}

/// Also shows that the probe can say yes.
#[test]
fn harmless_messages_keep_their_debug() {
    let harmless = [
        has_debug!(v1::CreateVolumeResponse),
        has_debug!(v1::Topology),
        has_debug!(v1::VolumeContentSource),
        has_debug!(v1_volume_capability::AccessMode),
        has_debug!(v1_volume_capability::access_mode::Mode),
        has_debug!(v0_volume_capability::access_mode::Mode),
        has_debug!(volumegroup::VolumeGroup),
    ];
    assert_eq!(harmless, [true; 7]);
}
