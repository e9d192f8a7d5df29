//! The Volume message (VO).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use csi_conformance::wire::csi::v1::plugin_capability::service::Type::VolumeAccessibilityConstraints;
use csi_conformance::wire::csi::v1::{
    ControllerExpandVolumeRequest, ControllerGetVolumeRequest, ControllerPublishVolumeRequest,
    CreateVolumeRequest, DeleteVolumeRequest, ListVolumesRequest, NodeStageVolumeRequest,
    ValidateVolumeCapabilitiesRequest, Volume,
};
use tonic::Status;

use super::without_plugin;
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

fn created(change: fn(&CreateVolumeRequest, &mut Volume)) -> Interceptor {
    Interceptor::default().reply::<CreateVolumeRequest>(move |request, reply| {
        reply.volume.iter_mut().for_each(|volume| change(request, volume));
    })
}

pub(super) const ALL: &[Violation] = &[
    violation("volumes-without-ids", "VO-01", "gets a volume without its id", || {
        Interceptor::default().reply::<ControllerGetVolumeRequest>(|_, reply| {
            reply.volume.iter_mut().for_each(|volume| volume.volume_id.clear());
        })
    }),
    violation("one-id-for-all", "VO-02", "gives every volume the same id", || {
        created(|_, volume| volume.volume_id = "volume".to_owned())
    }),
    violation("the-id-is-not-enough", "VO-03", "needs the context to find a volume", || {
        Interceptor::default().answer::<ValidateVolumeCapabilitiesRequest>(|request| {
            let refusal = Status::invalid_argument("volume_context is missing");
            request.volume_context.is_empty().then_some(Err(refusal))
        })
    }),
    violation("sizes-below-zero", "VO-04", "lists volumes with a negative size", || {
        Interceptor::default().reply::<ListVolumesRequest>(|_, reply| {
            for volume in reply.entries.iter_mut().filter_map(|entry| entry.volume.as_mut()) {
                volume.capacity_bytes = -1;
            }
        })
    }),
    violation("context-tells-the-size", "VO-05", "keeps the size in the context", || {
        let note = |volume: &mut Volume| {
            volume.volume_context.insert("size".to_owned(), volume.capacity_bytes.to_string());
        };
        Interceptor::default()
            .reply::<CreateVolumeRequest>(move |_, reply| {
                reply.volume.iter_mut().for_each(note);
            })
            .reply::<ControllerGetVolumeRequest>(move |_, reply| {
                reply.volume.iter_mut().for_each(note);
            })
            .ask::<ValidateVolumeCapabilitiesRequest>(|request| {
                request.volume_context.remove("size");
            })
    }),
    violation("context-gets-old", "VO-06", "wants another context after an expansion", || {
        let expanded = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&expanded);
        Interceptor::default()
            .ask::<ControllerExpandVolumeRequest>(move |_| noted.store(true, Ordering::Relaxed))
            .answer::<NodeStageVolumeRequest>(move |_| {
                let refusal = Status::invalid_argument("volume_context is out of date");
                expanded.load(Ordering::Relaxed).then_some(Err(refusal))
            })
    }),
    violation("context-holds-the-secrets", "VO-07", "keeps secrets in the context", || {
        created(|request, volume| volume.volume_context.extend(request.secrets.clone()))
    }),
    violation("context-is-the-name", "VO-08", "deletes volumes by their context", || {
        let deleted = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&deleted);
        Interceptor::default()
            .ask::<DeleteVolumeRequest>(move |_| noted.store(true, Ordering::Relaxed))
            .answer::<ValidateVolumeCapabilitiesRequest>(move |_| {
                let gone = Status::not_found("no such volume");
                deleted.load(Ordering::Relaxed).then_some(Err(gone))
            })
    }),
    violation("context-is-not-compared", "VO-09", "attaches with any context", || {
        Interceptor::default()
            .ask::<ControllerPublishVolumeRequest>(|request| request.volume_context.clear())
    }),
    violation("context-is-not-compared-at-stage", "VO-09", "stages with any context", || {
        Interceptor::default()
            .ask::<NodeStageVolumeRequest>(|request| request.volume_context.clear())
    }),
    violation("context-is-not-validated", "VO-09", "confirms any context", || {
        Interceptor::default()
            .ask::<ValidateVolumeCapabilitiesRequest>(|request| request.volume_context.clear())
    }),
    violation("context-left-out-is-fatal", "VO-10", "fails if the context is left out", || {
        Interceptor::default().answer::<NodeStageVolumeRequest>(|request| {
            let failed = Status::internal("no such key in the context");
            request.volume_context.is_empty().then_some(Err(failed))
        })
    }),
    violation("copies-have-no-source", "VO-11", "does not tell the source of a copy", || {
        created(|_, volume| volume.content_source = None)
    }),
    violation("places-without-announcement", "VO-12", "has places without saying so", || {
        without_plugin(VolumeAccessibilityConstraints)
    }),
];
