//! identity.Identity: who this instance is, and what exactly it serves.

use std::sync::Arc;

use orlop_model::Result;
use tonic::Request;

use crate::executor::Executor;
use crate::features::{Features, Mode};
use crate::proto::identity as wire;
use crate::proto::identity::capability::{
    EncryptionKeyRotation, ReclaimSpace, Service, Type, VolumeGroup, encryption_key_rotation,
    reclaim_space, service, volume_group,
};
use crate::services::identity::manifest;
use crate::services::{Answer, answer, readiness};

pub(crate) struct AddonsIdentity {
    executor: Arc<Executor>,
    features: Arc<Features>,
}

impl AddonsIdentity {
    pub(crate) fn new(executor: Arc<Executor>, features: Arc<Features>) -> Self {
        Self { executor, features }
    }

    /// CA-05: under the same name as to everyone else.
    fn identity(&self) -> wire::GetIdentityResponse {
        wire::GetIdentityResponse {
            name: self.features.driver_name.clone(),
            vendor_version: self.features.version.clone(),
            manifest: manifest(),
        }
    }

    async fn probe(&self) -> Result<wire::ProbeResponse> {
        let ready = readiness(&self.executor).await?;
        Ok(wire::ProbeResponse { ready: Some(ready) })
    }
}

/// A group never takes its volumes along when it is deleted: one that has any is not deleted
/// (VG-20, point 10 of docs/specification.md).
const GROUPS: [volume_group::Type; 6] = [
    volume_group::Type::VolumeGroup,
    volume_group::Type::LimitVolumeToOneVolumeGroup,
    volume_group::Type::DoNotAllowVgToDeleteVolumes,
    volume_group::Type::ModifyVolumeGroup,
    volume_group::Type::GetVolumeGroup,
    volume_group::Type::ListVolumeGroups,
];

/// Unlike a plugin's capabilities, these are of the one instance that is asked (CA-10).
fn capabilities(mode: Mode) -> wire::GetCapabilitiesResponse {
    let service = |r#type: service::Type| Type::Service(Service { r#type: r#type.into() });
    let reclaim =
        |r#type: reclaim_space::Type| Type::ReclaimSpace(ReclaimSpace { r#type: r#type.into() });
    let group =
        |r#type: volume_group::Type| Type::VolumeGroup(VolumeGroup { r#type: r#type.into() });
    let mut offered = Vec::new();
    if mode.serves_controller() {
        offered.push(service(service::Type::ControllerService));
        offered.push(reclaim(reclaim_space::Type::Offline));
        offered.extend(GROUPS.map(group));
    }
    if mode.serves_node() {
        offered.push(service(service::Type::NodeService));
        offered.push(reclaim(reclaim_space::Type::Online));
        let r#type = encryption_key_rotation::Type::Encryptionkeyrotation.into();
        offered.push(Type::EncryptionKeyRotation(EncryptionKeyRotation { r#type }));
    }
    let capability = |r#type: Type| wire::Capability { r#type: Some(r#type) };
    wire::GetCapabilitiesResponse { capabilities: offered.into_iter().map(capability).collect() }
}

#[tonic::async_trait]
impl wire::identity_server::Identity for AddonsIdentity {
    async fn get_identity(
        &self,
        _: Request<wire::GetIdentityRequest>,
    ) -> Answer<wire::GetIdentityResponse> {
        answer(Ok(self.identity()))
    }

    async fn get_capabilities(
        &self,
        _: Request<wire::GetCapabilitiesRequest>,
    ) -> Answer<wire::GetCapabilitiesResponse> {
        answer(Ok(capabilities(self.features.mode)))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Answer<wire::ProbeResponse> {
        answer(self.probe().await)
    }
}
