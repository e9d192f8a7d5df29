//! csi.v0.Controller.

use std::sync::Arc;

use orlop_engine::request::VolumeStatus;
use orlop_model::{NodeId, Result};
use tonic::Request;

use super::{NO_SECRETS, answer_v0, conversion};
use crate::executor::{Executor, Subject};
use crate::features::Features;
use crate::parse;
use crate::proto::csi::v0::controller_service_capability::{self, Rpc, rpc};
use crate::proto::csi::{v0, v1};
use crate::services::{Answer, Controller, answer, note_volume};

pub(crate) struct V0Controller {
    executor: Arc<Executor>,
    features: Arc<Features>,
    v1: Controller,
}

impl V0Controller {
    pub(crate) fn new(executor: Arc<Executor>, features: Arc<Features>) -> Self {
        let v1 = Controller::new(Arc::clone(&executor), Arc::clone(&features));
        Self { executor, features, v1 }
    }

    /// V0-22
    fn capabilities(&self) -> v0::ControllerGetCapabilitiesResponse {
        let attach = self.features.attach.then_some(rpc::Type::PublishUnpublishVolume);
        let always =
            [rpc::Type::CreateDeleteVolume, rpc::Type::ListVolumes, rpc::Type::GetCapacity];
        let capability = |r#type: rpc::Type| v0::ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(Rpc { r#type: r#type.into() })),
        };
        v0::ControllerGetCapabilitiesResponse {
            capabilities: always.into_iter().chain(attach).map(capability).collect(),
        }
    }

    async fn create(&self, request: v0::CreateVolumeRequest) -> Result<v0::CreateVolumeResponse> {
        let request = v1::CreateVolumeRequest {
            name: request.name,
            capacity_range: request.capacity_range.map(conversion::range),
            volume_capabilities: conversion::capabilities(request.volume_capabilities)?,
            parameters: request.parameters,
            secrets: request.controller_create_secrets,
            ..Default::default()
        };
        let made = self.v1.create_volume(request).await?;
        Ok(v0::CreateVolumeResponse { volume: made.volume.map(conversion::volume) })
    }

    async fn delete(&self, request: v0::DeleteVolumeRequest) -> Result<v0::DeleteVolumeResponse> {
        let request = v1::DeleteVolumeRequest {
            volume_id: request.volume_id,
            secrets: request.controller_delete_secrets,
        };
        self.v1.delete_volume(request).await?;
        Ok(v0::DeleteVolumeResponse {})
    }

    async fn publish(
        &self,
        request: v0::ControllerPublishVolumeRequest,
    ) -> Result<v0::ControllerPublishVolumeResponse> {
        parse::check_length("node_id", &request.node_id)?;
        let request = v1::ControllerPublishVolumeRequest {
            volume_id: request.volume_id,
            node_id: request.node_id,
            volume_capability: request.volume_capability.map(conversion::capability).transpose()?,
            readonly: request.readonly,
            secrets: request.controller_publish_secrets,
            volume_context: request.volume_attributes,
        };
        let published = self.v1.controller_publish_volume(request).await?;
        Ok(v0::ControllerPublishVolumeResponse { publish_info: published.publish_context })
    }

    /// V0-36: a volume or a node that is not known is an error here, unlike in csi.v1.
    async fn unpublish(
        &self,
        request: v0::ControllerUnpublishVolumeRequest,
    ) -> Result<v0::ControllerUnpublishVolumeResponse> {
        note_volume(&request.volume_id);
        self.features.require_attach("ControllerUnpublishVolume")?;
        parse::require([("volume_id", !request.volume_id.is_empty())])?;
        parse::discard_secrets(request.controller_unpublish_secrets)?;
        parse::check_length("node_id", &request.node_id)?;
        let node = parse::optional_node(&request.node_id)?;
        let id = parse::volume_id("volume_id", &request.volume_id)?;
        self.executor
            .run(Subject::Pool(id.pool().clone()), move |engine| {
                let status = engine.volume_status(&id)?;
                if let Some(node) = node.as_ref().filter(|node| !is_published(&status, node)) {
                    engine.check_node_of(&id, node)?;
                }
                engine.controller_unpublish(&id, node.as_ref())
            })
            .await?;
        Ok(v0::ControllerUnpublishVolumeResponse {})
    }

    async fn validate(
        &self,
        request: v0::ValidateVolumeCapabilitiesRequest,
    ) -> Result<v0::ValidateVolumeCapabilitiesResponse> {
        let request = v1::ValidateVolumeCapabilitiesRequest {
            volume_id: request.volume_id,
            volume_context: request.volume_attributes,
            volume_capabilities: conversion::capabilities(request.volume_capabilities)?,
            ..Default::default()
        };
        let verdict = self.v1.validate_volume_capabilities(request).await?;
        Ok(v0::ValidateVolumeCapabilitiesResponse {
            supported: verdict.confirmed.is_some(),
            message: verdict.message,
        })
    }

    async fn list(&self, request: v0::ListVolumesRequest) -> Result<v0::ListVolumesResponse> {
        let request = v1::ListVolumesRequest {
            max_entries: request.max_entries,
            starting_token: request.starting_token,
        };
        let page = self.v1.list_volumes(request).await?;
        let entry = |entry: v1::list_volumes_response::Entry| v0::list_volumes_response::Entry {
            volume: entry.volume.map(conversion::volume),
        };
        Ok(v0::ListVolumesResponse {
            entries: page.entries.into_iter().map(entry).collect(),
            next_token: page.next_token,
        })
    }

    async fn capacity(&self, request: v0::GetCapacityRequest) -> Result<v0::GetCapacityResponse> {
        let request = v1::GetCapacityRequest {
            volume_capabilities: conversion::capabilities(request.volume_capabilities)?,
            parameters: request.parameters,
            ..Default::default()
        };
        let capacity = self.v1.get_capacity(request).await?;
        Ok(v0::GetCapacityResponse { available_capacity: capacity.available_capacity })
    }
}

/// A node that the volume's record names was known once, and that will do to leave it. Of a volume
/// whose record cannot be read nothing is known.
fn is_published(status: &VolumeStatus, node: &NodeId) -> bool {
    status.volume.as_ref().is_none_or(|volume| volume.record.published.contains_key(node))
}

#[tonic::async_trait]
impl v0::controller_server::Controller for V0Controller {
    async fn controller_get_capabilities(
        &self,
        _: Request<v0::ControllerGetCapabilitiesRequest>,
    ) -> Answer<v0::ControllerGetCapabilitiesResponse> {
        answer(Ok(self.capabilities()))
    }

    async fn create_volume(
        &self,
        request: Request<v0::CreateVolumeRequest>,
    ) -> Answer<v0::CreateVolumeResponse> {
        answer_v0(self.create(request.into_inner()).await, "controller_create_secrets")
    }

    async fn delete_volume(
        &self,
        request: Request<v0::DeleteVolumeRequest>,
    ) -> Answer<v0::DeleteVolumeResponse> {
        answer_v0(self.delete(request.into_inner()).await, "controller_delete_secrets")
    }

    async fn controller_publish_volume(
        &self,
        request: Request<v0::ControllerPublishVolumeRequest>,
    ) -> Answer<v0::ControllerPublishVolumeResponse> {
        answer_v0(self.publish(request.into_inner()).await, "controller_publish_secrets")
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<v0::ControllerUnpublishVolumeRequest>,
    ) -> Answer<v0::ControllerUnpublishVolumeResponse> {
        answer_v0(self.unpublish(request.into_inner()).await, "controller_unpublish_secrets")
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<v0::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<v0::ValidateVolumeCapabilitiesResponse> {
        answer_v0(self.validate(request.into_inner()).await, NO_SECRETS)
    }

    async fn list_volumes(
        &self,
        request: Request<v0::ListVolumesRequest>,
    ) -> Answer<v0::ListVolumesResponse> {
        answer_v0(self.list(request.into_inner()).await, NO_SECRETS)
    }

    async fn get_capacity(
        &self,
        request: Request<v0::GetCapacityRequest>,
    ) -> Answer<v0::GetCapacityResponse> {
        answer_v0(self.capacity(request.into_inner()).await, NO_SECRETS)
    }
}
