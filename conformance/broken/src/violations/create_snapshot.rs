//! CreateSnapshot (CS).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use csi_conformance::wire::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use csi_conformance::wire::csi::v1::{
    CreateSnapshotRequest, CreateSnapshotResponse, CreateVolumeRequest, Snapshot,
    VolumeContentSource,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation(
        "create-snapshot-is-not-idempotent",
        "CS-02",
        "makes another snapshot at each call",
        another_each_time,
    ),
    violation("create-snapshot-moves-in-time", "CS-02", "returns the time of the call", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().reply::<CreateSnapshotRequest>(move |_, reply| {
            let number = calls.fetch_add(1, Ordering::Relaxed);
            let time = reply.snapshot.as_mut().and_then(|it| it.creation_time.as_mut());
            if let (Some(time), Ok(seconds)) = (time, i64::try_from(number)) {
                time.seconds += seconds;
            }
        })
    }),
    violation("create-snapshot-cuts-late", "CS-03", "restores the volume as it is now", || {
        restores_instead(|source| Some(Type::Volume(VolumeSource { volume_id: source.to_owned() })))
    })
    .on_real(),
    violation("create-snapshot-is-empty", "CS-21", "restores nothing", || {
        restores_instead(|_| None)
    })
    .on_real(),
    violation("create-snapshot-ready-too-early", "CS-05", "is ready, yet not usable", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let busy = || Err(Status::failed_precondition("the snapshot is being uploaded"));
            snapshot_of(request).map(|_| busy())
        })
    }),
    violation(
        "create-snapshot-changes-its-id",
        "CS-06",
        "has another id until it is ready",
        || {
            let calls = AtomicUsize::new(0);
            Interceptor::default().reply::<CreateSnapshotRequest>(move |_, reply| {
                if let Some(snapshot) = &mut reply.snapshot {
                    let number = calls.fetch_add(1, Ordering::Relaxed);
                    snapshot.ready_to_use = false;
                    snapshot.snapshot_id.push_str(&number.to_string());
                }
            })
        },
    ),
    violation("create-snapshot-is-never-ready", "CS-07", "never says that it is ready", || {
        Interceptor::default().reply::<CreateSnapshotRequest>(|_, reply| {
            if let Some(snapshot) = &mut reply.snapshot {
                snapshot.ready_to_use = false;
            }
        })
    }),
    violation("create-snapshot-blames-the-caller", "CS-08", "says INVALID_ARGUMENT", || {
        Interceptor::default().refusal::<CreateSnapshotRequest>(|_, status| {
            Err(Status::invalid_argument(status.message()))
        })
    }),
    violation("create-snapshot-forgets-its-error", "CS-09", "says OK the second time", || {
        let failures = AtomicUsize::new(0);
        Interceptor::default().refusal::<CreateSnapshotRequest>(move |request, status| {
            let first = failures.fetch_add(1, Ordering::Relaxed) == 0;
            if first { Err(status) } else { Ok(imagined(request)) }
        })
    }),
    violation("create-snapshot-takes-no-source", "CS-10", "needs no source", || {
        Interceptor::default().accept::<CreateSnapshotRequest>(Code::InvalidArgument)
    }),
    violation("create-snapshot-takes-no-name", "CS-11", "invents a name", || {
        Interceptor::default().ask::<CreateSnapshotRequest>(|request| {
            if request.name.is_empty() {
                "invented".clone_into(&mut request.name);
            }
        })
    }),
    violation("create-snapshot-cleans-names", "CS-12", "drops what names must not hold", || {
        Interceptor::default()
            .ask::<CreateSnapshotRequest>(|request| request.name.retain(|it| !it.is_control()))
    }),
    violation("create-snapshot-ignores-parameters", "CS-13", "ignores parameters", || {
        Interceptor::default().ask::<CreateSnapshotRequest>(|request| request.parameters.clear())
    }),
    violation("create-snapshot-ignores-the-source", "CS-14", "returns what has the name", || {
        Interceptor::default().accept::<CreateSnapshotRequest>(Code::AlreadyExists)
    }),
    violation("create-snapshot-clash-is-invalid", "CS-14", "says INVALID_ARGUMENT", || {
        Interceptor::default()
            .recode::<CreateSnapshotRequest>(Code::AlreadyExists, Code::InvalidArgument)
    }),
    violation("create-snapshot-busy-is-internal", "CS-15", "says INTERNAL to a later call", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().answer::<CreateSnapshotRequest>(move |_| {
            let later = calls.fetch_add(1, Ordering::Relaxed) == 1;
            later.then(|| Err(Status::internal("another call is under way")))
        })
    }),
    violation(
        "create-snapshot-races",
        "CS-16",
        "makes a snapshot for each of the calls that overlap",
        another_each_time,
    ),
    violation("create-snapshot-full-is-internal", "CS-17", "says INTERNAL when full", || {
        Interceptor::default()
            .answer::<CreateSnapshotRequest>(|_| Some(Err(Status::internal("no space left"))))
    }),
    violation("create-snapshot-returns-nothing", "CS-18", "leaves the snapshot out", || {
        Interceptor::default().reply::<CreateSnapshotRequest>(|_, reply| reply.snapshot = None)
    }),
    violation("create-snapshot-returns-no-id", "CS-19", "leaves the id out", || {
        Interceptor::default().reply::<CreateSnapshotRequest>(|_, reply| {
            if let Some(snapshot) = &mut reply.snapshot {
                snapshot.snapshot_id.clear();
            }
        })
    }),
    violation("create-snapshot-missing-is-internal", "CS-20", "says INTERNAL", || {
        Interceptor::default().recode::<CreateSnapshotRequest>(Code::NotFound, Code::Internal)
    }),
    violation("create-snapshot-hides-errors", "CS-22", "says OK although it failed", || {
        Interceptor::default().refusal::<CreateSnapshotRequest>(|request, _| Ok(imagined(request)))
    }),
];

fn another_each_time() -> Interceptor {
    let calls = AtomicUsize::new(0);
    Interceptor::default().ask::<CreateSnapshotRequest>(move |request| {
        let number = calls.fetch_add(1, Ordering::Relaxed);
        request.name.push_str(&number.to_string());
    })
}

/// A reply about a snapshot that is not there.
fn imagined(request: &CreateSnapshotRequest) -> CreateSnapshotResponse {
    let snapshot = Snapshot {
        snapshot_id: "imagined".to_owned(),
        source_volume_id: request.source_volume_id.clone(),
        creation_time: Some(std::time::SystemTime::now().into()),
        ready_to_use: true,
        ..Snapshot::default()
    };
    CreateSnapshotResponse { snapshot: Some(snapshot) }
}

/// The snapshot that a new volume is to be filled from.
pub(super) fn snapshot_of(request: &CreateVolumeRequest) -> Option<String> {
    match request.volume_content_source.as_ref()?.r#type.as_ref()? {
        Type::Snapshot(SnapshotSource { snapshot_id }) => Some(snapshot_id.clone()),
        Type::Volume(_) => None,
    }
}

/// Fills new volumes from something else than the snapshot, given the snapshot's source.
fn restores_instead(other: fn(&str) -> Option<Type>) -> Interceptor {
    let sources: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
    let known = Arc::clone(&sources);
    Interceptor::default()
        .reply::<CreateSnapshotRequest>(move |request, reply| {
            let mut sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
            let id = reply.snapshot.as_ref().map(|it| it.snapshot_id.clone());
            sources.extend(id.map(|id| (id, request.source_volume_id.clone())));
        })
        .ask::<CreateVolumeRequest>(move |request| {
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(source) = snapshot_of(request).and_then(|id| known.get(&id).cloned()) {
                request.volume_content_source =
                    other(&source).map(|it| VolumeContentSource { r#type: Some(it) });
            }
        })
}
