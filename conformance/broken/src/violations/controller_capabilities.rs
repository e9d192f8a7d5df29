//! ControllerGetCapabilities (CC).

use std::sync::atomic::{AtomicUsize, Ordering};

use csi_conformance::wire::csi::v1::controller_service_capability::rpc::Type;
use csi_conformance::wire::csi::v1::{
    ControllerGetCapabilitiesRequest, ControllerPublishVolumeRequest, CreateVolumeRequest,
    GetPluginCapabilitiesRequest, plugin_capability,
};
use tonic::Status;

use super::create_volume::without;
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation(
        "controller-capabilities-vary",
        "CC-01",
        "offers something else at each call",
        || {
            let calls = AtomicUsize::new(0);
            Interceptor::default().reply::<ControllerGetCapabilitiesRequest>(move |_, reply| {
                let number = calls.fetch_add(1, Ordering::Relaxed);
                reply.capabilities.truncate(12 - number % 2);
            })
        },
    ),
    violation(
        "controller-capabilities-leave-out-listing",
        "CC-02",
        "lists volumes and does not offer it",
        || without(Type::ListVolumes),
    ),
    violation(
        "controller-capabilities-leave-out-getting",
        "CC-02",
        "gets snapshots and does not offer it",
        || without(Type::GetSnapshot),
    ),
    violation(
        "controller-capabilities-promise-too-much",
        "CC-02",
        "offers to publish volumes and cannot",
        || Interceptor::default().unimplemented::<ControllerPublishVolumeRequest>(),
    ),
    violation(
        "controller-capabilities-no-restoring",
        "CC-03",
        "offers snapshots that nothing can be made of",
        || {
            Interceptor::default().answer::<CreateVolumeRequest>(|request| {
                let copy = request.volume_content_source.is_some();
                copy.then(|| Err(Status::unimplemented("no copies")))
            })
        },
    ),
    violation(
        "controller-capabilities-readonly-is-a-word",
        "CC-05",
        "offers PUBLISH_READONLY and publishes for writing",
        || {
            Interceptor::default()
                .ask::<ControllerPublishVolumeRequest>(|request| request.readonly = false)
        },
    )
    .on_real(),
    violation(
        "controller-capabilities-nodes-without-publishing",
        "CC-06",
        "tells of publications and offers to make none",
        || without(Type::PublishUnpublishVolume),
    ),
    violation(
        "controller-capabilities-no-new-modes",
        "CC-07",
        "offers SINGLE_NODE_MULTI_WRITER and refuses its modes",
        || refused_modes(|mode| mode == 6 || mode == 7),
    ),
    violation(
        "controller-capabilities-no-old-mode",
        "CC-07",
        "refuses SINGLE_NODE_WRITER because there are newer modes",
        || refused_modes(|mode| mode == 1),
    ),
    violation(
        "controller-capabilities-expand-secretly",
        "CC-08",
        "offers EXPAND_VOLUME and no VolumeExpansion",
        || {
            Interceptor::default().reply::<GetPluginCapabilitiesRequest>(|_, reply| {
                reply.capabilities.retain(|entry| {
                    !matches!(entry.r#type, Some(plugin_capability::Type::VolumeExpansion(_)))
                });
            })
        },
    ),
];

fn refused_modes(refused: fn(i32) -> bool) -> Interceptor {
    Interceptor::default().answer::<CreateVolumeRequest>(move |request| {
        let modes = request.volume_capabilities.iter().filter_map(|it| it.access_mode);
        let unsupported = modes.into_iter().any(|mode| refused(mode.mode));
        unsupported.then(|| Err(Status::invalid_argument("access mode is not supported")))
    })
}
