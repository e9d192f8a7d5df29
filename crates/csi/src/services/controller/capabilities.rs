//! ControllerGetCapabilities: exactly what works (CC-02).

use super::Controller;
use crate::offers::Offers;
use crate::proto::csi::v1;
use crate::proto::csi::v1::controller_service_capability::{self, Rpc, rpc};

const ALWAYS: [rpc::Type; 11] = [
    rpc::Type::CreateDeleteVolume,
    rpc::Type::ListVolumes,
    rpc::Type::GetCapacity,
    rpc::Type::CreateDeleteSnapshot,
    rpc::Type::ListSnapshots,
    rpc::Type::CloneVolume,
    rpc::Type::ExpandVolume,
    rpc::Type::VolumeCondition,
    rpc::Type::GetVolume,
    rpc::Type::SingleNodeMultiWriter,
    rpc::Type::GetSnapshot,
];

const WITH_ATTACH: [rpc::Type; 3] = [
    rpc::Type::PublishUnpublishVolume,
    rpc::Type::PublishReadonly,
    rpc::Type::ListVolumesPublishedNodes,
];

const WITH_LIMITS: [rpc::Type; 1] = [rpc::Type::ModifyVolume];

impl Controller {
    pub(super) fn capabilities(&self) -> v1::ControllerGetCapabilitiesResponse {
        let capability = |r#type: rpc::Type| v1::ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(Rpc { r#type: r#type.into() })),
        };
        v1::ControllerGetCapabilitiesResponse {
            capabilities: offered(&self.offers).map(capability).collect(),
        }
    }
}

fn offered(offers: &Offers) -> impl Iterator<Item = rpc::Type> {
    let when = |condition: bool, types: &'static [rpc::Type]| if condition { types } else { &[] };
    ALWAYS
        .iter()
        .chain(when(offers.attach, &WITH_ATTACH))
        .chain(when(offers.limits, &WITH_LIMITS))
        .copied()
}
