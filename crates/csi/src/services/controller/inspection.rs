//! ControllerGetCapabilities, ListVolumes, ControllerGetVolume and GetCapacity.

use orlop_engine::Engine;
use orlop_engine::request::{CapacityQuery, VolumeStatus};
use orlop_model::Result;
use tonic::Response;

use super::Controller;
use crate::executor::{Listed, Subject};
use crate::features::Features;
use crate::proto::csi::v1;
use crate::proto::csi::v1::controller_service_capability::{self, Rpc, rpc};
use crate::proto::csi::v1::{controller_get_volume_response, list_volumes_response};
use crate::services::note_volume;
use crate::{parse, reply};

const ALWAYS: [rpc::Type; 13] = [
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
    rpc::Type::GetVolumeHealth,
    rpc::Type::ListVolumeHealth,
];

const WITH_ATTACH: [rpc::Type; 3] = [
    rpc::Type::PublishUnpublishVolume,
    rpc::Type::PublishReadonly,
    rpc::Type::ListVolumesPublishedNodes,
];

const WITH_LIMITS: [rpc::Type; 1] = [rpc::Type::ModifyVolume];

impl Controller {
    /// Exactly what works (CC-02).
    pub(super) async fn controller_get_capabilities(
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

    pub(in crate::services) async fn list_volumes(
        &self,
        request: v1::ListVolumesRequest,
    ) -> Result<v1::ListVolumesResponse> {
        let max = parse::max_entries(request.max_entries)?;
        let after = parse::page_token(&request.starting_token)?;
        let list = move |engine: &Engine| engine.list_volumes(after.as_ref(), max);
        let Listed { page, permit: _permit } = self.executor.list(max, list).await?;
        let entry = |status: VolumeStatus| list_volumes_response::Entry {
            volume: Some(reply::status_volume(&status)),
            // Point 17 of docs/specification.md: always there, since it carries the condition.
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids: self.published_nodes(&status),
                volume_condition: Some(reply::condition(&status.condition)),
            }),
        };
        Ok(v1::ListVolumesResponse {
            entries: page.entries.into_iter().map(entry).collect(),
            next_token: page.next.map(String::from).unwrap_or_default(),
        })
    }

    pub(super) async fn controller_get_volume(
        &self,
        request: v1::ControllerGetVolumeRequest,
    ) -> Result<Response<v1::ControllerGetVolumeResponse>> {
        note_volume(&request.volume_id);
        parse::require([("volume_id", !request.volume_id.is_empty())])?;
        let id = parse::volume_id("volume_id", &request.volume_id)?;
        let home = Subject::Pool(id.pool().clone());
        let status = self.executor.run(home, move |engine| engine.volume_status(&id)).await?;
        let reply = v1::ControllerGetVolumeResponse {
            volume: Some(reply::status_volume(&status)),
            status: Some(controller_get_volume_response::VolumeStatus {
                published_node_ids: self.published_nodes(&status),
                volume_condition: Some(reply::condition(&status.condition)),
            }),
        };
        let record = status.volume.as_ref().map(|known| &known.record);
        Ok(reply::with_volume_details(reply, record))
    }

    pub(in crate::services) async fn get_capacity(
        &self,
        request: v1::GetCapacityRequest,
    ) -> Result<v1::GetCapacityResponse> {
        let query = parse_query(request)?;
        let capacity =
            self.executor.run(Subject::Any, move |engine| engine.capacity(&query)).await?;
        Ok(v1::GetCapacityResponse {
            available_capacity: reply::bytes(capacity.available),
            maximum_volume_size: Some(reply::bytes(capacity.maximum_volume)),
            minimum_volume_size: Some(reply::bytes(capacity.minimum_volume)),
        })
    }

    /// Only with LIST_VOLUMES_PUBLISHED_NODES (LV-13, GV-06).
    fn published_nodes(&self, status: &VolumeStatus) -> Vec<String> {
        if self.features.attach { reply::published_nodes(status) } else { Vec::new() }
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

fn parse_query(request: v1::GetCapacityRequest) -> Result<CapacityQuery> {
    let topology = request
        .accessible_topology
        .map(|topology| parse::topology("accessible_topology", topology))
        .transpose()?;
    let capabilities = Some(request.volume_capabilities)
        .filter(|capabilities| !capabilities.is_empty())
        .map(parse::capability_set)
        .transpose()?;
    let parameters = parse::capacity_parameters(&request.parameters)?;
    Ok(CapacityQuery { capabilities, parameters, topology })
}
