//! ControllerExpandVolume (CE).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use csi_conformance::wire::csi::v1::node_service_capability::{self, rpc};
use csi_conformance::wire::csi::v1::plugin_capability::{self, volume_expansion};
use csi_conformance::wire::csi::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerPublishVolumeRequest,
    GetPluginCapabilitiesRequest, NodeGetCapabilitiesRequest,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("expand-volume-is-missing", "CE-01", "does not know the call", || {
        Interceptor::default().unimplemented::<ControllerExpandVolumeRequest>()
    }),
    violation("expand-volume-adds-up", "CE-02", "grows again at each call", || {
        let calls = AtomicI64::new(0);
        Interceptor::default().ask::<ControllerExpandVolumeRequest>(move |request| {
            let number = calls.fetch_add(1, Ordering::Relaxed);
            if let Some(range) = &mut request.capacity_range {
                range.required_bytes += number << 30;
            }
        })
    }),
    violation("expand-volume-refuses-what-is-done", "CE-03", "says OUT_OF_RANGE", || {
        Interceptor::default().outcome::<ControllerExpandVolumeRequest>(|request, answer| {
            match answer {
                Ok(reply) if required(request) < reply.capacity_bytes => {
                    Err(Status::out_of_range("it is larger already"))
                }
                other => other,
            }
        })
    }),
    violation("expand-volume-takes-no-id", "CE-04", "says NOT_FOUND without an id", || {
        Interceptor::default()
            .recode::<ControllerExpandVolumeRequest>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("expand-volume-takes-no-range", "CE-05", "needs no range", || {
        Interceptor::default().accept::<ControllerExpandVolumeRequest>(Code::InvalidArgument)
    }),
    violation("expand-volume-returns-the-old-size", "CE-06", "returns the old capacity", || {
        Interceptor::default()
            .reply::<ControllerExpandVolumeRequest>(|_, reply| reply.capacity_bytes /= 2)
    }),
    violation("expand-volume-forgets-the-node", "CE-07", "leaves the filesystem small", || {
        needs_no_node()
    })
    .on_real(),
    violation("expand-volume-forgets-the-device", "CE-08", "leaves the device small", || {
        needs_no_node()
    })
    .on_real(),
    violation(
        "expand-volume-needs-a-node-that-cannot",
        "CE-09",
        "asks for what is not there",
        || {
            Interceptor::default().reply::<NodeGetCapabilitiesRequest>(|_, reply| {
                reply.capabilities.retain(|it| {
                    let Some(node_service_capability::Type::Rpc(rpc)) = &it.r#type else {
                        return true;
                    };
                    rpc.r#type() != rpc::Type::ExpandVolume
                });
            })
        },
    ),
    violation("expand-volume-ignores-the-capability", "CE-10", "ignores the capability", || {
        Interceptor::default()
            .ask::<ControllerExpandVolumeRequest>(|request| request.volume_capability = None)
    }),
    violation("expand-volume-of-nothing-is-invalid", "CE-11", "says INVALID_ARGUMENT", || {
        Interceptor::default()
            .recode::<ControllerExpandVolumeRequest>(Code::NotFound, Code::InvalidArgument)
    }),
    violation("expand-volume-in-use-although-offline", "CE-12", "grows what is in use", offline),
    violation("expand-volume-huge-is-exhausted", "CE-13", "says RESOURCE_EXHAUSTED", || {
        Interceptor::default()
            .recode::<ControllerExpandVolumeRequest>(Code::OutOfRange, Code::ResourceExhausted)
    }),
    violation("expand-volume-not-in-use", "CE-14", "refuses what is in use", || {
        refusing_once_published(Interceptor::default())
    }),
    violation("expand-volume-in-use-for-ever", "CE-15", "does not see the end of a use", || {
        refusing_once_published(offline())
    }),
    violation("expand-volume-ignores-the-limit", "CE-16", "ignores limit_bytes", || {
        Interceptor::default().ask::<ControllerExpandVolumeRequest>(|request| {
            if let Some(range) = &mut request.capacity_range {
                range.limit_bytes = 0;
            }
        })
    }),
    violation("expand-volume-shrinks", "CE-17", "makes a volume as small as asked for", || {
        Interceptor::default().reply::<ControllerExpandVolumeRequest>(|request, reply| {
            reply.capacity_bytes = required(request);
        })
    }),
    violation("expand-volume-does-nothing", "CE-18", "says OK and does nothing", does_nothing),
    violation("expand-volume-needs-a-capability", "CE-19", "needs the capability", || {
        Interceptor::default().answer::<ControllerExpandVolumeRequest>(|request| {
            let missing = request.volume_capability.is_none();
            missing.then(|| Err(Status::invalid_argument("volume_capability is missing")))
        })
    }),
    violation("expand-volume-hides-errors", "CE-20", "says OK although it failed", || {
        Interceptor::default()
            .refusal::<ControllerExpandVolumeRequest>(|request, _| Ok(as_asked(request)))
    }),
];

fn required(request: &ControllerExpandVolumeRequest) -> i64 {
    request.capacity_range.map(|range| range.required_bytes).unwrap_or_default()
}

fn as_asked(request: &ControllerExpandVolumeRequest) -> ControllerExpandVolumeResponse {
    ControllerExpandVolumeResponse {
        capacity_bytes: required(request),
        node_expansion_required: true,
    }
}

fn does_nothing() -> Interceptor {
    Interceptor::default()
        .answer::<ControllerExpandVolumeRequest>(|request| Some(Ok(as_asked(request))))
}

fn needs_no_node() -> Interceptor {
    Interceptor::default().reply::<ControllerExpandVolumeRequest>(|_, reply| {
        reply.node_expansion_required = false;
    })
}

/// Says that volumes in use cannot grow.
fn offline() -> Interceptor {
    Interceptor::default().reply::<GetPluginCapabilitiesRequest>(|_, reply| {
        for capability in &mut reply.capabilities {
            if let Some(plugin_capability::Type::VolumeExpansion(kind)) = &mut capability.r#type {
                kind.set_type(volume_expansion::Type::Offline);
            }
        }
    })
}

fn refusing_once_published(interceptor: Interceptor) -> Interceptor {
    let published = Arc::new(AtomicBool::new(false));
    let known = Arc::clone(&published);
    interceptor
        .ask::<ControllerPublishVolumeRequest>(move |_| published.store(true, Ordering::Relaxed))
        .answer::<ControllerExpandVolumeRequest>(move |_| {
            let in_use = known.load(Ordering::Relaxed);
            in_use.then(|| Err(Status::failed_precondition("the volume is in use")))
        })
}
