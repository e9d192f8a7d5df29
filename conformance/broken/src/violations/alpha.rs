//! Alpha surfaces (AL).

use csi_conformance::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use csi_conformance::wire::csi::v1::{
    ControllerGetVolumeRequest, GetCapacityRequest, GetMetadataAllocatedRequest,
    GetSnapshotRequest, ListVolumesRequest, NodeExpandVolumeRequest, NodeGetVolumeStatsRequest,
    ValidateVolumeCapabilitiesRequest,
};
use tonic::Status;

use super::without_controller;
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("get-volume-in-secret", "AL-02", "serves an alpha call without saying so", || {
        without_controller(&[Rpc::GetVolume])
    }),
    violation("get-volume-gets-another", "AL-03", "gets another volume", || {
        Interceptor::default().reply::<ControllerGetVolumeRequest>(|_, reply| {
            if let Some(volume) = &mut reply.volume {
                volume.volume_id = "another".to_owned();
            }
        })
    }),
    violation("lists-without-conditions", "AL-04", "leaves conditions out of the list", || {
        Interceptor::default().reply::<ListVolumesRequest>(|_, reply| {
            for status in reply.entries.iter_mut().filter_map(|it| it.status.as_mut()) {
                status.volume_condition = None;
            }
        })
    }),
    violation("modes-are-not-confirmed", "AL-05", "does not confirm modes 6 and 7", || {
        Interceptor::default().reply::<ValidateVolumeCapabilitiesRequest>(|request, reply| {
            let modes = request.volume_capabilities.iter().filter_map(|it| it.access_mode);
            if modes.into_iter().any(|it| it.mode > 5) {
                reply.confirmed = None;
            }
        })
    }),
    violation("get-snapshot-is-not-there", "AL-06", "advertises GetSnapshot only", || {
        Interceptor::default().unimplemented::<GetSnapshotRequest>()
    }),
    violation("metadata-ends-badly", "AL-07", "ends a stream with an error", || {
        Interceptor::default().stream::<GetMetadataAllocatedRequest>(|_, _, end| {
            *end = Err(Status::internal("cannot read on"));
        })
    }),
    violation("smallest-size-below-zero", "AL-08", "names a negative smallest size", || {
        Interceptor::default().reply::<GetCapacityRequest>(|_, reply| {
            reply.minimum_volume_size = Some(-1);
        })
    }),
    violation("node-expansion-knows-no-secrets", "AL-09", "refuses secrets there", || {
        Interceptor::default().answer::<NodeExpandVolumeRequest>(|request| {
            let refusal = Status::invalid_argument("secrets are not expected");
            (!request.secrets.is_empty()).then_some(Err(refusal))
        })
    }),
    violation("healthy-volumes-are-abnormal", "AL-11", "calls healthy volumes abnormal", || {
        Interceptor::default().reply::<NodeGetVolumeStatsRequest>(|_, reply| {
            if let Some(condition) = &mut reply.volume_condition {
                condition.abnormal = true;
            }
        })
    }),
    violation("the-controller-sees-ghosts", "AL-11", "calls a good volume abnormal", || {
        Interceptor::default().reply::<ControllerGetVolumeRequest>(|_, reply| {
            let condition = reply.status.as_mut().and_then(|it| it.volume_condition.as_mut());
            condition.into_iter().for_each(|it| it.abnormal = true);
        })
    }),
];
