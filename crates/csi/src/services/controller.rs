//! csi.v1.Controller. The table at the end says which calls there are; the files below say what each of
//! them reads from its request and what it answers.

mod inspection;
mod publication;
mod snapshots;
mod validation;
mod volumes;

use std::sync::Arc;

use orlop_model::Result;

use super::unary_calls;
use crate::executor::Executor;
use crate::features::Features;
use crate::proto::csi::v1;
use crate::proto::csi::v1::controller_service_capability::{self, Rpc, rpc};

const ALWAYS: [rpc::Type; 11] = [
    rpc::Type::CreateDeleteVolume,
    rpc::Type::ListVolumes,
    rpc::Type::GetCapacity,
    rpc::Type::CreateDeleteSnapshot,
    rpc::Type::ListSnapshots,
    rpc::Type::CloneVolume,
    rpc::Type::ExpandVolume,
    rpc::Type::VolumeCondition,
    rpc::Type::GetVolume,
    rpc::Type::SingleNodeMultiWriter,
    rpc::Type::GetSnapshot,
];

const WITH_ATTACH: [rpc::Type; 3] = [
    rpc::Type::PublishUnpublishVolume,
    rpc::Type::PublishReadonly,
    rpc::Type::ListVolumesPublishedNodes,
];

const WITH_LIMITS: [rpc::Type; 1] = [rpc::Type::ModifyVolume];

pub(crate) struct Controller {
    executor: Arc<Executor>,
    features: Arc<Features>,
}

impl Controller {
    pub(crate) fn new(executor: Arc<Executor>, features: Arc<Features>) -> Self {
        Self { executor, features }
    }

    /// Exactly what works (CC-02).
    async fn controller_get_capabilities(
        &self,
        _: v1::ControllerGetCapabilitiesRequest,
    ) -> Result<v1::ControllerGetCapabilitiesResponse> {
        let capability = |r#type: rpc::Type| v1::ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(Rpc { r#type: r#type.into() })),
        };
        Ok(v1::ControllerGetCapabilitiesResponse {
            capabilities: offered(&self.features).map(capability).collect(),
        })
    }
}

fn offered(features: &Features) -> impl Iterator<Item = rpc::Type> {
    let when = |condition: bool, types: &'static [rpc::Type]| if condition { types } else { &[] };
    ALWAYS
        .iter()
        .chain(when(features.attach, &WITH_ATTACH))
        .chain(when(features.limits, &WITH_LIMITS))
        .copied()
}

unary_calls! {
    impl v1::controller_server::Controller, for Controller, with v1 {
        controller_get_capabilities(ControllerGetCapabilitiesRequest)
            -> ControllerGetCapabilitiesResponse;
        create_volume(CreateVolumeRequest) -> CreateVolumeResponse;
        delete_volume(DeleteVolumeRequest) -> DeleteVolumeResponse;
        controller_modify_volume(ControllerModifyVolumeRequest) -> ControllerModifyVolumeResponse;
        controller_publish_volume(ControllerPublishVolumeRequest)
            -> ControllerPublishVolumeResponse;
        controller_unpublish_volume(ControllerUnpublishVolumeRequest)
            -> ControllerUnpublishVolumeResponse;
        validate_volume_capabilities(ValidateVolumeCapabilitiesRequest)
            -> ValidateVolumeCapabilitiesResponse;
        list_volumes(ListVolumesRequest) -> ListVolumesResponse;
        controller_get_volume(ControllerGetVolumeRequest) -> ControllerGetVolumeResponse;
        get_capacity(GetCapacityRequest) -> GetCapacityResponse;
        controller_expand_volume(ControllerExpandVolumeRequest) -> ControllerExpandVolumeResponse;
        delete_snapshot(DeleteSnapshotRequest) -> DeleteSnapshotResponse;
        list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse;
        get_snapshot(GetSnapshotRequest) -> GetSnapshotResponse;
    } and metadata {
        create_snapshot(CreateSnapshotRequest) -> CreateSnapshotResponse;
    }
}
