//! ListSnapshots (LS).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use csi_conformance::wire::csi::v1::list_snapshots_response::Entry;
use csi_conformance::wire::csi::v1::{
    CreateSnapshotRequest, DeleteSnapshotRequest, DeleteVolumeRequest, ListSnapshotsRequest,
    ListSnapshotsResponse, Snapshot,
};
use prost::Message;
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("list-snapshots-is-missing", "LS-01", "does not know the call", || {
        Interceptor::default().unimplemented::<ListSnapshotsRequest>()
    }),
    violation("list-snapshots-hides-members", "LS-02", "leaves out members of groups", || {
        keeping(|it| it.group_snapshot_id.is_empty())
    }),
    violation("list-snapshots-hides-orphans", "LS-02", "forgets those of deleted volumes", || {
        let deleted: Arc<Mutex<Vec<String>>> = Arc::default();
        let known = Arc::clone(&deleted);
        Interceptor::default()
            .ask::<DeleteVolumeRequest>(move |request| {
                let mut deleted = deleted.lock().unwrap_or_else(PoisonError::into_inner);
                deleted.push(request.volume_id.clone());
            })
            .reply::<ListSnapshotsRequest>(move |_, reply| {
                let known = known.lock().unwrap_or_else(PoisonError::into_inner);
                keep(reply, |it| !known.contains(&it.source_volume_id));
            })
    }),
    violation("list-snapshots-before-the-cut", "LS-03", "lists what was only begun", || {
        let begun: Arc<Mutex<Vec<Snapshot>>> = Arc::default();
        let known = Arc::clone(&begun);
        Interceptor::default()
            .refusal::<CreateSnapshotRequest>(move |request, status| {
                let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
                begun.push(Snapshot {
                    snapshot_id: "begun".to_owned(),
                    source_volume_id: request.source_volume_id.clone(),
                    creation_time: Some(std::time::SystemTime::now().into()),
                    ..Snapshot::default()
                });
                Err(status)
            })
            .reply::<ListSnapshotsRequest>(move |_, reply| {
                let known = known.lock().unwrap_or_else(PoisonError::into_inner);
                let entry = |it: &Snapshot| Entry { snapshot: Some(it.clone()) };
                reply.entries.extend(known.iter().map(entry));
            })
    }),
    violation("list-snapshots-only-when-ready", "LS-04", "hides what is processed", || {
        let hides = keeping(|_| false);
        hides.reply::<CreateSnapshotRequest>(|_, reply| {
            if let Some(snapshot) = &mut reply.snapshot {
                snapshot.ready_to_use = false;
            }
        })
    }),
    violation("list-snapshots-never-ready", "LS-05", "never says that one is ready", || {
        Interceptor::default().reply::<ListSnapshotsRequest>(|_, reply| {
            for snapshot in reply.entries.iter_mut().filter_map(|it| it.snapshot.as_mut()) {
                snapshot.ready_to_use = false;
            }
        })
    }),
    violation("list-snapshots-is-stale", "LS-06", "answers what it answered before", || {
        let answers: Mutex<BTreeMap<Vec<u8>, ListSnapshotsResponse>> = Mutex::default();
        Interceptor::default().reply::<ListSnapshotsRequest>(move |request, reply| {
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            let first = answers.entry(request.encode_to_vec()).or_insert_with(|| reply.clone());
            reply.clone_from(first);
        })
    }),
    violation("list-snapshots-one-too-many", "LS-08", "returns one more than allowed", || {
        Interceptor::default().ask::<ListSnapshotsRequest>(|request| {
            request.max_entries += i32::from(request.max_entries > 0);
        })
    }),
    violation("list-snapshots-without-tokens", "LS-09", "returns no token", || {
        Interceptor::default().reply::<ListSnapshotsRequest>(|_, reply| reply.next_token.clear())
    }),
    violation("list-snapshots-zero-is-none", "LS-10", "takes 0 for none", || {
        Interceptor::default().reply::<ListSnapshotsRequest>(|request, reply| {
            if request.max_entries == 0 {
                *reply = ListSnapshotsResponse::default();
            }
        })
    }),
    violation("list-snapshots-takes-negative-caps", "LS-11", "takes -1 for all", || {
        Interceptor::default()
            .ask::<ListSnapshotsRequest>(|request| request.max_entries = request.max_entries.max(0))
    }),
    violation("list-snapshots-bad-token-is-invalid", "LS-12", "says INVALID_ARGUMENT", || {
        Interceptor::default().recode::<ListSnapshotsRequest>(Code::Aborted, Code::InvalidArgument)
    }),
    violation("list-snapshots-ignores-bad-tokens", "LS-12", "begins from the start", || {
        Interceptor::default().accept::<ListSnapshotsRequest>(Code::Aborted)
    }),
    violation("list-snapshots-has-no-end", "LS-13", "returns a token with the last page", || {
        Interceptor::default().reply::<ListSnapshotsRequest>(|request, reply| {
            if reply.next_token.is_empty() {
                reply.next_token.clone_from(&request.starting_token);
            }
        })
    }),
    violation("list-snapshots-ignores-the-volume", "LS-14", "ignores source_volume_id", || {
        Interceptor::default()
            .ask::<ListSnapshotsRequest>(|request| request.source_volume_id.clear())
    }),
    violation("list-snapshots-misses-volumes", "LS-14", "says NOT_FOUND of a volume", || {
        refusing_unknown(|request| &request.source_volume_id)
    }),
    violation("list-snapshots-ignores-the-id", "LS-15", "ignores snapshot_id", || {
        Interceptor::default().ask::<ListSnapshotsRequest>(|request| request.snapshot_id.clear())
    }),
    violation("list-snapshots-misses-snapshots", "LS-15", "says NOT_FOUND of a snapshot", || {
        refusing_unknown(|request| &request.snapshot_id)
    }),
    violation("list-snapshots-one-filter-only", "LS-16", "ignores the second filter", || {
        Interceptor::default().ask::<ListSnapshotsRequest>(|request| {
            if !request.snapshot_id.is_empty() {
                request.source_volume_id.clear();
            }
        })
    }),
    violation("list-snapshots-stumbles", "LS-17", "fails when a snapshot goes meanwhile", || {
        let changed = Arc::new(AtomicBool::new(false));
        let known = Arc::clone(&changed);
        Interceptor::default()
            .ask::<DeleteSnapshotRequest>(move |_| changed.store(true, Ordering::Relaxed))
            .answer::<ListSnapshotsRequest>(move |request| {
                let lost = known.load(Ordering::Relaxed) && !request.starting_token.is_empty();
                lost.then(|| Err(Status::internal("the token's snapshot is gone")))
            })
    }),
    violation("list-snapshots-hides-errors", "LS-18", "lists nothing when it cannot look", || {
        Interceptor::default()
            .outcome::<ListSnapshotsRequest>(|_, _| Ok(ListSnapshotsResponse::default()))
    }),
];

fn keep(reply: &mut ListSnapshotsResponse, keeps: impl Fn(&Snapshot) -> bool) {
    reply.entries.retain(|entry| entry.snapshot.as_ref().is_some_and(&keeps));
}

fn keeping(keeps: fn(&Snapshot) -> bool) -> Interceptor {
    Interceptor::default().reply::<ListSnapshotsRequest>(move |_, reply| keep(reply, keeps))
}

/// NOT_FOUND for what the suite makes up.
fn refusing_unknown(named: fn(&ListSnapshotsRequest) -> &String) -> Interceptor {
    Interceptor::default().answer::<ListSnapshotsRequest>(move |request| {
        let unknown = named(request).contains("nobody");
        unknown.then(|| Err(Status::not_found("there is no such thing")))
    })
}
