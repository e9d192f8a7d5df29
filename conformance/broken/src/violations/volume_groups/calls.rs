//! What becomes of groups and their members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use csi_conformance::wire::Rpc;
use csi_conformance::wire::csi::v1::ValidateVolumeCapabilitiesRequest;
use csi_conformance::wire::identity::GetCapabilitiesRequest;
use csi_conformance::wire::identity::capability::Type;
use csi_conformance::wire::identity::capability::volume_group::Type as Kind;
use csi_conformance::wire::volumegroup::{
    ControllerGetVolumeGroupRequest, ControllerGetVolumeGroupResponse, CreateVolumeGroupRequest,
    CreateVolumeGroupResponse, DeleteVolumeGroupRequest, DeleteVolumeGroupResponse,
    ListVolumeGroupsRequest, ModifyVolumeGroupMembershipRequest,
    ModifyVolumeGroupMembershipResponse, VolumeGroup,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A group with nothing in it.
fn empty(volume_group_id: &str) -> Option<VolumeGroup> {
    let volume_group_id = volume_group_id.to_owned();
    Some(VolumeGroup { volume_group_id, ..VolumeGroup::default() })
}

/// The second and all later changes to the same members are refused.
fn modifies_once() -> Interceptor {
    let seen = Mutex::new(BTreeSet::new());
    Interceptor::default().answer::<ModifyVolumeGroupMembershipRequest>(move |request| {
        let what = (request.volume_group_id.clone(), request.volume_ids.clone());
        let is_new = held(&seen).insert(what);
        (!is_new).then(|| Err(Status::already_exists("they are in the group")))
    })
}

/// Answers where it has nothing to answer from.
fn made_up<R: Rpc>(reply: fn(&R) -> R::Reply) -> Interceptor {
    Interceptor::default().refusal::<R>(move |request, status| {
        if status.code() == Code::Internal { Ok(reply(request)) } else { Err(status) }
    })
}

pub(in crate::violations) const ALL: &[Violation] = &[
    violation(
        "group-change-is-not-idempotent",
        "VG-01",
        "refuses to repeat a change",
        modifies_once,
    ),
    violation("group-cannot-be-deleted", "VG-02", "has no DeleteVolumeGroup", || {
        Interceptor::default().unimplemented::<DeleteVolumeGroupRequest>()
    }),
    violation("group-is-made-again", "VG-03", "makes another group at each call", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().ask::<CreateVolumeGroupRequest>(move |request| {
            let number = calls.fetch_add(1, Ordering::Relaxed);
            request.name.push_str(&format!("-{number}"));
            if number > 0 {
                request.volume_ids.clear();
            }
        })
    }),
    violation("group-wants-volumes", "VG-05", "makes no empty group", || {
        Interceptor::default().answer::<CreateVolumeGroupRequest>(|request| {
            let is_empty = request.volume_ids.is_empty();
            is_empty.then(|| Err(Status::invalid_argument("volume_ids is missing")))
        })
    }),
    violation("group-takes-one", "VG-06", "puts only the first volume into a new group", || {
        Interceptor::default()
            .ask::<CreateVolumeGroupRequest>(|request| request.volume_ids.truncate(1))
    }),
    violation("group-reply-is-empty", "VG-07", "does not tell what it modified", || {
        Interceptor::default()
            .reply::<ModifyVolumeGroupMembershipRequest>(|_, reply| reply.volume_group = None)
    }),
    violation("group-has-no-id", "VG-08", "finds a group and does not tell its id", || {
        Interceptor::default().reply::<ControllerGetVolumeGroupRequest>(|_, reply| {
            reply.volume_group.iter_mut().for_each(|group| group.volume_group_id.clear());
        })
    }),
    violation("group-context-changes", "VG-09", "has another context at each call", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().reply::<ControllerGetVolumeGroupRequest>(move |_, reply| {
            let number = calls.fetch_add(1, Ordering::Relaxed);
            if let Some(group) = &mut reply.volume_group {
                group.volume_group_context.insert("call".to_owned(), number.to_string());
            }
        })
    }),
    violation("group-found-without-volumes", "VG-10", "finds groups without volumes", || {
        Interceptor::default().reply::<ControllerGetVolumeGroupRequest>(|_, reply| {
            reply.volume_group.iter_mut().for_each(|group| group.volumes.clear());
        })
    }),
    violation("group-volumes-are-bare", "VG-10", "tells only the ids of a group's volumes", || {
        Interceptor::default().reply::<ControllerGetVolumeGroupRequest>(|_, reply| {
            for volume in reply.volume_group.iter_mut().flat_map(|group| &mut group.volumes) {
                volume.capacity_bytes = 0;
            }
        })
    }),
    violation("group-made-of-nothing", "VG-14", "makes a group without storage", || {
        made_up::<CreateVolumeGroupRequest>(|_| CreateVolumeGroupResponse {
            volume_group: empty("made-up"),
        })
    }),
    violation("group-deleted-once", "VG-15", "refuses to delete what is gone", || {
        let seen = Mutex::new(BTreeSet::new());
        Interceptor::default().answer::<DeleteVolumeGroupRequest>(move |request| {
            let is_new = held(&seen).insert(request.volume_group_id.clone());
            (!is_new).then(|| Err(Status::not_found("there is no such group")))
        })
    }),
    violation("group-leaves-volumes-unsaid", "VG-18", "spares volumes without saying so", || {
        Interceptor::default().reply::<GetCapabilitiesRequest>(|_, reply| {
            reply.capabilities.retain(|entry| match &entry.r#type {
                Some(Type::VolumeGroup(group)) => {
                    group.r#type() != Kind::DoNotAllowVgToDeleteVolumes
                }
                _ => true,
            });
        })
    }),
    violation(
        "group-deletes-volumes",
        "VG-20",
        "deletes volumes though it says it does not",
        || {
            let gone = Arc::new(AtomicBool::new(false));
            let deleted = Arc::clone(&gone);
            Interceptor::default()
                .refusal::<DeleteVolumeGroupRequest>(move |_, _| {
                    deleted.store(true, Ordering::Relaxed);
                    Ok(DeleteVolumeGroupResponse {})
                })
                .answer::<ValidateVolumeCapabilitiesRequest>(move |_| {
                    let is_gone = gone.load(Ordering::Relaxed);
                    is_gone.then(|| Err(Status::not_found("there is no such volume")))
                })
        },
    ),
    violation("group-deleted-without-storage", "VG-21", "says that it deleted a group", || {
        Interceptor::default().accept::<DeleteVolumeGroupRequest>(Code::Internal)
    }),
    violation("group-cannot-be-modified", "VG-22", "has no ModifyVolumeGroupMembership", || {
        Interceptor::default().unimplemented::<ModifyVolumeGroupMembershipRequest>()
    }),
    violation("group-modified-once", "VG-23", "refuses to repeat a change", modifies_once),
    violation("group-adds-none", "VG-24", "does not add the last volume of the list", || {
        Interceptor::default().ask::<ModifyVolumeGroupMembershipRequest>(|request| {
            if request.volume_ids.len() > 1 {
                request.volume_ids.pop();
            }
        })
    }),
    violation("group-only-grows", "VG-25", "keeps members that are not in the list", || {
        let members = Mutex::new(BTreeMap::<String, BTreeSet<String>>::new());
        Interceptor::default().ask::<ModifyVolumeGroupMembershipRequest>(move |request| {
            if request.volume_ids.is_empty() {
                return;
            }
            let mut members = held(&members);
            let known = members.entry(request.volume_group_id.clone()).or_default();
            known.extend(request.volume_ids.drain(..));
            request.volume_ids = known.iter().cloned().collect();
        })
    }),
    violation("group-is-never-emptied", "VG-26", "takes an empty list for no change", || {
        Interceptor::default().answer::<ModifyVolumeGroupMembershipRequest>(|request| {
            let volume_group = empty(&request.volume_group_id);
            let is_empty = request.volume_ids.is_empty();
            is_empty.then(|| Ok(ModifyVolumeGroupMembershipResponse { volume_group }))
        })
    }),
    violation("group-modified-without-storage", "VG-31", "says that it modified a group", || {
        Interceptor::default().accept::<ModifyVolumeGroupMembershipRequest>(Code::Internal)
    }),
    violation("group-fears-parameters", "VG-32", "fails at parameters of a change", || {
        Interceptor::default().answer::<ModifyVolumeGroupMembershipRequest>(|request| {
            let has_any = !request.parameters.is_empty();
            has_any.then(|| Err(Status::internal("parameters")))
        })
    }),
    violation("group-cannot-be-found", "VG-33", "has no ControllerGetVolumeGroup", || {
        Interceptor::default().unimplemented::<ControllerGetVolumeGroupRequest>()
    }),
    violation("group-is-stale", "VG-34", "tells of a group as it was when first asked", || {
        let seen = Mutex::new(BTreeMap::<String, VolumeGroup>::new());
        Interceptor::default().reply::<ControllerGetVolumeGroupRequest>(move |request, reply| {
            if let Some(group) = &mut reply.volume_group {
                let mut seen = held(&seen);
                let first = seen.entry(request.volume_group_id.clone());
                *group = first.or_insert_with(|| group.clone()).clone();
            }
        })
    }),
    violation("group-found-without-storage", "VG-37", "makes up what it cannot read", || {
        made_up::<ControllerGetVolumeGroupRequest>(|request| ControllerGetVolumeGroupResponse {
            volume_group: empty(&request.volume_group_id),
        })
    }),
    violation("groups-are-missing", "VG-38", "lists all groups but the last", || {
        Interceptor::default().reply::<ListVolumeGroupsRequest>(|_, reply| {
            reply.entries.pop();
        })
    }),
    violation("groups-all-at-once", "VG-39", "lists more groups than asked for", || {
        Interceptor::default().ask::<ListVolumeGroupsRequest>(|request| {
            request.max_entries = request.max_entries.min(0);
        })
    }),
    violation(
        "groups-have-no-token",
        "VG-40",
        "lists a page and does not say how to go on",
        || {
            Interceptor::default()
                .reply::<ListVolumeGroupsRequest>(|_, reply| reply.next_token.clear())
        },
    ),
    violation("groups-none-is-one", "VG-41", "takes no limit for a limit of its own", || {
        Interceptor::default()
            .ask::<ListVolumeGroupsRequest>(|request| {
                if request.max_entries == 0 {
                    request.max_entries = 1;
                }
            })
            .reply::<ListVolumeGroupsRequest>(|request, reply| {
                if request.max_entries == 0 {
                    reply.next_token.clear();
                }
            })
    }),
    violation("groups-are-empty-entries", "VG-44", "lists entries without groups", || {
        Interceptor::default().reply::<ListVolumeGroupsRequest>(|_, reply| {
            reply.entries.iter_mut().for_each(|entry| entry.volume_group = None);
        })
    }),
    violation("groups-listed-without-storage", "VG-45", "lists nothing for an error", || {
        Interceptor::default().accept::<ListVolumeGroupsRequest>(Code::Internal)
    }),
    violation("group-logs-secrets", "VG-48", "logs what it is asked, secrets and all", || {
        Interceptor::default().ask::<ListVolumeGroupsRequest>(|request| {
            tracing::info!(secrets = ?request.secrets, "ListVolumeGroups");
        })
    }),
];
