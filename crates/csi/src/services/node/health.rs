//! NodeGetVolumeHealth and NodeGetStorageHealth.

use orlop_engine::Engine;
use orlop_engine::request::VolumeRef;
use orlop_model::{Result, VolumeId};

use super::Node;
use crate::executor::Subject;
use crate::proto::csi::v1;
use crate::services::note_volume;
use crate::{parse, reply};

impl Node {
    pub(super) async fn node_get_volume_health(
        &self,
        request: v1::NodeGetVolumeHealthRequest,
    ) -> Result<v1::NodeGetVolumeHealthResponse> {
        note_volume(&request.volume_id);
        parse::require([("volume_id", !request.volume_id.is_empty())])?;
        let published = parse::optional_path("volume_publish_path", &request.volume_publish_path)?;
        let staged = parse::optional_path("staging_target_path", &request.staging_target_path)?;
        let volume = parse::volume_ref(&request.volume_id)?;
        let paths: Vec<_> = published.into_iter().chain(staged).collect();
        let subject = self.answering(&volume)?;
        let look = move |engine: &Engine| engine.node_volume_problems(&volume, &paths);
        let problems = self.executor.run(subject, look).await?;
        Ok(v1::NodeGetVolumeHealthResponse {
            volume_health: Some(reply::volume_health(&request.volume_id, &problems)),
        })
    }

    pub(super) async fn node_get_storage_health(
        &self,
        request: v1::NodeGetStorageHealthRequest,
    ) -> Result<v1::NodeGetStorageHealthResponse> {
        parse::discard_secrets(request.secrets)?;
        let look = |engine: &Engine| Ok(engine.storage_problems());
        let problems = self.executor.run(Subject::Node(None), look).await?;
        Ok(v1::NodeGetStorageHealthResponse {
            backend_health: problems.iter().map(reply::storage_health).collect(),
        })
    }

    /// A call on a pool that does not answer would be refused, and here that is the answer.
    fn answering(&self, volume: &VolumeRef) -> Result<Subject> {
        let engine = self.executor.engine()?;
        let answers = volume.pool().is_none_or(|pool| engine.check_answers(pool).is_ok());
        Ok(if answers { Subject::node(volume) } else { Subject::Node(None) })
    }

    /// A stage that was refused before it began, as its pool does not answer, failed all the same.
    pub(super) fn note_refusal(&self, volume: &VolumeId, staged: Result<()>) -> Result<()> {
        if let (Err(error), Ok(engine)) = (&staged, self.executor.engine()) {
            engine.note_stage_failure(volume, error);
        }
        staged
    }
}
