//! NodeGetCapabilities (NC).

use csi_conformance::wire::csi::v1::volume_capability::access_mode::Mode;
use csi_conformance::wire::csi::v1::volume_capability::{AccessMode, AccessType};
use csi_conformance::wire::csi::v1::{
    CreateVolumeRequest, NodeExpandVolumeRequest, NodeGetCapabilitiesRequest,
    NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability,
};
use tonic::Code;

use crate::interceptor::Interceptor;
use crate::mistakes::refusing;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("node-lists-too-little", "NC-02", "has calls that it does not list", || {
        Interceptor::default().reply::<NodeGetCapabilitiesRequest>(|_, reply| {
            reply.capabilities.truncate(2);
        })
    }),
    violation("node-lists-too-much", "NC-02", "lists calls that it does not have", || {
        Interceptor::default().unimplemented::<NodeExpandVolumeRequest>()
    }),
    violation("node-lists-twice", "NC-02", "lists a capability twice", || {
        Interceptor::default().reply::<NodeGetCapabilitiesRequest>(|_, reply| {
            reply.capabilities.extend_from_within(..1);
        })
    }),
    violation("node-has-no-numbers", "NC-03", "has nothing to tell of a volume", || {
        Interceptor::default().reply::<NodeGetVolumeStatsRequest>(|_, reply| reply.usage.clear())
    }),
    violation("node-has-no-new-modes", "NC-04", "lists modes that it refuses", || {
        refusing::<CreateVolumeRequest>(Code::InvalidArgument, |it| {
            it.volume_capabilities.iter().any(|it| mode_of(it) >= Mode::SingleNodeSingleWriter)
        })
    }),
    violation("node-has-no-old-mode", "NC-04", "publishes with the new modes only", || {
        refusing::<NodePublishVolumeRequest>(Code::FailedPrecondition, |it| {
            it.volume_capability.as_ref().is_some_and(|it| mode_of(it) == Mode::SingleNodeWriter)
        })
    }),
    violation("node-ignores-the-group", "NC-05", "mounts for its own group", || {
        Interceptor::default()
            .ask::<NodeStageVolumeRequest>(|it| no_group(it.volume_capability.as_mut()))
            .ask::<NodePublishVolumeRequest>(|it| no_group(it.volume_capability.as_mut()))
    })
    .on_real(),
];

fn mode_of(capability: &VolumeCapability) -> Mode {
    capability.access_mode.as_ref().map_or(Mode::Unknown, AccessMode::mode)
}

fn no_group(capability: Option<&mut VolumeCapability>) {
    if let Some(AccessType::Mount(mount)) = capability.and_then(|it| it.access_type.as_mut()) {
        mount.volume_mount_group.clear();
    }
}
