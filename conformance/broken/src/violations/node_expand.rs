//! NodeExpandVolume (NE).

use csi_conformance::wire::csi::v1::NodeExpandVolumeRequest;
use csi_conformance::wire::csi::v1::volume_capability::AccessType;
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::mistakes::{hiding_failures, refusing, refusing_long_paths, refusing_repeats};
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("node-expand-is-missing", "NE-01", "lists a call that it does not have", || {
        Interceptor::default().unimplemented::<NodeExpandVolumeRequest>()
    }),
    violation("node-expand-is-not-idempotent", "NE-02", "refuses a repeat", || {
        refusing_repeats::<NodeExpandVolumeRequest>(Code::FailedPrecondition, |it| {
            it.volume_id.clone()
        })
    }),
    violation("node-expand-refuses-what-is-large", "NE-03", "says OUT_OF_RANGE", too_large),
    violation("node-expand-anywhere", "NE-04", "does not look at the path", || {
        Interceptor::default().accept::<NodeExpandVolumeRequest>(Code::NotFound)
    }),
    violation("node-expand-targets-only", "NE-05", "does not know the staging path", || {
        refusing::<NodeExpandVolumeRequest>(Code::NotFound, |it| {
            it.volume_path == it.staging_target_path
        })
    }),
    violation("node-expand-takes-no-volume-id", "NE-08", "does not look for volume_id", || {
        Interceptor::default().accept::<NodeExpandVolumeRequest>(Code::InvalidArgument)
    }),
    violation("node-expand-misses-a-path-late", "NE-09", "says NOT_FOUND", || {
        Interceptor::default()
            .recode::<NodeExpandVolumeRequest>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("node-expand-wants-a-range", "NE-10", "needs what is optional", || {
        refusing::<NodeExpandVolumeRequest>(Code::InvalidArgument, |it| it.capacity_range.is_none())
    }),
    violation("node-expand-wants-a-filesystem", "NE-11", "fails for a device", || {
        refusing::<NodeExpandVolumeRequest>(Code::Internal, is_block)
    }),
    violation("node-expand-wants-a-capability", "NE-12", "needs what is optional", || {
        refusing::<NodeExpandVolumeRequest>(Code::InvalidArgument, |it| {
            it.volume_capability.is_none()
        })
    }),
    violation("node-expand-finds-the-wrong-code", "NE-13", "says FAILED_PRECONDITION", || {
        Interceptor::default()
            .recode::<NodeExpandVolumeRequest>(Code::InvalidArgument, Code::FailedPrecondition)
    }),
    violation("node-expand-has-an-internal-error", "NE-14", "says INTERNAL", || {
        Interceptor::default().recode::<NodeExpandVolumeRequest>(Code::NotFound, Code::Internal)
    }),
    violation("node-expand-hides-what-cannot-grow", "NE-15", "says OK to a read-only one", || {
        hiding_failures::<NodeExpandVolumeRequest>()
    })
    .on_real(),
    violation("node-expand-promises-anything", "NE-16", "says OK to any size", || {
        Interceptor::default().accept::<NodeExpandVolumeRequest>(Code::OutOfRange)
    }),
    violation("node-expand-tells-the-old-size", "NE-17", "tells the size of before", || {
        Interceptor::default()
            .reply::<NodeExpandVolumeRequest>(|_, reply| reply.capacity_bytes /= 2)
    }),
    violation("node-expand-wants-the-staging-path", "NE-18", "needs what is optional", || {
        refusing::<NodeExpandVolumeRequest>(Code::InvalidArgument, |it| {
            it.staging_target_path.is_empty()
        })
    }),
    violation("node-expand-at-short-paths-only", "NE-19", "refuses a path of 128 bytes", || {
        refusing_long_paths::<NodeExpandVolumeRequest>(|it| &it.volume_path)
    }),
    violation("node-expand-does-nothing", "NE-20", "leaves the filesystem as it is", || {
        Interceptor::default().forget::<NodeExpandVolumeRequest>()
    })
    .on_real(),
    violation("node-expand-wants-secrets", "NE-22", "needs secrets that nobody gave it", || {
        refusing::<NodeExpandVolumeRequest>(Code::InvalidArgument, |it| it.secrets.is_empty())
    }),
];

fn is_block(request: &NodeExpandVolumeRequest) -> bool {
    let access = request.volume_capability.as_ref().and_then(|it| it.access_type.as_ref());
    matches!(access, Some(AccessType::Block(_)))
}

/// It takes the size that is asked for as the one to have, not as the least.
fn too_large() -> Interceptor {
    Interceptor::default().outcome::<NodeExpandVolumeRequest>(|it, answer| {
        let reply = answer?;
        let wanted = it.capacity_range.as_ref().map_or(i64::MAX, |range| range.required_bytes);
        if reply.capacity_bytes > wanted {
            return Err(Status::out_of_range("a volume cannot shrink"));
        }
        Ok(reply)
    })
}
