//! csi.v1.Identity: who this is, what it can do, whether it is well.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlop_model::Result;
use tonic::{Request, Response, Status};

use super::{ExplainedReadiness, answer, answer_with_metadata, explained_readiness};
use crate::executor::Executor;
use crate::features::Features;
use crate::proto::csi::v1;
use crate::proto::csi::v1::plugin_capability::{self, Service, VolumeExpansion, service};
use crate::self_check::{NOT_READY, WARNING, reason_header};

pub(crate) struct Identity {
    executor: Arc<Executor>,
    features: Arc<Features>,
}

impl Identity {
    pub(crate) fn new(executor: Arc<Executor>, features: Arc<Features>) -> Self {
        Self { executor, features }
    }

    fn info(&self) -> v1::GetPluginInfoResponse {
        v1::GetPluginInfoResponse {
            name: self.features.driver_name.clone(),
            vendor_version: self.features.version.clone(),
            manifest: manifest(),
        }
    }

    /// The message cannot say why it is not ready, nor what is wrong although it is, so a header does.
    async fn probe(&self) -> Result<Response<v1::ProbeResponse>> {
        let (ready, name, text) = match explained_readiness(&self.executor).await? {
            ExplainedReadiness::Ready { warning } => (true, WARNING, warning),
            ExplainedReadiness::NotReady(why) => (false, NOT_READY, Some(why.to_string())),
        };
        let mut answer = Response::new(v1::ProbeResponse { ready: Some(ready) });
        if let Some(reason) = text.and_then(|text| reason_header(&text)) {
            answer.metadata_mut().insert(name, reason);
        }
        Ok(answer)
    }
}

/// The same in every identity that this plugin has.
pub(super) fn manifest() -> BTreeMap<String, String> {
    BTreeMap::from([("license".to_owned(), "Apache-2.0".to_owned())])
}

/// The plugin as a whole, so the same from every instance, whatever it serves (ID-11).
fn capabilities(features: &Features) -> Vec<v1::PluginCapability> {
    let service = |service: service::Type| {
        plugin_capability::Type::Service(Service { r#type: service.into() })
    };
    let expansion = plugin_capability::Type::VolumeExpansion(VolumeExpansion {
        r#type: plugin_capability::volume_expansion::Type::Online.into(),
    });
    let groups = service(service::Type::GroupControllerService);
    [
        service(service::Type::ControllerService),
        service(service::Type::VolumeAccessibilityConstraints),
        service(service::Type::SnapshotMetadataService),
        service(service::Type::SnapshotAccessibilityConstraints),
        expansion,
    ]
    .into_iter()
    .chain(features.group_snapshots.then_some(groups))
    .map(|r#type| v1::PluginCapability { r#type: Some(r#type) })
    .collect()
}

#[tonic::async_trait]
impl v1::identity_server::Identity for Identity {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> std::result::Result<Response<v1::GetPluginInfoResponse>, Status> {
        answer(Ok(self.info()))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> std::result::Result<Response<v1::GetPluginCapabilitiesResponse>, Status> {
        answer(Ok(v1::GetPluginCapabilitiesResponse { capabilities: capabilities(&self.features) }))
    }

    async fn probe(
        &self,
        _: Request<v1::ProbeRequest>,
    ) -> std::result::Result<Response<v1::ProbeResponse>, Status> {
        answer_with_metadata(self.probe().await)
    }
}
