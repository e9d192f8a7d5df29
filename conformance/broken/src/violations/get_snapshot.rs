//! GetSnapshot (GS).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use csi_conformance::wire::csi::v1::{
    CreateSnapshotRequest, GetSnapshotRequest, GetSnapshotResponse, Snapshot,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("get-snapshot-is-missing", "GS-01", "does not know the call", || {
        Interceptor::default().unimplemented::<GetSnapshotRequest>()
    }),
    violation("get-snapshot-knows-no-members", "GS-02", "does not find members of groups", || {
        Interceptor::default().outcome::<GetSnapshotRequest>(|_, answer| match answer {
            Ok(reply) if is_member(&reply) => Err(Status::not_found("there is no such snapshot")),
            other => other,
        })
    }),
    violation("get-snapshot-returns-nothing", "GS-03", "leaves the snapshot out", || {
        Interceptor::default().reply::<GetSnapshotRequest>(|_, reply| reply.snapshot = None)
    }),
    violation("get-snapshot-remembers", "GS-04", "still finds what was deleted", || {
        let seen: Mutex<BTreeMap<String, GetSnapshotResponse>> = Mutex::default();
        Interceptor::default().outcome::<GetSnapshotRequest>(move |request, answer| {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            match answer {
                Ok(reply) => {
                    seen.insert(request.snapshot_id.clone(), reply.clone());
                    Ok(reply)
                }
                Err(status) => seen.get(&request.snapshot_id).cloned().ok_or(status),
            }
        })
    }),
    violation("get-snapshot-is-never-ready", "GS-04", "says that none is ready", || {
        Interceptor::default().reply::<GetSnapshotRequest>(|_, reply| {
            if let Some(snapshot) = &mut reply.snapshot {
                snapshot.ready_to_use = false;
            }
        })
    }),
    violation("get-snapshot-only-when-ready", "GS-05", "hides what is processed", || {
        let hides = Interceptor::default().answer::<GetSnapshotRequest>(|_| {
            Some(Err(Status::not_found("the snapshot is being processed")))
        });
        hides.reply::<CreateSnapshotRequest>(|_, reply| {
            if let Some(snapshot) = &mut reply.snapshot {
                snapshot.ready_to_use = false;
            }
        })
    }),
    violation("get-snapshot-takes-no-id", "GS-06", "says NOT_FOUND without an id", || {
        Interceptor::default().recode::<GetSnapshotRequest>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("get-snapshot-of-nothing-is-invalid", "GS-07", "says INVALID_ARGUMENT", || {
        Interceptor::default().recode::<GetSnapshotRequest>(Code::NotFound, Code::InvalidArgument)
    }),
    violation("get-snapshot-hides-errors", "GS-08", "makes up what it cannot read", || {
        Interceptor::default().refusal::<GetSnapshotRequest>(|request, _| {
            let snapshot = Snapshot {
                snapshot_id: request.snapshot_id.clone(),
                source_volume_id: "unknown".to_owned(),
                creation_time: Some(std::time::SystemTime::now().into()),
                ..Snapshot::default()
            };
            Ok(GetSnapshotResponse { snapshot: Some(snapshot) })
        })
    }),
];

fn is_member(reply: &GetSnapshotResponse) -> bool {
    reply.snapshot.as_ref().is_some_and(|it| !it.group_snapshot_id.is_empty())
}
