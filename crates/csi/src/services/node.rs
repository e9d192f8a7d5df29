//! csi.v1.Node: volumes where workloads use them.

mod capabilities;
mod inspection;
mod publishing;
mod staging;

pub(super) use publishing::parse_publish;
pub(super) use staging::parse_stage;

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::answer;
use crate::dispatch::Core;
use crate::offers::Offers;
use crate::proto::csi::v1;
use crate::reply;

type Answer<Reply> = std::result::Result<Response<Reply>, Status>;

pub(crate) struct Node {
    core: Arc<Core>,
    offers: Arc<Offers>,
}

impl Node {
    pub(crate) fn new(core: Arc<Core>, offers: Arc<Offers>) -> Self {
        Self { core, offers }
    }

    /// From the configuration alone: orchestrators ask while the pools are still being read.
    fn info(&self) -> v1::NodeGetInfoResponse {
        let node = &self.offers.node;
        v1::NodeGetInfoResponse {
            node_id: node.id.to_string(),
            max_volumes_per_node: node.max_volumes.into(),
            // NI-11: there even if it is empty.
            accessible_topology: Some(reply::topology(&node.place)),
        }
    }
}

#[tonic::async_trait]
impl v1::node_server::Node for Node {
    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Answer<v1::NodeGetCapabilitiesResponse> {
        answer(Ok(capabilities::offered()))
    }

    async fn node_get_info(
        &self,
        _: Request<v1::NodeGetInfoRequest>,
    ) -> Answer<v1::NodeGetInfoResponse> {
        answer(Ok(self.info()))
    }

    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Answer<v1::NodeStageVolumeResponse> {
        answer(self.stage(request.into_inner()).await)
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Answer<v1::NodeUnstageVolumeResponse> {
        answer(self.unstage(request.into_inner()).await)
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        answer(self.publish(request.into_inner()).await)
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Answer<v1::NodeUnpublishVolumeResponse> {
        answer(self.unpublish(request.into_inner()).await)
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Answer<v1::NodeGetVolumeStatsResponse> {
        answer(self.stats(request.into_inner()).await)
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Answer<v1::NodeExpandVolumeResponse> {
        answer(self.expand(request.into_inner()).await)
    }
}
