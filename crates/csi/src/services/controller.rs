//! csi.v1.Controller. This file says which calls there are; the files below it say what each
//! of them reads from its request and what it answers.

mod capabilities;
mod capacity;
mod expansion;
mod listing;
mod publication;
mod snapshots;
mod validation;
mod volumes;

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{answer, answer_whole};
use crate::dispatch::Core;
use crate::offers::Offers;
use crate::proto::csi::v1;

type Answer<Reply> = std::result::Result<Response<Reply>, Status>;

pub(crate) struct Controller {
    core: Arc<Core>,
    offers: Arc<Offers>,
}

impl Controller {
    pub(crate) fn new(core: Arc<Core>, offers: Arc<Offers>) -> Self {
        Self { core, offers }
    }
}

#[tonic::async_trait]
impl v1::controller_server::Controller for Controller {
    async fn controller_get_capabilities(
        &self,
        _: Request<v1::ControllerGetCapabilitiesRequest>,
    ) -> Answer<v1::ControllerGetCapabilitiesResponse> {
        answer(Ok(self.capabilities()))
    }

    async fn create_volume(
        &self,
        request: Request<v1::CreateVolumeRequest>,
    ) -> Answer<v1::CreateVolumeResponse> {
        answer(self.create_volume(request.into_inner()).await)
    }

    async fn delete_volume(
        &self,
        request: Request<v1::DeleteVolumeRequest>,
    ) -> Answer<v1::DeleteVolumeResponse> {
        answer(self.delete_volume(request.into_inner()).await)
    }

    async fn controller_modify_volume(
        &self,
        request: Request<v1::ControllerModifyVolumeRequest>,
    ) -> Answer<v1::ControllerModifyVolumeResponse> {
        answer(self.modify_volume(request.into_inner()).await)
    }

    async fn controller_publish_volume(
        &self,
        request: Request<v1::ControllerPublishVolumeRequest>,
    ) -> Answer<v1::ControllerPublishVolumeResponse> {
        answer(self.publish_volume(request.into_inner()).await)
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<v1::ControllerUnpublishVolumeRequest>,
    ) -> Answer<v1::ControllerUnpublishVolumeResponse> {
        answer(self.unpublish_volume(request.into_inner()).await)
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<v1::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<v1::ValidateVolumeCapabilitiesResponse> {
        answer(self.validate(request.into_inner()).await)
    }

    async fn list_volumes(
        &self,
        request: Request<v1::ListVolumesRequest>,
    ) -> Answer<v1::ListVolumesResponse> {
        answer(self.list_volumes(request.into_inner()).await)
    }

    async fn controller_get_volume(
        &self,
        request: Request<v1::ControllerGetVolumeRequest>,
    ) -> Answer<v1::ControllerGetVolumeResponse> {
        answer(self.get_volume(request.into_inner()).await)
    }

    async fn get_capacity(
        &self,
        request: Request<v1::GetCapacityRequest>,
    ) -> Answer<v1::GetCapacityResponse> {
        answer(self.get_capacity(request.into_inner()).await)
    }

    async fn controller_expand_volume(
        &self,
        request: Request<v1::ControllerExpandVolumeRequest>,
    ) -> Answer<v1::ControllerExpandVolumeResponse> {
        answer(self.expand_volume(request.into_inner()).await)
    }

    async fn create_snapshot(
        &self,
        request: Request<v1::CreateSnapshotRequest>,
    ) -> Answer<v1::CreateSnapshotResponse> {
        answer_whole(self.create_snapshot(request.into_inner()).await)
    }

    async fn delete_snapshot(
        &self,
        request: Request<v1::DeleteSnapshotRequest>,
    ) -> Answer<v1::DeleteSnapshotResponse> {
        answer(self.delete_snapshot(request.into_inner()).await)
    }

    async fn list_snapshots(
        &self,
        request: Request<v1::ListSnapshotsRequest>,
    ) -> Answer<v1::ListSnapshotsResponse> {
        answer(self.list_snapshots(request.into_inner()).await)
    }

    async fn get_snapshot(
        &self,
        request: Request<v1::GetSnapshotRequest>,
    ) -> Answer<v1::GetSnapshotResponse> {
        answer(self.get_snapshot(request.into_inner()).await)
    }
}
