//! csi.v0.Node.

use std::sync::Arc;

use orlop_engine::request::VolumeRef;
use orlop_model::Result;
use tonic::Request;

use super::{NO_SECRETS, answer_v0, conversion};
use crate::executor::{Executor, Subject};
use crate::features::Features;
use crate::parse;
use crate::proto::csi::v0::node_service_capability::{self, Rpc, rpc};
use crate::proto::csi::{v0, v1};
use crate::services::node::{parse_publish, parse_stage};
use crate::services::{Answer, answer, note_volume};

pub(crate) struct V0Node {
    executor: Arc<Executor>,
    features: Arc<Features>,
}

impl V0Node {
    pub(crate) fn new(executor: Arc<Executor>, features: Arc<Features>) -> Self {
        Self { executor, features }
    }

    async fn stage(
        &self,
        request: v0::NodeStageVolumeRequest,
    ) -> Result<v0::NodeStageVolumeResponse> {
        note_volume(&request.volume_id);
        parse::check_length("staging_target_path", &request.staging_target_path)?;
        let request = v1::NodeStageVolumeRequest {
            volume_id: request.volume_id,
            publish_context: request.publish_info,
            staging_target_path: request.staging_target_path,
            volume_capability: request.volume_capability.map(conversion::capability).transpose()?,
            secrets: request.node_stage_secrets,
            volume_context: request.volume_attributes,
        };
        let wanted = parse_stage(request, &self.features)?;
        let home = Subject::Node(Some(wanted.volume.pool().clone()));
        self.executor.run(home, move |engine| engine.stage_volume(&wanted)).await?;
        Ok(v0::NodeStageVolumeResponse {})
    }

    async fn unstage(
        &self,
        request: v0::NodeUnstageVolumeRequest,
    ) -> Result<v0::NodeUnstageVolumeResponse> {
        note_volume(&request.volume_id);
        parse::require([
            ("volume_id", !request.volume_id.is_empty()),
            ("staging_target_path", !request.staging_target_path.is_empty()),
        ])?;
        let path = conversion::path("staging_target_path", &request.staging_target_path)?;
        let volume = issued(&request.volume_id)?;
        self.executor
            .run(Subject::node(&volume), move |engine| engine.unstage_volume(&volume, &path))
            .await?;
        Ok(v0::NodeUnstageVolumeResponse {})
    }

    async fn publish(
        &self,
        request: v0::NodePublishVolumeRequest,
    ) -> Result<v0::NodePublishVolumeResponse> {
        note_volume(&request.volume_id);
        parse::check_length("staging_target_path", &request.staging_target_path)?;
        parse::check_length("target_path", &request.target_path)?;
        let volume_id = request.volume_id.clone();
        let request = v1::NodePublishVolumeRequest {
            volume_id: request.volume_id,
            publish_context: request.publish_info,
            staging_target_path: request.staging_target_path,
            target_path: request.target_path,
            volume_capability: request.volume_capability.map(conversion::capability).transpose()?,
            readonly: request.readonly,
            secrets: request.node_publish_secrets,
            volume_context: request.volume_attributes,
        };
        let wanted = parse_publish(request, &self.features)?;
        // Inline volumes, whose ids are foreign, came later than this version.
        issued(&volume_id)?;
        self.executor
            .run(Subject::node(&wanted.volume), move |engine| engine.publish_volume(&wanted))
            .await?;
        Ok(v0::NodePublishVolumeResponse {})
    }

    /// V0-28, V0-29: the caller made the target path, so it is the caller's to remove.
    async fn unpublish(
        &self,
        request: v0::NodeUnpublishVolumeRequest,
    ) -> Result<v0::NodeUnpublishVolumeResponse> {
        note_volume(&request.volume_id);
        parse::require([
            ("volume_id", !request.volume_id.is_empty()),
            ("target_path", !request.target_path.is_empty()),
        ])?;
        let target = conversion::path("target_path", &request.target_path)?;
        let volume = issued(&request.volume_id)?;
        self.executor
            .run(Subject::clearing(&volume), move |engine| {
                engine.unpublish_volume_keeping_target(&volume, &target)
            })
            .await?;
        Ok(v0::NodeUnpublishVolumeResponse {})
    }
}

/// V0-40 to V0-42: what was never issued here does not exist. Of a volume that is gone, cleaning
/// up must still be possible (point 3 of docs/specification.md); the engine takes care of that.
fn issued(volume_id: &str) -> Result<VolumeRef> {
    parse::volume_id("volume_id", volume_id).map(VolumeRef::Issued)
}

/// V0-23
fn capabilities() -> v0::NodeGetCapabilitiesResponse {
    let stage = Rpc { r#type: rpc::Type::StageUnstageVolume.into() };
    v0::NodeGetCapabilitiesResponse {
        capabilities: vec![v0::NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(stage)),
        }],
    }
}

#[tonic::async_trait]
impl v0::node_server::Node for V0Node {
    async fn node_stage_volume(
        &self,
        request: Request<v0::NodeStageVolumeRequest>,
    ) -> Answer<v0::NodeStageVolumeResponse> {
        answer_v0(self.stage(request.into_inner()).await, "node_stage_secrets")
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v0::NodeUnstageVolumeRequest>,
    ) -> Answer<v0::NodeUnstageVolumeResponse> {
        answer_v0(self.unstage(request.into_inner()).await, NO_SECRETS)
    }

    async fn node_publish_volume(
        &self,
        request: Request<v0::NodePublishVolumeRequest>,
    ) -> Answer<v0::NodePublishVolumeResponse> {
        answer_v0(self.publish(request.into_inner()).await, "node_publish_secrets")
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v0::NodeUnpublishVolumeRequest>,
    ) -> Answer<v0::NodeUnpublishVolumeResponse> {
        answer_v0(self.unpublish(request.into_inner()).await, NO_SECRETS)
    }

    /// From the configuration alone, as NodeGetInfo.
    async fn node_get_id(&self, _: Request<v0::NodeGetIdRequest>) -> Answer<v0::NodeGetIdResponse> {
        answer(Ok(v0::NodeGetIdResponse { node_id: self.features.node.id.to_string() }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v0::NodeGetCapabilitiesRequest>,
    ) -> Answer<v0::NodeGetCapabilitiesResponse> {
        answer(Ok(capabilities()))
    }
}
