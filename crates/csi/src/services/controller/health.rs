//! ControllerListVolumeHealth and ControllerGetVolumeHealth. Neither counts for a pool's request limit, nor waits
//! for a pool: one that does not answer is what they tell.

use orlop_engine::Engine;
use orlop_engine::request::AbnormalVolume;
use orlop_model::Result;

use super::Controller;
use crate::executor::Subject;
use crate::proto::csi::v1;
use crate::services::note_volume;
use crate::{parse, reply};

impl Controller {
    pub(super) async fn controller_list_volume_health(
        &self,
        request: v1::ControllerListVolumeHealthRequest,
    ) -> Result<v1::ControllerListVolumeHealthResponse> {
        let max = parse::max_entries(request.max_entries)?;
        parse::discard_secrets(request.secrets)?;
        let after = parse::page_token(&request.starting_token)?;
        let list = move |engine: &Engine| engine.list_abnormal_volumes(after.as_ref(), max);
        let page = self.executor.run(Subject::Any, list).await?;
        let entry = |abnormal: &AbnormalVolume| {
            reply::volume_health(&abnormal.id.to_string(), &abnormal.problems)
        };
        Ok(v1::ControllerListVolumeHealthResponse {
            entries: page.entries.iter().map(entry).collect(),
            next_token: page.next.map(String::from).unwrap_or_default(),
        })
    }

    pub(super) async fn controller_get_volume_health(
        &self,
        request: v1::ControllerGetVolumeHealthRequest,
    ) -> Result<v1::ControllerGetVolumeHealthResponse> {
        note_volume(&request.volume_id);
        parse::require([("volume_id", !request.volume_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        let id = parse::volume_id("volume_id", &request.volume_id)?;
        let look = move |engine: &Engine| engine.volume_problems(&id);
        let problems = self.executor.run(Subject::Any, look).await?;
        Ok(v1::ControllerGetVolumeHealthResponse {
            volume_health: Some(reply::volume_health(&request.volume_id, &problems)),
        })
    }
}
