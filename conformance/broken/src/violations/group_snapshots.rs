//! Group snapshots (GG).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use csi_conformance::wire::csi::v1::volume_content_source::{Type, VolumeSource};
use csi_conformance::wire::csi::v1::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, CreateVolumeRequest,
    DeleteVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotRequest,
    GetVolumeGroupSnapshotResponse, GroupControllerGetCapabilitiesRequest, ListSnapshotsRequest,
    Snapshot, VolumeContentSource, VolumeGroupSnapshot,
};
use tonic::{Code, Status};

use super::create_snapshot::snapshot_of;
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

type Create = CreateVolumeGroupSnapshotRequest;
type Delete = DeleteVolumeGroupSnapshotRequest;
type Get = GetVolumeGroupSnapshotRequest;

pub(super) const ALL: &[Violation] = &[
    violation("group-capabilities-are-missing", "GG-01", "does not know the call", || {
        Interceptor::default().unimplemented::<GroupControllerGetCapabilitiesRequest>()
    }),
    violation("group-capabilities-vanish", "GG-02", "offers something only once", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().reply::<GroupControllerGetCapabilitiesRequest>(move |_, reply| {
            // The suite asks when it connects, and once while all is well.
            if calls.fetch_add(1, Ordering::Relaxed) > 1 {
                reply.capabilities.clear();
            }
        })
    }),
    violation("group-get-is-missing", "GG-03", "does not know GetVolumeGroupSnapshot", || {
        Interceptor::default().unimplemented::<Get>()
    }),
    violation("group-cuts-one-by-one", "GG-04", "cuts a member when it is needed", cuts_late)
        .on_real(),
    violation("group-is-not-idempotent", "GG-06", "makes another group at each call", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().ask::<Create>(move |request| {
            let number = calls.fetch_add(1, Ordering::Relaxed);
            request.name.push_str(&number.to_string());
        })
    }),
    violation("group-returns-before-the-cut", "GG-07", "names members that are not there", || {
        changed_group(|group| {
            for member in &mut group.snapshots {
                member.snapshot_id.push_str("-to-be");
            }
        })
    }),
    violation("group-blames-the-caller", "GG-08", "says INVALID_ARGUMENT", || {
        Interceptor::default()
            .refusal::<Create>(|_, status| Err(Status::invalid_argument(status.message())))
    }),
    violation("group-makes-what-it-can", "GG-09", "leaves out what is not there", || {
        Interceptor::default().refusal::<Create>(|request, status| {
            if status.code() == Code::NotFound { Ok(imagined(request)) } else { Err(status) }
        })
    }),
    violation("group-leaks-members", "GG-10", "leaves members of a group that failed", leaks),
    violation("group-forgets-itself", "GG-11", "has another id until it is ready", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().reply::<Create>(move |_, reply| {
            if let Some(group) = &mut reply.group_snapshot {
                let number = calls.fetch_add(1, Ordering::Relaxed);
                group.ready_to_use = false;
                group.group_snapshot_id.push_str(&number.to_string());
            }
        })
    }),
    violation("group-members-ready-too-early", "GG-12", "is ready, yet not usable", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let busy = || Err(Status::failed_precondition("the snapshot is being uploaded"));
            snapshot_of(request).map(|_| busy())
        })
    }),
    violation("group-takes-no-name", "GG-14", "needs no name", || {
        Interceptor::default().accept::<Create>(Code::InvalidArgument)
    }),
    violation("group-cleans-names", "GG-15", "drops what names must not hold", || {
        Interceptor::default().ask::<Create>(|request| request.name.retain(|it| !it.is_control()))
    }),
    violation("group-takes-no-volumes", "GG-16", "says NOT_FOUND without volumes", || {
        Interceptor::default().recode::<Create>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("group-ignores-parameters", "GG-17", "ignores parameters", || {
        Interceptor::default().ask::<Create>(|request| request.parameters.clear())
    }),
    violation("group-returns-nothing", "GG-18", "leaves the group out", || {
        Interceptor::default().reply::<Get>(|_, reply| reply.group_snapshot = None)
    }),
    violation("group-ids-repeat", "GG-19", "uses one id for all", || {
        changed_group(|group| "the-group".clone_into(&mut group.group_snapshot_id))
    }),
    violation("group-misses-a-member", "GG-20", "leaves a member out", || {
        changed_group(|group| drop(group.snapshots.pop()))
    }),
    violation("group-has-no-time", "GG-21", "leaves the time out", || {
        changed_group(|group| group.creation_time = None)
    }),
    violation("group-is-ready-too-early", "GG-22", "is ready before a member is", || {
        changed_group(|group| {
            if let Some(member) = group.snapshots.last_mut() {
                member.ready_to_use = false;
            }
        })
    }),
    violation("group-is-never-ready", "GG-23", "is not ready though its members are", || {
        changed_group(|group| group.ready_to_use = false)
    }),
    violation("group-members-do-not-name-it", "GG-24", "has members of no group", || {
        changed_group(|group| {
            group.snapshots.iter_mut().for_each(|it| it.group_snapshot_id.clear());
        })
    }),
    violation("group-members-are-no-sources", "GG-25", "refuses to restore a member", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let refused = || Err(Status::invalid_argument("restore the whole group"));
            snapshot_of(request).map(|_| refused())
        })
    }),
    violation("group-ignores-the-volumes", "GG-26", "returns what has the name", || {
        Interceptor::default().accept::<Create>(Code::AlreadyExists)
    }),
    violation(
        "group-ignores-a-missing-member",
        "GG-26",
        "takes fewer volumes for the same",
        || {
            let known: Mutex<BTreeMap<String, CreateVolumeGroupSnapshotResponse>> =
                Mutex::default();
            Interceptor::default().outcome::<Create>(move |request, answer| {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                match answer {
                    Ok(reply) => {
                        known.insert(request.name.clone(), reply.clone());
                        Ok(reply)
                    }
                    Err(status) if request.source_volume_ids.len() == 1 => {
                        known.get(&request.name).cloned().ok_or(status)
                    }
                    Err(status) => Err(status),
                }
            })
        },
    ),
    violation("group-apart-is-invalid", "GG-27", "says INVALID_ARGUMENT", || {
        Interceptor::default().recode::<Create>(Code::FailedPrecondition, Code::InvalidArgument)
    }),
    violation("group-full-is-unavailable", "GG-28", "says UNAVAILABLE when full", || {
        Interceptor::default().answer::<Create>(|_| Some(Err(Status::unavailable("no space left"))))
    }),
    violation("group-missing-is-internal", "GG-29", "says INTERNAL", || {
        Interceptor::default().recode::<Create>(Code::NotFound, Code::Internal)
    }),
    violation("group-hides-errors", "GG-30", "says OK although it failed", || {
        Interceptor::default().refusal::<Create>(|request, _| Ok(imagined(request)))
    }),
    violation("delete-group-does-nothing", "GG-31", "says OK and does nothing", || {
        Interceptor::default().forget::<Delete>()
    }),
    violation("delete-group-misses-what-is-gone", "GG-32", "says NOT_FOUND next time", || {
        let deleted: Mutex<BTreeSet<String>> = Mutex::default();
        Interceptor::default().outcome::<Delete>(move |request, answer| {
            let mut deleted = deleted.lock().unwrap_or_else(PoisonError::into_inner);
            if deleted.insert(request.group_snapshot_id.clone()) {
                return answer;
            }
            Err(Status::not_found("there is no such group"))
        })
    }),
    violation("delete-group-takes-no-id", "GG-33", "needs no id", || {
        Interceptor::default().accept::<Delete>(Code::InvalidArgument)
    }),
    violation("delete-group-takes-no-members", "GG-34", "needs no members", || {
        Interceptor::default().accept::<Delete>(Code::InvalidArgument)
    }),
    violation("delete-group-wrongly-says-ok", "GG-35", "says OK and deletes nothing", || {
        Interceptor::default().accept::<Delete>(Code::InvalidArgument)
    }),
    violation("delete-group-mismatch-is-missing", "GG-36", "says NOT_FOUND", || {
        Interceptor::default().recode::<Delete>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("delete-group-in-use-is-internal", "GG-37", "says INTERNAL when in use", || {
        let interceptor = Interceptor::default();
        interceptor
            .answer::<Delete>(|_| Some(Err(Status::internal("a volume depends on a member"))))
    }),
    violation("delete-group-hides-errors", "GG-38", "says OK although it failed", || {
        Interceptor::default().refusal::<Delete>(|_, _| Ok(Default::default()))
    }),
    violation("get-group-remembers", "GG-39", "still finds what was deleted", || {
        let seen: Mutex<BTreeMap<String, GetVolumeGroupSnapshotResponse>> = Mutex::default();
        Interceptor::default().outcome::<Get>(move |request, answer| {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            match answer {
                Ok(reply) => {
                    seen.insert(request.group_snapshot_id.clone(), reply.clone());
                    Ok(reply)
                }
                Err(status) => seen.get(&request.group_snapshot_id).cloned().ok_or(status),
            }
        })
    }),
    violation("get-group-of-nothing-is-invalid", "GG-40", "says INVALID_ARGUMENT", || {
        Interceptor::default().recode::<Get>(Code::NotFound, Code::InvalidArgument)
    }),
    violation("get-group-takes-no-id", "GG-41", "says NOT_FOUND without an id", || {
        Interceptor::default().recode::<Get>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("get-group-takes-no-members", "GG-42", "needs no members", || {
        Interceptor::default().accept::<Get>(Code::InvalidArgument)
    }),
    violation("get-group-returns-a-part", "GG-43", "returns the members that were named", parts),
    violation("get-group-ignores-members", "GG-44", "does not compare the members", parts),
    violation("get-group-hides-errors", "GG-45", "makes up what it cannot read", || {
        Interceptor::default().refusal::<Get>(|request, _| {
            let group = VolumeGroupSnapshot {
                group_snapshot_id: request.group_snapshot_id.clone(),
                snapshots: vec![imagined_member("unknown")],
                creation_time: Some(std::time::SystemTime::now().into()),
                ready_to_use: true,
            };
            Ok(GetVolumeGroupSnapshotResponse { group_snapshot: Some(group) })
        })
    }),
    violation("get-group-wants-an-order", "GG-46", "refuses members in another order", || {
        let orders: Arc<Mutex<BTreeMap<String, Vec<String>>>> = Arc::default();
        let known = Arc::clone(&orders);
        Interceptor::default()
            .reply::<Create>(move |_, reply| {
                let mut orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(group) = &reply.group_snapshot {
                    let order = group.snapshots.iter().map(|it| it.snapshot_id.clone());
                    orders.insert(group.group_snapshot_id.clone(), order.collect());
                }
            })
            .answer::<Get>(move |request| {
                let known = known.lock().unwrap_or_else(PoisonError::into_inner);
                let same = known.get(&request.group_snapshot_id) == Some(&request.snapshot_ids);
                (!same).then(|| Err(Status::invalid_argument("these are not the members")))
            })
    }),
];

/// Changes each group that is returned by create or get.
fn changed_group(change: fn(&mut VolumeGroupSnapshot)) -> Interceptor {
    Interceptor::default()
        .reply::<Create>(move |_, reply| reply.group_snapshot.iter_mut().for_each(change))
        .reply::<Get>(move |_, reply| reply.group_snapshot.iter_mut().for_each(change))
}

fn imagined_member(source: &str) -> Snapshot {
    Snapshot {
        snapshot_id: format!("imagined-of-{source}"),
        source_volume_id: source.to_owned(),
        creation_time: Some(std::time::SystemTime::now().into()),
        ready_to_use: true,
        group_snapshot_id: "imagined".to_owned(),
        ..Snapshot::default()
    }
}

/// A reply about a group that is not there.
fn imagined(request: &Create) -> CreateVolumeGroupSnapshotResponse {
    let group = VolumeGroupSnapshot {
        group_snapshot_id: "imagined".to_owned(),
        snapshots: request.source_volume_ids.iter().map(|it| imagined_member(it)).collect(),
        creation_time: Some(std::time::SystemTime::now().into()),
        ready_to_use: true,
    };
    CreateVolumeGroupSnapshotResponse { group_snapshot: Some(group) }
}

/// The last member of each group is restored from its volume as that is now.
fn cuts_late() -> Interceptor {
    let sources: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
    let known = Arc::clone(&sources);
    Interceptor::default()
        .reply::<Create>(move |_, reply| {
            let mut sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
            let last = reply.group_snapshot.as_ref().and_then(|group| group.snapshots.last());
            sources.extend(last.map(|it| (it.snapshot_id.clone(), it.source_volume_id.clone())));
        })
        .ask::<CreateVolumeRequest>(move |request| {
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            let source = snapshot_of(request).and_then(|id| known.get(&id).cloned());
            if let Some(volume_id) = source {
                let r#type = Some(Type::Volume(VolumeSource { volume_id }));
                request.volume_content_source = Some(VolumeContentSource { r#type });
            }
        })
}

/// Lists a member of each volume of a group that could not be made.
fn leaks() -> Interceptor {
    let leaked: Arc<Mutex<Vec<Snapshot>>> = Arc::default();
    let known = Arc::clone(&leaked);
    Interceptor::default()
        .refusal::<Create>(move |request, status| {
            let mut leaked = leaked.lock().unwrap_or_else(PoisonError::into_inner);
            leaked.extend(request.source_volume_ids.iter().map(|it| imagined_member(it)));
            Err(status)
        })
        .reply::<ListSnapshotsRequest>(move |request, reply| {
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            let of_it = known.iter().filter(|it| it.source_volume_id == request.source_volume_id);
            reply.entries.extend(of_it.map(|it| {
                let snapshot = Some(it.clone());
                csi_conformance::wire::csi::v1::list_snapshots_response::Entry { snapshot }
            }));
        })
}

/// Returns those members of a group that were named.
fn parts() -> Interceptor {
    let groups: Arc<Mutex<BTreeMap<String, VolumeGroupSnapshot>>> = Arc::default();
    let known = Arc::clone(&groups);
    Interceptor::default()
        .reply::<Create>(move |_, reply| {
            let mut groups = groups.lock().unwrap_or_else(PoisonError::into_inner);
            let group = reply.group_snapshot.clone();
            groups.extend(group.map(|group| (group.group_snapshot_id.clone(), group)));
        })
        .refusal::<Get>(move |request, status| {
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            let mut group = known.get(&request.group_snapshot_id).cloned().ok_or(status)?;
            group.snapshots.retain(|it| request.snapshot_ids.contains(&it.snapshot_id));
            Ok(GetVolumeGroupSnapshotResponse { group_snapshot: Some(group) })
        })
}
