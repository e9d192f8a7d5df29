//! csi.v1.Node: volumes where workloads use them. The table at the end says which calls there are.

mod health;

use std::sync::Arc;

use orlop_engine::request::{NodeExpand, PublishVolume, PublishWay, StageVolume};
use orlop_model::{Error, Result, TargetPath};

use super::{given, note_volume, unary_calls};
use crate::executor::{Executor, Subject};
use crate::features::Features;
use crate::proto::csi::v1;
use crate::proto::csi::v1::node_service_capability::{self, Rpc, rpc};
use crate::{parse, reply};

const OFFERED: [rpc::Type; 8] = [
    rpc::Type::StageUnstageVolume,
    rpc::Type::GetVolumeStats,
    rpc::Type::ExpandVolume,
    rpc::Type::VolumeCondition,
    rpc::Type::SingleNodeMultiWriter,
    rpc::Type::VolumeMountGroup,
    rpc::Type::GetVolumeHealth,
    rpc::Type::GetStorageHealth,
];

pub(crate) struct Node {
    executor: Arc<Executor>,
    features: Arc<Features>,
}

impl Node {
    pub(crate) fn new(executor: Arc<Executor>, features: Arc<Features>) -> Self {
        Self { executor, features }
    }

    async fn node_stage_volume(
        &self,
        request: v1::NodeStageVolumeRequest,
    ) -> Result<v1::NodeStageVolumeResponse> {
        note_volume(&request.volume_id);
        let wanted = parse_stage(request, &self.features)?;
        let home = Subject::Node(Some(wanted.volume.pool().clone()));
        let volume = wanted.volume.clone();
        let staged = self.executor.run(home, move |engine| engine.stage_volume(&wanted)).await;
        self.note_refusal(&volume, staged)?;
        Ok(v1::NodeStageVolumeResponse {})
    }

    async fn node_unstage_volume(
        &self,
        request: v1::NodeUnstageVolumeRequest,
    ) -> Result<v1::NodeUnstageVolumeResponse> {
        note_volume(&request.volume_id);
        parse::require([
            ("volume_id", !request.volume_id.is_empty()),
            ("staging_target_path", !request.staging_target_path.is_empty()),
        ])?;
        let path = TargetPath::parse("staging_target_path", &request.staging_target_path)?;
        let volume = parse::volume_ref(&request.volume_id)?;
        self.executor
            .run(Subject::node(&volume), move |engine| engine.unstage_volume(&volume, &path))
            .await?;
        Ok(v1::NodeUnstageVolumeResponse {})
    }

    async fn node_publish_volume(
        &self,
        request: v1::NodePublishVolumeRequest,
    ) -> Result<v1::NodePublishVolumeResponse> {
        note_volume(&request.volume_id);
        let wanted = parse_publish(request, &self.features)?;
        self.executor
            .run(Subject::node(&wanted.volume), move |engine| engine.publish_volume(&wanted))
            .await?;
        Ok(v1::NodePublishVolumeResponse {})
    }

    async fn node_unpublish_volume(
        &self,
        request: v1::NodeUnpublishVolumeRequest,
    ) -> Result<v1::NodeUnpublishVolumeResponse> {
        note_volume(&request.volume_id);
        parse::require([
            ("volume_id", !request.volume_id.is_empty()),
            ("target_path", !request.target_path.is_empty()),
        ])?;
        let target = TargetPath::parse("target_path", &request.target_path)?;
        let volume = parse::volume_ref(&request.volume_id)?;
        self.executor
            .run(Subject::clearing(&volume), move |engine| {
                engine.unpublish_volume(&volume, &target)
            })
            .await?;
        Ok(v1::NodeUnpublishVolumeResponse {})
    }

    async fn node_get_volume_stats(
        &self,
        request: v1::NodeGetVolumeStatsRequest,
    ) -> Result<v1::NodeGetVolumeStatsResponse> {
        note_volume(&request.volume_id);
        parse::require([
            ("volume_id", !request.volume_id.is_empty()),
            ("volume_path", !request.volume_path.is_empty()),
        ])?;
        parse::optional_path("staging_target_path", &request.staging_target_path)?;
        let volume = parse::volume_ref(&request.volume_id)?;
        let path = parse::volume_path(&volume, &request.volume_path)?;
        let stats = self
            .executor
            .run(Subject::node(&volume), move |engine| engine.volume_stats(&volume, &path))
            .await?;
        Ok(v1::NodeGetVolumeStatsResponse {
            usage: reply::usage(stats.usage),
            volume_condition: Some(reply::condition(&stats.condition)),
        })
    }

    async fn node_expand_volume(
        &self,
        request: v1::NodeExpandVolumeRequest,
    ) -> Result<v1::NodeExpandVolumeResponse> {
        note_volume(&request.volume_id);
        let wanted = parse_expansion(request)?;
        let capacity = self
            .executor
            .run(Subject::node(&wanted.volume), move |engine| engine.expand_node_volume(&wanted))
            .await?;
        Ok(v1::NodeExpandVolumeResponse { capacity_bytes: reply::bytes(capacity) })
    }

    /// Exactly what works (NC-02).
    async fn node_get_capabilities(
        &self,
        _: v1::NodeGetCapabilitiesRequest,
    ) -> Result<v1::NodeGetCapabilitiesResponse> {
        let capability = |r#type: rpc::Type| v1::NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(Rpc { r#type: r#type.into() })),
        };
        Ok(v1::NodeGetCapabilitiesResponse { capabilities: OFFERED.map(capability).into() })
    }

    /// From the configuration alone: orchestrators ask while the pools are still being read.
    async fn node_get_info(&self, _: v1::NodeGetInfoRequest) -> Result<v1::NodeGetInfoResponse> {
        let node = &self.features.node;
        Ok(v1::NodeGetInfoResponse {
            node_id: node.id.to_string(),
            max_volumes_per_node: node.max_volumes.into(),
            // NI-11: there even if it is empty.
            accessible_topology: Some(reply::topology(&node.topology)),
        })
    }
}

pub(super) fn parse_stage(
    request: v1::NodeStageVolumeRequest,
    features: &Features,
) -> Result<StageVolume> {
    parse::require([
        ("volume_id", !request.volume_id.is_empty()),
        ("staging_target_path", !request.staging_target_path.is_empty()),
        ("volume_capability", request.volume_capability.is_some()),
    ])?;
    let keys = Arc::new(parse::volume_keys(request.secrets)?);
    let capability = given("volume_capability", request.volume_capability)?;
    Ok(StageVolume {
        path: TargetPath::parse("staging_target_path", &request.staging_target_path)?,
        publish: parse::publish_context(&request.publish_context, features)?,
        context: parse::volume_context(request.volume_context)?,
        capability: parse::capability_in_use(capability)?,
        volume: parse::volume_id("volume_id", &request.volume_id)?,
        keys,
    })
}

pub(super) fn parse_publish(
    request: v1::NodePublishVolumeRequest,
    features: &Features,
) -> Result<PublishVolume> {
    parse::require([
        ("volume_id", !request.volume_id.is_empty()),
        ("target_path", !request.target_path.is_empty()),
        ("volume_capability", request.volume_capability.is_some()),
    ])?;
    let keys = Arc::new(parse::volume_keys(request.secrets)?);
    let volume = parse::volume_ref(&request.volume_id)?;
    let target = TargetPath::parse("target_path", &request.target_path)?;
    let staging = parse::optional_path("staging_target_path", &request.staging_target_path)?;
    if staging.as_ref().is_some_and(|staging| staging.overlaps(&target)) {
        // One mount would hide the other, and what is unpublished would be the stage.
        return Err(Error::invalid("target_path", "overlaps with staging_target_path"));
    }
    let publish = parse::publish_context(&request.publish_context, features)?;
    let context = parse::volume_context(request.volume_context)?;
    let way = match (parse::inline_volume(&context, features)?, staging) {
        (Some(spec), _) => Some(PublishWay::Inline { spec }),
        (None, Some(staging)) => Some(PublishWay::Staged { staging }),
        (None, None) => None,
    };
    let capability = given("volume_capability", request.volume_capability)?;
    let capability = parse::capability_in_use(capability)?;
    // NP-07: the one missing field that is not an invalid argument.
    let way = way.ok_or_else(|| {
        Error::precondition(
            "cannot publish the volume: staging_target_path is missing; stage the volume first",
        )
    })?;
    Ok(PublishVolume {
        volume,
        way,
        target,
        capability,
        read_only: request.readonly,
        publish,
        context,
        keys,
    })
}

fn parse_expansion(request: v1::NodeExpandVolumeRequest) -> Result<NodeExpand> {
    parse::require([
        ("volume_id", !request.volume_id.is_empty()),
        ("volume_path", !request.volume_path.is_empty()),
    ])?;
    // A mapping that is open grows without its key.
    parse::discard_secrets(request.secrets)?;
    parse::optional_path("staging_target_path", &request.staging_target_path)?;
    let range = parse::capacity_range(request.capacity_range)?;
    // NE-13: unlike at stage and publish, a capability that cannot be met is an invalid argument.
    let capability = request.volume_capability.map(parse::capability).transpose()?;
    let volume = parse::volume_ref(&request.volume_id)?;
    Ok(NodeExpand {
        path: parse::volume_path(&volume, &request.volume_path)?,
        volume,
        range,
        capability,
    })
}

unary_calls! {
    impl v1::node_server::Node, for Node, with v1 {
        node_get_capabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse;
        node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse;
        node_stage_volume(NodeStageVolumeRequest) -> NodeStageVolumeResponse;
        node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse;
        node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse;
        node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
        node_get_volume_stats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse;
        node_expand_volume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse;
        node_get_volume_health(NodeGetVolumeHealthRequest) -> NodeGetVolumeHealthResponse;
        node_get_storage_health(NodeGetStorageHealthRequest) -> NodeGetStorageHealthResponse;
    }
}
