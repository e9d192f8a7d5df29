//! Protocol and security (PR).

use csi_conformance::wire::csi::v1::{
    ControllerExpandVolumeRequest, DeleteVolumeRequest, GetMetadataAllocatedRequest,
    GetPluginCapabilitiesRequest, NodeGetCapabilitiesRequest, ProbeRequest,
};
use tonic::codegen::http::HeaderValue;

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("answers-in-html", "PR-01", "says that its answers are HTML", || {
        Interceptor::default().headers(|_, headers| {
            headers.insert("content-type", HeaderValue::from_static("text/html"));
        })
    }),
    violation("another-package", "PR-02", "does not serve csi.v1.Identity", || {
        Interceptor::default().unimplemented::<ProbeRequest>()
    }),
    violation("no-node-plugin", "PR-03", "has no node plugin", || {
        Interceptor::default().unimplemented::<NodeGetCapabilitiesRequest>()
    }),
    violation("no-required-call", "PR-04", "lacks a call that every plugin has", || {
        Interceptor::default().unimplemented::<GetPluginCapabilitiesRequest>()
    }),
    violation("expansion-is-not-there", "PR-05", "advertises a call it lacks", || {
        Interceptor::default().unimplemented::<ControllerExpandVolumeRequest>()
    }),
    violation("a-service-at-another-address", "PR-08", "serves metadata elsewhere", || {
        Interceptor::default().unimplemented::<GetMetadataAllocatedRequest>()
    }),
    violation("secrets-are-printed", "PR-11", "prints secrets when deleting", || {
        Interceptor::default().ask::<DeleteVolumeRequest>(|request| {
            tracing::debug!("DeleteVolume with {:?}", request.secrets);
        })
    }),
];
