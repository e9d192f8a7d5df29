//! NodeUnpublishVolume (NN).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use csi_conformance::wire::csi::v1::{NodeGetVolumeStatsRequest, NodeUnpublishVolumeRequest};
use tonic::{Code, Status};

use super::unknown;
use crate::interceptor::Interceptor;
use crate::mistakes::{hiding_failures, refusing_long_paths, refusing_repeats};
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("unpublish-is-missing", "NN-01", "does not have the call", || {
        Interceptor::default().unimplemented::<NodeUnpublishVolumeRequest>()
    }),
    violation("unpublish-does-nothing", "NN-02", "says OK and does nothing", || {
        Interceptor::default().forget::<NodeUnpublishVolumeRequest>()
    }),
    violation("unpublish-leaves-the-mount", "NN-02", "leaves the volume mounted", || {
        Interceptor::default().forget::<NodeUnpublishVolumeRequest>()
    })
    .on_real(),
    violation("unpublish-leaves-the-target", "NN-03", "leaves an empty directory", || {
        Interceptor::default().reply::<NodeUnpublishVolumeRequest>(|it, _| {
            let _ = std::fs::create_dir(&it.target_path);
        })
    })
    .on_real(),
    violation("unpublish-is-not-idempotent", "NN-04", "says NOT_FOUND to a repeat", || {
        refusing_repeats::<NodeUnpublishVolumeRequest>(Code::NotFound, |it| it.target_path.clone())
    }),
    violation("unpublish-takes-no-volume-id", "NN-05", "does not look for volume_id", || {
        Interceptor::default().accept::<NodeUnpublishVolumeRequest>(Code::InvalidArgument)
    }),
    violation("unpublish-misses-a-target-late", "NN-06", "says NOT_FOUND", || {
        Interceptor::default()
            .recode::<NodeUnpublishVolumeRequest>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("unpublish-has-an-internal-error", "NN-07", "says INTERNAL", || {
        Interceptor::default().answer::<NodeUnpublishVolumeRequest>(|it| {
            unknown(&it.volume_id).then(|| Err(Status::internal("no such record")))
        })
    }),
    violation("unpublish-takes-short-paths-only", "NN-09", "refuses a path of 128 bytes", || {
        refusing_long_paths::<NodeUnpublishVolumeRequest>(|it| &it.target_path)
    }),
    violation("unpublish-takes-all-targets", "NN-10", "takes back every target", all_targets),
    violation("unpublish-hides-a-busy-mount", "NN-11", "says OK although it is mounted", || {
        hiding_failures::<NodeUnpublishVolumeRequest>()
    })
    .on_real(),
];

/// Known by the numbers of a volume: it is published nowhere any more.
fn all_targets() -> Interceptor {
    let gone = Arc::new(Mutex::new(BTreeSet::new()));
    let asked = Arc::clone(&gone);
    Interceptor::default()
        .reply::<NodeUnpublishVolumeRequest>(move |it, _| {
            gone.lock().unwrap_or_else(PoisonError::into_inner).insert(it.volume_id.clone());
        })
        .answer::<NodeGetVolumeStatsRequest>(move |it| {
            let gone = asked.lock().unwrap_or_else(PoisonError::into_inner);
            gone.contains(&it.volume_id).then(|| Err(Status::not_found("it is not there")))
        })
}
