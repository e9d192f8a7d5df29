//! ControllerPublishVolume and ControllerUnpublishVolume.

use orlop_engine::request::ControllerPublish;
use orlop_model::Result;

use super::Controller;
use crate::executor::Subject;
use crate::proto::csi::v1;
use crate::services::{given, note_volume};
use crate::{parse, reply};

impl Controller {
    pub(in crate::services) async fn controller_publish_volume(
        &self,
        request: v1::ControllerPublishVolumeRequest,
    ) -> Result<v1::ControllerPublishVolumeResponse> {
        note_volume(&request.volume_id);
        self.features.require_attach("ControllerPublishVolume")?;
        let wanted = parse_publication(request)?;
        let home = Subject::Pool(wanted.volume.pool().clone());
        let context =
            self.executor.run(home, move |engine| engine.controller_publish(&wanted)).await?;
        Ok(v1::ControllerPublishVolumeResponse { publish_context: reply::publish_context(context) })
    }

    pub(in crate::services) async fn controller_unpublish_volume(
        &self,
        request: v1::ControllerUnpublishVolumeRequest,
    ) -> Result<v1::ControllerUnpublishVolumeResponse> {
        note_volume(&request.volume_id);
        self.features.require_attach("ControllerUnpublishVolume")?;
        parse::require([("volume_id", !request.volume_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        let node = parse::optional_node(&request.node_id)?;
        if let Some(id) = parse::issued_volume("volume_id", &request.volume_id)? {
            let home = Subject::Pool(id.pool().clone());
            self.executor
                .run(home, move |engine| engine.controller_unpublish(&id, node.as_ref()))
                .await?;
        }
        Ok(v1::ControllerUnpublishVolumeResponse {})
    }
}

fn parse_publication(request: v1::ControllerPublishVolumeRequest) -> Result<ControllerPublish> {
    parse::require([
        ("volume_id", !request.volume_id.is_empty()),
        ("node_id", !request.node_id.is_empty()),
        ("volume_capability", request.volume_capability.is_some()),
    ])?;
    parse::discard_secrets(request.secrets)?;
    Ok(ControllerPublish {
        node: request.node_id.parse()?,
        capability: parse::capability(given("volume_capability", request.volume_capability)?)?,
        read_only: request.readonly,
        context: parse::volume_context(request.volume_context)?,
        volume: parse::volume_id("volume_id", &request.volume_id)?,
    })
}
