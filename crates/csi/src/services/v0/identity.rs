//! csi.v0.Identity.

use std::sync::Arc;

use orlop_model::{Error, Result};
use tonic::Request;

use crate::executor::Executor;
use crate::features::Features;
use crate::proto::csi::v0;
use crate::proto::csi::v0::plugin_capability::{self, Service, service};
use crate::services::identity::manifest;
use crate::services::{Answer, answer, readiness};

pub(crate) struct V0Identity {
    executor: Arc<Executor>,
    features: Arc<Features>,
}

impl V0Identity {
    pub(crate) fn new(executor: Arc<Executor>, features: Arc<Features>) -> Self {
        Self { executor, features }
    }

    fn info(&self) -> v0::GetPluginInfoResponse {
        v0::GetPluginInfoResponse {
            name: self.features.driver_name.clone(),
            vendor_version: self.features.version.clone(),
            manifest: manifest(),
        }
    }

    /// V0-19: the response cannot say "not yet", so while the daemon starts Probe answers UNAVAILABLE, as every other
    /// call does. A failure is FAILED_PRECONDITION (V0-43).
    async fn probe(&self) -> Result<v0::ProbeResponse> {
        match readiness(&self.executor).await? {
            true => Ok(v0::ProbeResponse {}),
            false => Err(Error::Starting),
        }
    }
}

/// V0-21
fn capabilities() -> v0::GetPluginCapabilitiesResponse {
    let controller = Service { r#type: service::Type::ControllerService.into() };
    v0::GetPluginCapabilitiesResponse {
        capabilities: vec![v0::PluginCapability {
            r#type: Some(plugin_capability::Type::Service(controller)),
        }],
    }
}

#[tonic::async_trait]
impl v0::identity_server::Identity for V0Identity {
    async fn get_plugin_info(
        &self,
        _: Request<v0::GetPluginInfoRequest>,
    ) -> Answer<v0::GetPluginInfoResponse> {
        answer(Ok(self.info()))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v0::GetPluginCapabilitiesRequest>,
    ) -> Answer<v0::GetPluginCapabilitiesResponse> {
        answer(Ok(capabilities()))
    }

    async fn probe(&self, _: Request<v0::ProbeRequest>) -> Answer<v0::ProbeResponse> {
        answer(self.probe().await)
    }
}
