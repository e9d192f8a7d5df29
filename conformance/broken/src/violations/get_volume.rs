//! ControllerGetVolume (GV).

use std::sync::{Mutex, PoisonError};

use csi_conformance::wire::csi::v1::controller_get_volume_response::VolumeStatus;
use csi_conformance::wire::csi::v1::{
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, Volume,
};
use tonic::Code;

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

type Get = ControllerGetVolumeRequest;

pub(super) const ALL: &[Violation] = &[
    violation("get-volume-is-missing", "GV-01", "does not know the call it offers", || {
        Interceptor::default().unimplemented::<Get>()
    }),
    violation("get-volume-returns-nothing", "GV-02", "leaves out the volume", || {
        Interceptor::default().reply::<Get>(|_, reply| reply.volume = None)
    }),
    violation("get-volume-has-no-status", "GV-03", "leaves out the status", || {
        Interceptor::default().reply::<Get>(|_, reply| reply.status = None)
    }),
    violation("get-volume-is-stale", "GV-04", "tells the size of the creation for ever", || {
        let first = Mutex::new(None);
        Interceptor::default().reply::<Get>(move |_, reply| {
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(volume) = &mut reply.volume {
                volume.capacity_bytes = *first.get_or_insert(1 << 30);
            }
        })
    }),
    violation("get-volume-tells-no-condition", "GV-05", "leaves out the condition", || {
        Interceptor::default().reply::<Get>(|_, reply| {
            if let Some(status) = &mut reply.status {
                status.volume_condition = None;
            }
        })
    }),
    violation("get-volume-knows-no-nodes", "GV-06", "does not say where it is published", || {
        Interceptor::default().reply::<Get>(|_, reply| {
            if let Some(status) = &mut reply.status {
                status.published_node_ids.clear();
            }
        })
    }),
    violation("get-volume-takes-no-id", "GV-07", "answers NOT_FOUND for a missing id", || {
        Interceptor::default().recode::<Get>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("get-volume-invents", "GV-08", "answers OK for a volume that is gone", || {
        Interceptor::default().accept::<Get>(Code::NotFound)
    }),
    violation("get-volume-hides-failures", "GV-10", "answers OK where the storage failed", || {
        let healthy = |request: &Get| {
            let volume = Volume { volume_id: request.volume_id.clone(), ..Volume::default() };
            let status = Some(VolumeStatus::default());
            ControllerGetVolumeResponse { volume: Some(volume), status }
        };
        Interceptor::default().outcome::<Get>(move |request, answer| match answer {
            Ok(reply) if !is_sick(&reply) => Ok(reply),
            Ok(_) | Err(_) => Ok(healthy(request)),
        })
    }),
];

fn is_sick(reply: &ControllerGetVolumeResponse) -> bool {
    let condition = reply.status.as_ref().and_then(|status| status.volume_condition.as_ref());
    condition.is_some_and(|condition| condition.abnormal)
}
