//! NodeUnstageVolume (NU).

use std::path::Path;

use csi_conformance::wire::csi::v1::NodeUnstageVolumeRequest;
use tonic::{Code, Status};

use super::unknown;
use crate::interceptor::Interceptor;
use crate::mistakes::{hiding_failures, refusing, refusing_long_paths, refusing_repeats};
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("unstage-is-missing", "NU-01", "lists a call that it does not have", || {
        Interceptor::default().unimplemented::<NodeUnstageVolumeRequest>()
    }),
    violation("unstage-does-nothing", "NU-02", "says OK and does nothing", || {
        Interceptor::default().forget::<NodeUnstageVolumeRequest>()
    }),
    violation("unstage-leaves-the-mount", "NU-07", "leaves the volume mounted on the node", || {
        Interceptor::default().forget::<NodeUnstageVolumeRequest>()
    })
    .on_real(),
    violation("unstage-is-not-idempotent", "NU-03", "says NOT_FOUND to a repeat", || {
        refusing_repeats::<NodeUnstageVolumeRequest>(Code::NotFound, |it| {
            it.staging_target_path.clone()
        })
    }),
    violation("unstage-takes-no-volume-id", "NU-04", "does not look for volume_id", || {
        Interceptor::default().accept::<NodeUnstageVolumeRequest>(Code::InvalidArgument)
    }),
    violation("unstage-takes-no-path", "NU-05", "takes a missing path for nothing staged", || {
        Interceptor::default().accept::<NodeUnstageVolumeRequest>(Code::InvalidArgument)
    }),
    violation("unstage-knows-issued-ids-only", "NU-06", "says INVALID_ARGUMENT", || {
        Interceptor::default().answer::<NodeUnstageVolumeRequest>(|it| {
            unknown(&it.volume_id).then(|| Err(Status::invalid_argument("a malformed volume_id")))
        })
    }),
    violation("unstage-takes-short-paths-only", "NU-08", "refuses a path of 128 bytes", || {
        refusing_long_paths::<NodeUnstageVolumeRequest>(|it| &it.staging_target_path)
    }),
    violation("unstage-needs-the-directory", "NU-09", "fails when the directory is gone", || {
        refusing::<NodeUnstageVolumeRequest>(Code::Internal, |it| {
            !Path::new(&it.staging_target_path).exists()
        })
    })
    .on_real(),
    violation("unstage-hides-a-busy-mount", "NU-10", "says OK although it is mounted", || {
        hiding_failures::<NodeUnstageVolumeRequest>()
    })
    .on_real(),
];
