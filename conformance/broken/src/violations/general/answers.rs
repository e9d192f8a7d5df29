//! Replies, refusals, and which calls are there.

use csi_conformance::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use csi_conformance::wire::csi::v1::plugin_capability::{Service, Type};
use csi_conformance::wire::csi::v1::{
    ControllerPublishVolumeRequest, CreateVolumeGroupSnapshotRequest, CreateVolumeRequest,
    DeleteVolumeRequest, GetCapacityRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest,
    ListVolumesRequest, NodeExpandVolumeRequest, PluginCapability,
};
use tonic::codegen::http::HeaderValue;
use tonic::{Code, Status};

use super::super::without_controller;
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

/// A capability beside those that are there.
fn also(entry: PluginCapability) -> Interceptor {
    Interceptor::default().reply::<GetPluginCapabilitiesRequest>(move |_, reply| {
        reply.capabilities.push(entry);
    })
}

pub(super) const ALL: &[Violation] = &[
    violation("version-of-200-bytes", "GEN-01", "returns a string of 200 bytes", || {
        Interceptor::default().reply::<GetPluginInfoRequest>(|_, reply| {
            reply.vendor_version = "1".repeat(200);
        })
    }),
    violation("manifest-of-5000-bytes", "GEN-02", "returns a map of 5000 bytes", || {
        Interceptor::default().reply::<GetPluginInfoRequest>(|_, reply| {
            for number in 0..50 {
                reply.manifest.insert(format!("{number:0>20}"), "x".repeat(80));
            }
        })
    }),
    violation("entries-without-volumes", "GEN-08", "lists entries without their volume", || {
        Interceptor::default().reply::<ListVolumesRequest>(|_, reply| {
            reply.entries.iter_mut().for_each(|entry| entry.volume = None);
        })
    }),
    violation("group-without-members", "GEN-09", "returns a group without its members", || {
        Interceptor::default().reply::<CreateVolumeGroupSnapshotRequest>(|_, reply| {
            reply.group_snapshot.iter_mut().for_each(|group| group.snapshots.clear());
        })
    }),
    violation("refusals-without-a-status", "GEN-14", "refuses without a status", || {
        Interceptor::default().headers(|_, headers| {
            headers.remove("grpc-status");
        })
    }),
    violation("a-code-of-its-own", "GEN-15", "refuses with code 42", || {
        Interceptor::default().headers(|_, headers| {
            if headers.contains_key("grpc-status") {
                headers.insert("grpc-status", HeaderValue::from_static("42"));
            }
        })
    }),
    violation("refusals-without-a-text", "GEN-16", "refuses without a word", || {
        Interceptor::default().every_status(|_, status| Status::new(status.code(), ""))
    }),
    violation("refusals-with-details", "GEN-17", "adds details to refusals", || {
        Interceptor::default().every_status(|_, status| {
            let details = b"\x08\x03".to_vec().into();
            Status::with_details(status.code(), status.message(), details)
        })
    }),
    violation(
        "deletes-without-storage",
        "GEN-18",
        "says that a volume is deleted whatever came of it",
        || Interceptor::default().outcome::<DeleteVolumeRequest>(|_, _| Ok(Default::default())),
    ),
    violation("bad-token-is-invalid", "GEN-19", "answers a wrong token with another code", || {
        Interceptor::default().recode::<ListVolumesRequest>(Code::Aborted, Code::InvalidArgument)
    }),
    violation("another-size-is-fine", "GEN-19", "takes a volume of another size for it", || {
        Interceptor::default().accept::<CreateVolumeRequest>(Code::AlreadyExists)
    }),
    violation("unknown-node-is-internal", "GEN-19", "fails at an unknown node", || {
        Interceptor::default()
            .recode::<ControllerPublishVolumeRequest>(Code::NotFound, Code::Internal)
    }),
    violation("unknown-calls-are-internal", "GEN-22", "fails at a call it does not know", || {
        Interceptor::default().every_status(|_, status| {
            let unknown = status.code() == Code::Unimplemented;
            if unknown { Status::internal("no such call") } else { status }
        })
    }),
    violation(
        "get-capacity-is-secretly-there",
        "GEN-22",
        "serves a call that it does not advertise",
        || without_controller(&[Rpc::GetCapacity]),
    ),
    violation("empty-requests-crash", "GEN-28", "crashes at an empty request", || {
        Interceptor::default().answer::<NodeExpandVolumeRequest>(|request| {
            let crashed = Status::unknown("a panic in the handler");
            request.volume_id.is_empty().then_some(Err(crashed))
        })
    }),
    violation(
        "get-capacity-is-not-there",
        "GEN-29",
        "advertises GET_CAPACITY and does not have it",
        || Interceptor::default().unimplemented::<GetCapacityRequest>(),
    ),
    violation("a-capability-of-nothing", "GEN-40", "returns a capability that is not set", || {
        also(PluginCapability { r#type: None })
    }),
    violation("a-capability-unknown", "GEN-40", "returns the capability UNKNOWN", || {
        also(PluginCapability { r#type: Some(Type::Service(Service { r#type: 0 })) })
    }),
];
