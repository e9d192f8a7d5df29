//! DeleteSnapshot (DS).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use csi_conformance::wire::csi::v1::{
    CreateVolumeRequest, DeleteSnapshotRequest, DeleteVolumeGroupSnapshotRequest,
};
use tonic::{Code, Status};

use super::create_snapshot::snapshot_of;
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("delete-snapshot-does-nothing", "DS-01", "says OK and does nothing", || {
        Interceptor::default().forget::<DeleteSnapshotRequest>()
    }),
    violation("delete-snapshot-misses-what-is-gone", "DS-02", "says NOT_FOUND next time", || {
        let deleted: Mutex<BTreeSet<String>> = Mutex::default();
        Interceptor::default().outcome::<DeleteSnapshotRequest>(move |request, answer| {
            let mut deleted = deleted.lock().unwrap_or_else(PoisonError::into_inner);
            if deleted.insert(request.snapshot_id.clone()) {
                return answer;
            }
            Err(Status::not_found("there is no such snapshot"))
        })
    }),
    violation("delete-snapshot-knows-its-ids", "DS-02", "refuses ids of another form", || {
        Interceptor::default().answer::<DeleteSnapshotRequest>(|request| {
            let foreign = request.snapshot_id.contains("nobody");
            foreign.then(|| Err(Status::invalid_argument("this is no id of a snapshot")))
        })
    }),
    violation("delete-snapshot-takes-no-id", "DS-03", "needs no id", || {
        Interceptor::default().accept::<DeleteSnapshotRequest>(Code::InvalidArgument)
    }),
    violation("delete-snapshot-keeps-members", "DS-04", "says OK and keeps a member", || {
        Interceptor::default().accept::<DeleteSnapshotRequest>(Code::InvalidArgument)
    }),
    violation(
        "delete-snapshot-wrong-code-for-members",
        "DS-05",
        "says FAILED_PRECONDITION",
        || {
            Interceptor::default()
                .recode::<DeleteSnapshotRequest>(Code::InvalidArgument, Code::FailedPrecondition)
        },
    ),
    violation("delete-snapshot-outlives-its-group", "DS-06", "keeps members", || {
        Interceptor::default().forget::<DeleteVolumeGroupSnapshotRequest>()
    }),
    violation("delete-snapshot-in-use-is-internal", "DS-07", "says INTERNAL when in use", || {
        let used: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let known = Arc::clone(&used);
        Interceptor::default()
            .ask::<CreateVolumeRequest>(move |request| {
                let mut used = used.lock().unwrap_or_else(PoisonError::into_inner);
                used.extend(snapshot_of(request));
            })
            .answer::<DeleteSnapshotRequest>(move |request| {
                let known = known.lock().unwrap_or_else(PoisonError::into_inner);
                let in_use = known.contains(&request.snapshot_id);
                in_use.then(|| Err(Status::internal("a volume depends on it")))
            })
    }),
    violation("delete-snapshot-busy-is-unavailable", "DS-08", "says UNAVAILABLE when busy", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().answer::<DeleteSnapshotRequest>(move |_| {
            let later = calls.fetch_add(1, Ordering::Relaxed) == 1;
            later.then(|| Err(Status::unavailable("another call is under way")))
        })
    }),
    violation("delete-snapshot-waits-for-others", "DS-09", "leaves it to the other call", || {
        Interceptor::default().forget::<DeleteSnapshotRequest>()
    }),
    violation("delete-snapshot-hides-errors", "DS-10", "says OK although it failed", || {
        Interceptor::default().refusal::<DeleteSnapshotRequest>(|_, _| Ok(Default::default()))
    }),
];
