//! reclaimspace: blocks that a volume does not need go back to its pool, from the node while it
//! is in use, from the controller while it is not.

use std::sync::Arc;

use orlop_engine::request::{Reclaimed, VolumeRef};
use orlop_model::{Result, TargetPath};
use tonic::{Request, Response};

use crate::executor::{Executor, Subject};
use crate::proto::reclaimspace as wire;
use crate::services::{Answer, note_volume};
use crate::{parse, reply, status};

pub(crate) struct ReclaimSpace {
    executor: Arc<Executor>,
}

impl ReclaimSpace {
    pub(crate) fn new(executor: Arc<Executor>) -> Self {
        Self { executor }
    }

    async fn on_pool(&self, request: wire::ControllerReclaimSpaceRequest) -> Result<Reclaimed> {
        note_volume(&request.volume_id);
        parse::require([("volume_id", !request.volume_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        // The sidecar sends the volume's context as parameters. It is not needed.
        parse::volume_context(request.parameters)?;
        let id = parse::volume_id("volume_id", &request.volume_id)?;
        self.executor
            .run(Subject::Pool(id.pool().clone()), move |engine| engine.reclaim_on_pool(&id))
            .await
    }

    async fn on_node(&self, request: wire::NodeReclaimSpaceRequest) -> Result<Reclaimed> {
        note_volume(&request.volume_id);
        let path = given_path(&request);
        parse::require([
            ("volume_id", !request.volume_id.is_empty()),
            ("volume_path", !path.is_empty()),
        ])?;
        let path = path.to_owned();
        parse::discard_secrets(request.secrets)?;
        parse::optional_path("staging_target_path", &request.staging_target_path)?;
        // RS-10: how the volume is used is read from its stage. A wrong capability is still wrong.
        request.volume_capability.map(parse::capability).transpose()?;
        let volume: VolumeRef = parse::volume_ref(&request.volume_id)?;
        let path: TargetPath = parse::volume_path(&volume, &path)?;
        self.executor
            .run(Subject::node(&volume), move |engine| engine.reclaim_on_node(&volume, &path))
            .await
    }
}

/// The sidecar of CSI-Addons leaves `volume_path` empty and says where the volume is staged.
fn given_path(request: &wire::NodeReclaimSpaceRequest) -> &str {
    match request.volume_path.as_str() {
        "" => &request.staging_target_path,
        path => path,
    }
}

/// RS-08
fn consumption(usage_bytes: u64) -> Option<wire::StorageConsumption> {
    Some(wire::StorageConsumption { usage_bytes: reply::bytes(usage_bytes) })
}

fn answer<Reply>(
    outcome: Result<Reclaimed>,
    reply: impl FnOnce(Reclaimed) -> Reply,
) -> Answer<Reply> {
    match outcome {
        Ok(reclaimed) => Ok(Response::new(reply(reclaimed))),
        Err(error) => Err(status::from_reclaim_error(&error)),
    }
}

#[tonic::async_trait]
impl wire::reclaim_space_controller_server::ReclaimSpaceController for ReclaimSpace {
    async fn controller_reclaim_space(
        &self,
        request: Request<wire::ControllerReclaimSpaceRequest>,
    ) -> Answer<wire::ControllerReclaimSpaceResponse> {
        let outcome = self.on_pool(request.into_inner()).await;
        answer(outcome, |reclaimed| wire::ControllerReclaimSpaceResponse {
            pre_usage: consumption(reclaimed.before_bytes),
            post_usage: consumption(reclaimed.after_bytes),
        })
    }
}

#[tonic::async_trait]
impl wire::reclaim_space_node_server::ReclaimSpaceNode for ReclaimSpace {
    async fn node_reclaim_space(
        &self,
        request: Request<wire::NodeReclaimSpaceRequest>,
    ) -> Answer<wire::NodeReclaimSpaceResponse> {
        let outcome = self.on_node(request.into_inner()).await;
        answer(outcome, |reclaimed| wire::NodeReclaimSpaceResponse {
            pre_usage: consumption(reclaimed.before_bytes),
            post_usage: consumption(reclaimed.after_bytes),
        })
    }
}
