//! NodeGetCapabilities: exactly what works (NC-02).

use crate::proto::csi::v1;
use crate::proto::csi::v1::node_service_capability::{self, Rpc, rpc};

const OFFERED: [rpc::Type; 6] = [
    rpc::Type::StageUnstageVolume,
    rpc::Type::GetVolumeStats,
    rpc::Type::ExpandVolume,
    rpc::Type::VolumeCondition,
    rpc::Type::SingleNodeMultiWriter,
    rpc::Type::VolumeMountGroup,
];

pub(super) fn offered() -> v1::NodeGetCapabilitiesResponse {
    let capability = |r#type: rpc::Type| v1::NodeServiceCapability {
        r#type: Some(node_service_capability::Type::Rpc(Rpc { r#type: r#type.into() })),
    };
    v1::NodeGetCapabilitiesResponse { capabilities: OFFERED.map(capability).into() }
}
