//! GetCapacity (GC).

use std::sync::{Mutex, PoisonError};

use csi_conformance::wire::csi::v1::{
    GetCapacityRequest, GetCapacityResponse, GetPluginCapabilitiesRequest, ProbeRequest,
    ProbeResponse, plugin_capability,
};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

type Get = GetCapacityRequest;

pub(super) const ALL: &[Violation] = &[
    violation("capacity-is-missing", "GC-01", "does not know the call it offers", || {
        Interceptor::default().unimplemented::<Get>()
    }),
    violation("capacity-ignores-use", "GC-02", "counts all room for every capability", || {
        Interceptor::default().ask::<Get>(|request| request.volume_capabilities.clear())
    }),
    violation("capacity-ignores-parameters", "GC-03", "counts all room for all parameters", || {
        Interceptor::default().ask::<Get>(|request| request.parameters.clear())
    }),
    violation("capacity-ignores-the-place", "GC-04", "counts all room for every place", || {
        Interceptor::default().ask::<Get>(|request| request.accessible_topology = None)
    }),
    violation("capacity-takes-a-place", "GC-05", "takes a place and does not offer places", || {
        Interceptor::default()
            .reply::<GetPluginCapabilitiesRequest>(|_, reply| {
                use plugin_capability::service::Type::VolumeAccessibilityConstraints;
                reply.capabilities.retain(|entry| {
                    !matches!(&entry.r#type, Some(plugin_capability::Type::Service(service))
                        if service.r#type() == VolumeAccessibilityConstraints)
                });
            })
            .ask::<Get>(|request| request.accessible_topology = None)
    }),
    violation("capacity-in-kibibytes", "GC-06", "tells the capacity in KiB", || {
        Interceptor::default().reply::<Get>(|_, reply| reply.available_capacity >>= 10)
    }),
    violation("capacity-is-unknown", "GC-06", "answers -1 for a capacity", || {
        Interceptor::default().reply::<Get>(|_, reply| reply.available_capacity = -1)
    }),
    violation("capacity-has-no-largest", "GC-07", "answers -1 for the largest size", || {
        Interceptor::default().reply::<Get>(|_, reply| reply.maximum_volume_size = Some(-1))
    }),
    violation("capacity-hides-largest", "GC-08", "does not tell the largest size", || {
        Interceptor::default().reply::<Get>(|_, reply| reply.maximum_volume_size = None)
    }),
    violation(
        "capacity-largest-of-anything",
        "GC-09",
        "tells the largest size of any kind of volume",
        || {
            let largest = Mutex::new(0);
            Interceptor::default().reply::<Get>(move |_, reply| {
                let mut largest = largest.lock().unwrap_or_else(PoisonError::into_inner);
                *largest = reply.maximum_volume_size.unwrap_or_default().max(*largest);
                reply.maximum_volume_size = Some(*largest);
            })
        },
    ),
    violation("capacity-largest-is-too-large", "GC-10", "promises more than it can make", || {
        Interceptor::default().reply::<Get>(|_, reply| {
            reply.maximum_volume_size = reply.maximum_volume_size.map(|size| size * 2);
        })
    }),
    violation("capacity-largest-is-too-small", "GC-10", "could make more than it promises", || {
        Interceptor::default().reply::<Get>(|_, reply| {
            reply.maximum_volume_size = reply.maximum_volume_size.map(|size| size / 2);
        })
    }),
    violation("capacity-has-no-smallest", "GC-11", "answers -1 for the smallest size", || {
        Interceptor::default().reply::<Get>(|_, reply| reply.minimum_volume_size = Some(-1))
    }),
    violation("capacity-smallest-is-nothing", "GC-12", "answers 0 for the smallest size", || {
        Interceptor::default().reply::<Get>(|_, reply| reply.minimum_volume_size = Some(0))
    }),
    violation(
        "capacity-smallest-of-anything",
        "GC-13",
        "tells the smallest size of a volume that nobody asked about",
        || {
            Interceptor::default()
                .reply::<Get>(|_, reply| reply.minimum_volume_size = Some(1 << 20))
        },
    ),
    violation("capacity-smallest-is-too-small", "GC-14", "promises less than it can make", || {
        Interceptor::default().reply::<Get>(|_, reply| {
            reply.minimum_volume_size = reply.minimum_volume_size.map(|size| size / 2);
        })
    }),
    violation("capacity-hides-failures", "GC-15", "answers 0 where the storage failed", || {
        Interceptor::default()
            .refusal::<Get>(|_, _| Ok(GetCapacityResponse::default()))
            .refusal::<ProbeRequest>(|_, _| Ok(ProbeResponse::default()))
    }),
];
