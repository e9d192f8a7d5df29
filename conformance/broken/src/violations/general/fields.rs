//! Sizes, defaults and illegal values of fields.

use csi_conformance::wire::csi::v1::{
    CreateSnapshotRequest, CreateVolumeRequest, GetVolumeGroupSnapshotRequest, ListVolumesRequest,
    NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, ProbeRequest,
    ValidateVolumeCapabilitiesRequest,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

/// Refuses to publish at longer paths.
fn longest_path(longest: usize) -> Interceptor {
    Interceptor::default().answer::<NodePublishVolumeRequest>(move |request| {
        let refusal = Status::invalid_argument("target_path is too long");
        (request.target_path.len() > longest).then_some(Err(refusal))
    })
}

pub(super) const ALL: &[Violation] = &[
    violation(
        "names-are-cut-at-128-bytes",
        "GEN-04",
        "takes volumes for the same whose names differ late",
        || Interceptor::default().ask::<CreateVolumeRequest>(|request| request.name.truncate(128)),
    ),
    violation(
        "names-have-at-most-127-bytes",
        "GEN-05",
        "refuses a name that is as long as allowed",
        || {
            Interceptor::default().answer::<CreateVolumeRequest>(|request| {
                let refusal = Status::invalid_argument("name is too long");
                (request.name.len() > 127).then_some(Err(refusal))
            })
        },
    ),
    violation("paths-have-the-limit-of-names", "GEN-03", "refuses paths beyond 128 bytes", || {
        longest_path(128)
    }),
    violation(
        "paths-have-at-most-100-bytes",
        "GEN-06",
        "refuses paths that every plugin has to take",
        || longest_path(100),
    ),
    violation("paths-have-at-most-1000-bytes", "GEN-07", "refuses paths that Linux allows", || {
        longest_path(1000)
    }),
    violation(
        "capabilities-to-validate-may-be-none",
        "GEN-09",
        "validates an empty list of capabilities",
        || {
            Interceptor::default()
                .accept::<ValidateVolumeCapabilitiesRequest>(Code::InvalidArgument)
        },
    ),
    violation(
        "statistics-of-no-volume",
        "GEN-10",
        "answers NodeGetVolumeStats without an id",
        || Interceptor::default().accept::<NodeGetVolumeStatsRequest>(Code::InvalidArgument),
    ),
    violation(
        "staging-without-a-path-is-internal",
        "GEN-10",
        "answers a missing field with INTERNAL",
        || {
            Interceptor::default()
                .recode::<NodeStageVolumeRequest>(Code::InvalidArgument, Code::Internal)
        },
    ),
    violation(
        "snapshot-without-a-name",
        "GEN-10",
        "makes up a name for a snapshot without one",
        || {
            Interceptor::default().ask::<CreateSnapshotRequest>(|request| {
                if request.name.is_empty() {
                    request.name.push_str("unnamed");
                }
            })
        },
    ),
    violation(
        "group-snapshot-without-an-id",
        "GEN-10",
        "looks for a group snapshot without an id",
        || {
            Interceptor::default()
                .recode::<GetVolumeGroupSnapshotRequest>(Code::InvalidArgument, Code::NotFound)
        },
    ),
    violation("negative-pages", "GEN-11", "takes a negative max_entries for none", || {
        Interceptor::default().ask::<ListVolumesRequest>(|request| {
            request.max_entries = request.max_entries.max(0);
        })
    }),
    violation(
        "control-characters-in-names",
        "GEN-11",
        "drops control characters from names",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                request.name.retain(|c| !c.is_control());
            })
        },
    ),
    violation(
        "readonly-false-is-missing",
        "GEN-12",
        "takes readonly=false for a missing field",
        || {
            Interceptor::default().answer::<NodePublishVolumeRequest>(|request| {
                let refusal = Status::invalid_argument("readonly is missing");
                (!request.readonly).then_some(Err(refusal))
            })
        },
    ),
    violation("capacity-range-is-required", "GEN-13", "wants a capacity_range", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let refusal = Status::invalid_argument("capacity_range is missing");
            request.capacity_range.is_none().then_some(Err(refusal))
        })
    }),
    violation(
        "no-page-size-means-no-entries",
        "GEN-13",
        "lists nothing if max_entries is left out",
        || {
            Interceptor::default().reply::<ListVolumesRequest>(|request, reply| {
                if request.max_entries == 0 {
                    reply.entries.clear();
                }
            })
        },
    ),
    violation(
        "unknown-fields-are-refused",
        "GEN-39",
        "refuses a message with a field that it does not know",
        || {
            // A byte that begins no field cannot be passed over.
            let unreadable = || vec![0xff];
            Interceptor::default().ask_bytes::<ProbeRequest>(move |bytes| {
                if bytes.is_empty() { bytes } else { unreadable() }
            })
        },
    ),
];
