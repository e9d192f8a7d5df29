//! DeleteVolume (DV).

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use csi_conformance::wire::csi::v1::{
    CreateSnapshotRequest, CreateVolumeRequest, DeleteVolumeRequest, DeleteVolumeResponse,
    ListSnapshotsRequest,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("delete-volume-is-missing", "DV-01", "does not know the call it offers", || {
        Interceptor::default().unimplemented::<DeleteVolumeRequest>()
    }),
    violation(
        "delete-volume-only-once",
        "DV-02",
        "answers NOT_FOUND when a volume is deleted again",
        || {
            let gone = Mutex::new(HashSet::<String>::new());
            Interceptor::default().answer::<DeleteVolumeRequest>(move |request| {
                let mut gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
                let first = gone.insert(request.volume_id.clone());
                (!first).then(|| Err(Status::not_found("there is no such volume")))
            })
        },
    ),
    violation(
        "delete-volume-does-nothing",
        "DV-02",
        "says that the volume is deleted and leaves it",
        || Interceptor::default().forget::<DeleteVolumeRequest>(),
    ),
    violation(
        "delete-volume-takes-no-id",
        "DV-04",
        "answers OK although the id is missing",
        || Interceptor::default().accept::<DeleteVolumeRequest>(Code::InvalidArgument),
    ),
    violation(
        "delete-volume-forgets-snapshots",
        "DV-06",
        "no longer lists the snapshots of a volume that is gone",
        || {
            let gone = Mutex::new(HashSet::<String>::new());
            let recorded = std::sync::Arc::new(gone);
            let noted = std::sync::Arc::clone(&recorded);
            Interceptor::default()
                .reply::<DeleteVolumeRequest>(move |request, _| {
                    let mut gone = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    gone.insert(request.volume_id.clone());
                })
                .reply::<ListSnapshotsRequest>(move |_, reply| {
                    let gone = recorded.lock().unwrap_or_else(PoisonError::into_inner);
                    reply.entries.retain(|entry| {
                        let source = entry.snapshot.as_ref().map(|it| &it.source_volume_id);
                        source.is_none_or(|source| !gone.contains(source))
                    });
                })
        },
    ),
    violation(
        "delete-volume-loses-snapshots",
        "DV-06",
        "cannot restore the snapshot of a volume that is gone",
        || {
            let broken = Mutex::new(false);
            let broken = std::sync::Arc::new(broken);
            let set = std::sync::Arc::clone(&broken);
            Interceptor::default()
                .reply::<DeleteVolumeRequest>(move |_, _| {
                    *set.lock().unwrap_or_else(PoisonError::into_inner) = true;
                })
                .answer::<CreateVolumeRequest>(move |request| {
                    let broken = *broken.lock().unwrap_or_else(PoisonError::into_inner);
                    let copy = request.volume_content_source.is_some();
                    (broken && copy).then(|| Err(Status::internal("the data is gone")))
                })
        },
    ),
    violation(
        "delete-volume-damages-what-it-keeps",
        "DV-07",
        "refuses to delete a volume with snapshots and deletes it all the same",
        || {
            let sources = std::sync::Arc::new(Mutex::new(HashSet::<String>::new()));
            let noted = std::sync::Arc::clone(&sources);
            Interceptor::default()
                .reply::<CreateSnapshotRequest>(move |request, _| {
                    let mut sources = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    sources.insert(request.source_volume_id.clone());
                })
                .outcome::<DeleteVolumeRequest>(move |request, answer| {
                    let sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
                    if sources.contains(&request.volume_id) {
                        return Err(Status::failed_precondition("it has snapshots"));
                    }
                    answer
                })
        },
    ),
    violation(
        "delete-volume-in-use-is-internal",
        "DV-08",
        "answers INTERNAL where a volume is in use",
        || {
            Interceptor::default()
                .recode::<DeleteVolumeRequest>(Code::FailedPrecondition, Code::Internal)
        },
    ),
    violation(
        "delete-volume-in-use",
        "DV-08",
        "says that it deleted a volume that is in use",
        || Interceptor::default().accept::<DeleteVolumeRequest>(Code::FailedPrecondition),
    ),
    violation(
        "delete-volume-hides-failures",
        "DV-09",
        "answers OK where the storage failed",
        || {
            Interceptor::default()
                .refusal::<DeleteVolumeRequest>(|_, _| Ok(DeleteVolumeResponse::default()))
        },
    ),
    violation(
        "delete-volume-wants-its-own-ids",
        "DV-10",
        "answers INVALID_ARGUMENT for an id that it never issued",
        || {
            Interceptor::default().answer::<DeleteVolumeRequest>(|request| {
                let foreign = request.volume_id.starts_with("nobody");
                foreign.then(|| Err(Status::invalid_argument("volume_id is not one of ours")))
            })
        },
    ),
];
