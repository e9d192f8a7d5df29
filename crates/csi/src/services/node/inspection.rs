//! NodeGetVolumeStats and NodeExpandVolume: calls on a volume where it is now.

use orlop_engine::request::NodeExpand;
use orlop_model::Result;

use super::Node;
use crate::executor::Subject;
use crate::proto::csi::v1;
use crate::services::note_volume;
use crate::{parse, reply};

impl Node {
    pub(super) async fn node_get_volume_stats(
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

    pub(super) async fn node_expand_volume(
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
}

fn parse_expansion(request: v1::NodeExpandVolumeRequest) -> Result<NodeExpand> {
    parse::require([
        ("volume_id", !request.volume_id.is_empty()),
        ("volume_path", !request.volume_path.is_empty()),
    ])?;
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
