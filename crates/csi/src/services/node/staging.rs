//! NodeStageVolume and NodeUnstageVolume.

use orlop_engine::request::StageVolume;
use orlop_model::{Result, TargetPath};

use super::Node;
use crate::executor::Subject;
use crate::features::Features;
use crate::parse;
use crate::proto::csi::v1;
use crate::services::{given, note_volume};

impl Node {
    pub(super) async fn node_stage_volume(
        &self,
        request: v1::NodeStageVolumeRequest,
    ) -> Result<v1::NodeStageVolumeResponse> {
        note_volume(&request.volume_id);
        let wanted = parse_stage(request, &self.features)?;
        let home = Subject::Node(Some(wanted.volume.pool().clone()));
        self.executor.run(home, move |engine| engine.stage_volume(&wanted)).await?;
        Ok(v1::NodeStageVolumeResponse {})
    }

    pub(super) async fn node_unstage_volume(
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
}

pub(in crate::services) fn parse_stage(
    request: v1::NodeStageVolumeRequest,
    features: &Features,
) -> Result<StageVolume> {
    parse::require([
        ("volume_id", !request.volume_id.is_empty()),
        ("staging_target_path", !request.staging_target_path.is_empty()),
        ("volume_capability", request.volume_capability.is_some()),
    ])?;
    parse::discard_secrets(request.secrets)?;
    let capability = given("volume_capability", request.volume_capability)?;
    Ok(StageVolume {
        path: TargetPath::parse("staging_target_path", &request.staging_target_path)?,
        publish: parse::publish_context(&request.publish_context, features)?,
        context: parse::volume_context(request.volume_context)?,
        capability: parse::capability_in_use(capability)?,
        volume: parse::volume_id("volume_id", &request.volume_id)?,
    })
}
