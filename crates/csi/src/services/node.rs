//! csi.v1.Node: volumes where workloads use them.

mod inspection;
mod publishing;
mod staging;

pub(super) use publishing::parse_publish;
pub(super) use staging::parse_stage;

use std::sync::Arc;

use orlop_model::Result;

use super::unary_calls;
use crate::executor::Executor;
use crate::features::Features;
use crate::proto::csi::v1;
use crate::proto::csi::v1::node_service_capability::{self, Rpc, rpc};
use crate::reply;

const OFFERED: [rpc::Type; 6] = [
    rpc::Type::StageUnstageVolume,
    rpc::Type::GetVolumeStats,
    rpc::Type::ExpandVolume,
    rpc::Type::VolumeCondition,
    rpc::Type::SingleNodeMultiWriter,
    rpc::Type::VolumeMountGroup,
];

pub(crate) struct Node {
    executor: Arc<Executor>,
    features: Arc<Features>,
}

impl Node {
    pub(crate) fn new(executor: Arc<Executor>, features: Arc<Features>) -> Self {
        Self { executor, features }
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
            accessible_topology: Some(reply::topology(&node.place)),
        })
    }
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
    }
}
