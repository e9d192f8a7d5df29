//! NodePublishVolume and NodeUnpublishVolume.

use orlop_engine::request::{PublishVolume, PublishWay};
use orlop_model::{Error, Result, TargetPath};

use super::Node;
use crate::executor::Subject;
use crate::features::Features;
use crate::parse;
use crate::proto::csi::v1;
use crate::services::{given, note_volume};

impl Node {
    pub(super) async fn node_publish_volume(
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

    pub(super) async fn node_unpublish_volume(
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
}

pub(in crate::services) fn parse_publish(
    request: v1::NodePublishVolumeRequest,
    features: &Features,
) -> Result<PublishVolume> {
    parse::require([
        ("volume_id", !request.volume_id.is_empty()),
        ("target_path", !request.target_path.is_empty()),
        ("volume_capability", request.volume_capability.is_some()),
    ])?;
    parse::discard_secrets(request.secrets)?;
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
    })
}
