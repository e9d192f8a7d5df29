//! csi.v1.Controller: making, deleting, growing and changing volumes here, other calls in the files below.
//! The table at the end says which calls there are.

mod health;
mod inspection;
mod publication;
mod snapshots;
mod validation;

use std::sync::Arc;

use orlop_engine::Engine;
use orlop_engine::request::CreateVolume;
use orlop_model::Result;

use super::{given, note_name, note_volume, unary_calls};
use crate::executor::{Executor, Subject};
use crate::features::Features;
use crate::name_holds::take_held;
use crate::proto::csi::v1;
use crate::{parse, reply};

pub(crate) struct Controller {
    executor: Arc<Executor>,
    features: Arc<Features>,
}

impl Controller {
    pub(crate) fn new(executor: Arc<Executor>, features: Arc<Features>) -> Self {
        Self { executor, features }
    }

    pub(super) async fn create_volume(
        &self,
        request: v1::CreateVolumeRequest,
    ) -> Result<v1::CreateVolumeResponse> {
        note_name("volume_name", &request.name);
        let hold = take_held();
        let wanted = parse_creation(request, &self.features)?;
        let home = self.executor.home_of(&wanted).await?;
        let subject = home.clone().map_or(Subject::Any, Subject::Pool);
        let create = move |engine: &Engine| engine.create_volume_from(&wanted, home.as_ref(), hold);
        let made = self.executor.run(subject, create).await?;
        note_volume(&made.record.id);
        Ok(v1::CreateVolumeResponse { volume: Some(reply::volume(&made)) })
    }

    pub(super) async fn delete_volume(
        &self,
        request: v1::DeleteVolumeRequest,
    ) -> Result<v1::DeleteVolumeResponse> {
        note_volume(&request.volume_id);
        parse::require([("volume_id", !request.volume_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        if let Some(id) = parse::issued_volume("volume_id", &request.volume_id)? {
            let home = Subject::Pool(id.pool().clone());
            self.executor.run(home, move |engine| engine.delete_volume(&id)).await?;
        }
        Ok(v1::DeleteVolumeResponse {})
    }

    async fn controller_expand_volume(
        &self,
        request: v1::ControllerExpandVolumeRequest,
    ) -> Result<v1::ControllerExpandVolumeResponse> {
        note_volume(&request.volume_id);
        parse::require([
            ("volume_id", !request.volume_id.is_empty()),
            ("capacity_range", request.capacity_range.is_some()),
        ])?;
        parse::discard_secrets(request.secrets)?;
        let range = parse::capacity_range(request.capacity_range)?;
        let range = given("capacity_range", range)?;
        let capability = request.volume_capability.map(parse::capability).transpose()?;
        let id = parse::volume_id("volume_id", &request.volume_id)?;
        let expanded = self
            .executor
            .run(Subject::Pool(id.pool().clone()), move |engine| {
                engine.expand_volume(&id, &range, capability.as_ref())
            })
            .await?;
        Ok(v1::ControllerExpandVolumeResponse {
            capacity_bytes: reply::bytes(expanded.capacity_bytes),
            node_expansion_required: expanded.node_expansion_required,
        })
    }

    async fn controller_modify_volume(
        &self,
        request: v1::ControllerModifyVolumeRequest,
    ) -> Result<v1::ControllerModifyVolumeResponse> {
        note_volume(&request.volume_id);
        self.features.require_limits("ControllerModifyVolume")?;
        parse::require([
            ("volume_id", !request.volume_id.is_empty()),
            ("mutable_parameters", !request.mutable_parameters.is_empty()),
        ])?;
        parse::discard_secrets(request.secrets)?;
        let change = parse::mutable_parameters(&request.mutable_parameters, &self.features)?;
        let id = parse::volume_id("volume_id", &request.volume_id)?;
        let home = Subject::Pool(id.pool().clone());
        self.executor.run(home, move |engine| engine.modify_volume(&id, &change)).await?;
        Ok(v1::ControllerModifyVolumeResponse {})
    }
}

fn parse_creation(request: v1::CreateVolumeRequest, features: &Features) -> Result<CreateVolume> {
    parse::require([
        ("name", !request.name.is_empty()),
        ("volume_capabilities", !request.volume_capabilities.is_empty()),
    ])?;
    parse::discard_secrets(request.secrets)?;
    let (parameters, limits) = parse::volume_parameters(&request.parameters, features)?;
    let mutable = parse::mutable_parameters(&request.mutable_parameters, features)?;
    Ok(CreateVolume {
        name: request.name.parse()?,
        range: parse::capacity_range(request.capacity_range)?,
        capabilities: parse::capability_set(request.volume_capabilities)?,
        parameters,
        // CV-19
        limits: limits.then(mutable),
        topology: parse::topology_requirement(request.accessibility_requirements)?,
        // Last, as it can tell that something does not exist.
        source: parse::content_source(request.volume_content_source)?,
    })
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
        get_capacity(GetCapacityRequest) -> GetCapacityResponse;
        controller_expand_volume(ControllerExpandVolumeRequest) -> ControllerExpandVolumeResponse;
        delete_snapshot(DeleteSnapshotRequest) -> DeleteSnapshotResponse;
        list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse;
        controller_list_volume_health(ControllerListVolumeHealthRequest)
            -> ControllerListVolumeHealthResponse;
        controller_get_volume_health(ControllerGetVolumeHealthRequest)
            -> ControllerGetVolumeHealthResponse;
    } and metadata {
        controller_get_volume(ControllerGetVolumeRequest) -> ControllerGetVolumeResponse;
        create_snapshot(CreateSnapshotRequest) -> CreateSnapshotResponse;
        get_snapshot(GetSnapshotRequest) -> GetSnapshotResponse;
    }
}
