//! ControllerExpandVolume.

use orlop_model::Result;

use super::Controller;
use crate::dispatch::Subject;
use crate::proto::csi::v1;
use crate::services::{given, note_volume};
use crate::{parse, reply};

impl Controller {
    pub(super) async fn expand_volume(
        &self,
        request: v1::ControllerExpandVolumeRequest,
    ) -> Result<v1::ControllerExpandVolumeResponse> {
        note_volume(&request.volume_id);
        parse::require([
            ("volume_id", !request.volume_id.is_empty()),
            ("capacity_range", request.capacity_range.is_some()),
        ])?;
        parse::discard_secrets(request.secrets)?;
        let range = parse::capacity_range(request.capacity_range)?;
        let range = given("capacity_range", range)?;
        let capability = request.volume_capability.map(parse::capability).transpose()?;
        let id = parse::volume_id("volume_id", &request.volume_id)?;
        let expanded = self
            .core
            .run(Subject::Pool(id.pool().clone()), move |engine| {
                engine.expand_volume(&id, &range, capability.as_ref())
            })
            .await?;
        Ok(v1::ControllerExpandVolumeResponse {
            capacity_bytes: reply::bytes(expanded.capacity_bytes),
            node_expansion_required: expanded.node_expansion_required,
        })
    }
}
