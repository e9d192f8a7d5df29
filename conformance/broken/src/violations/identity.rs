//! GetPluginInfo, GetPluginCapabilities, Probe.

use std::sync::atomic::{AtomicUsize, Ordering};

use csi_conformance::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use csi_conformance::wire::csi::v1::plugin_capability::service::Type as Service;
use csi_conformance::wire::csi::v1::plugin_capability::volume_expansion::Type as Expansion;
use csi_conformance::wire::csi::v1::plugin_capability::{Type, VolumeExpansion};
use csi_conformance::wire::csi::v1::{
    ControllerExpandVolumeRequest, ControllerGetCapabilitiesRequest, GetMetadataDeltaRequest,
    GetPluginCapabilitiesRequest, GetPluginInfoRequest, GroupControllerGetCapabilitiesRequest,
    NodeExpandVolumeRequest, NodeGetCapabilitiesRequest, ProbeRequest,
};
use tonic::{Code, Status};

use super::{without_controller, without_plugin};
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

fn named(name: &'static str) -> Interceptor {
    Interceptor::default()
        .reply::<GetPluginInfoRequest>(move |_, reply| reply.name = name.to_owned())
}

/// Says OFFLINE where it means ONLINE.
fn offline(interceptor: Interceptor) -> Interceptor {
    interceptor.reply::<GetPluginCapabilitiesRequest>(|_, reply| {
        for entry in &mut reply.capabilities {
            if matches!(entry.r#type, Some(Type::VolumeExpansion(_))) {
                let r#type = Expansion::Offline.into();
                entry.r#type = Some(Type::VolumeExpansion(VolumeExpansion { r#type }));
            }
        }
    })
}

pub(super) const ALL: &[Violation] = &[
    violation("no-probe", "ID-01", "has no Probe", || {
        Interceptor::default().unimplemented::<ProbeRequest>()
    }),
    violation("no-name", "ID-02", "does not say its name", || named("")),
    violation("no-version", "ID-07", "does not say its version", || {
        Interceptor::default()
            .reply::<GetPluginInfoRequest>(|_, reply| reply.vendor_version.clear())
    }),
    violation("a-manifest-without-end", "ID-08", "has a manifest of 8000 bytes", || {
        Interceptor::default().reply::<GetPluginInfoRequest>(|_, reply| {
            for number in 0..100 {
                reply.manifest.insert(format!("{number:0>20}"), "x".repeat(60));
            }
        })
    }),
    violation("a-name-of-64-characters", "ID-03", "has a name that is too long", || {
        named("a123456789.b123456789.c123456789.d123456789.e123456789.f12345678")
    }),
    violation("a-name-with-an-underscore", "ID-04", "has an underscore in its name", || {
        named("storage_plugin.example")
    }),
    violation("a-name-with-an-empty-label", "ID-05", "has a name that is no domain", || {
        named("storage..example")
    }),
    violation("no-capabilities", "ID-10", "has no GetPluginCapabilities", || {
        Interceptor::default().unimplemented::<GetPluginCapabilitiesRequest>()
    }),
    violation("the-controller-is-a-secret", "ID-12", "does not report its controller", || {
        without_plugin(Service::ControllerService)
    }),
    violation("there-is-no-controller", "ID-13", "reports a controller it lacks", || {
        Interceptor::default().unimplemented::<ControllerGetCapabilitiesRequest>()
    }),
    violation("places-are-a-secret", "ID-14", "does not report that it has places", || {
        without_plugin(Service::VolumeAccessibilityConstraints)
    }),
    violation("there-is-no-group-controller", "ID-15", "reports one that it lacks", || {
        Interceptor::default().unimplemented::<GroupControllerGetCapabilitiesRequest>()
    }),
    violation("half-of-snapshot-metadata", "ID-16", "has one of two streams", || {
        Interceptor::default().unimplemented::<GetMetadataDeltaRequest>()
    }),
    violation("expansion-without-a-call", "ID-17", "reports expansion it lacks", || {
        without_controller(&[Rpc::ExpandVolume])
            .reply::<NodeGetCapabilitiesRequest>(|_, reply| reply.capabilities.clear())
    }),
    violation("online-is-offline", "ID-18", "does not expand what is published", || {
        Interceptor::default().answer::<ControllerExpandVolumeRequest>(|_| {
            Some(Err(Status::failed_precondition("the volume is in use")))
        })
    }),
    violation("the-node-is-offline", "ID-19", "does not expand on the node", || {
        Interceptor::default().answer::<NodeExpandVolumeRequest>(|_| {
            Some(Err(Status::failed_precondition("the volume is in use")))
        })
    }),
    violation("offline-is-online", "ID-20", "expands what is published all the same", || {
        offline(Interceptor::default())
    }),
    violation("offline-without-a-call", "ID-21", "reports expansion it lacks", || {
        offline(without_controller(&[Rpc::ExpandVolume]))
    }),
    violation("probe-only-now-and-then", "ID-23", "limits how often it is probed", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().answer::<ProbeRequest>(move |_| {
            let tired = Status::resource_exhausted("too many probes");
            (calls.fetch_add(1, Ordering::Relaxed) > 50).then_some(Err(tired))
        })
    }),
    violation("unhealthy-is-internal", "ID-24", "reports ill health with INTERNAL", || {
        Interceptor::default().recode::<ProbeRequest>(Code::FailedPrecondition, Code::Internal)
    }),
    violation("never-ready", "ID-27", "is never ready", || {
        Interceptor::default().reply::<ProbeRequest>(|_, reply| reply.ready = Some(false))
    }),
    violation("always-healthy", "ID-31", "is healthy without storage", || {
        Interceptor::default().accept::<ProbeRequest>(Code::FailedPrecondition)
    }),
];
