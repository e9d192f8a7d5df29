//! ListVolumes (LV).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use csi_conformance::wire::csi::v1::{
    DeleteVolumeRequest, ListVolumesRequest, ListVolumesResponse,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

type List = ListVolumesRequest;

pub(super) const ALL: &[Violation] = &[
    violation("list-volumes-is-missing", "LV-01", "does not know the call it offers", || {
        Interceptor::default().unimplemented::<List>()
    }),
    violation("list-volumes-forgets-one", "LV-02", "leaves one volume out of the list", || {
        Interceptor::default().reply::<List>(|_, reply| {
            reply.entries.pop();
        })
    }),
    violation("list-volumes-keeps-the-dead", "LV-02", "lists what was deleted", || {
        let seen = Mutex::new(Vec::new());
        let seen = Arc::new(seen);
        let noted = Arc::clone(&seen);
        Interceptor::default()
            .reply::<DeleteVolumeRequest>(move |request, _| {
                noted
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(request.volume_id.clone());
            })
            .reply::<List>(move |_, reply| {
                let Some(mut dead) = reply.entries.first().cloned() else { return };
                let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                for id in seen.iter() {
                    if let Some(volume) = &mut dead.volume {
                        volume.volume_id.clone_from(id);
                    }
                    reply.entries.push(dead.clone());
                }
            })
    }),
    violation(
        "list-volumes-ignores-the-most",
        "LV-03",
        "returns all, however few are asked for",
        || Interceptor::default().ask::<List>(|request| request.max_entries = 0),
    ),
    violation(
        "list-volumes-one-too-many",
        "LV-03",
        "returns one entry more than asked for",
        || {
            Interceptor::default().ask::<List>(|request| {
                if request.max_entries > 0 {
                    request.max_entries += 1;
                }
            })
        },
    ),
    violation("list-volumes-cuts-off", "LV-04", "does not say that there is more", || {
        Interceptor::default().reply::<List>(|_, reply| reply.next_token.clear())
    }),
    violation(
        "list-volumes-nothing-for-zero",
        "LV-05",
        "returns no entries if no number is said",
        || {
            Interceptor::default().reply::<List>(|request, reply| {
                if request.max_entries == 0 {
                    reply.entries.clear();
                }
            })
        },
    ),
    violation("list-volumes-takes-negative", "LV-06", "returns all for -1 entries", || {
        Interceptor::default()
            .ask::<List>(|request| request.max_entries = request.max_entries.max(0))
    }),
    violation(
        "list-volumes-has-one-cursor",
        "LV-07",
        "goes on where the last call ended, whoever made it",
        || {
            let cursor = Arc::new(Mutex::new(String::new()));
            let moved = Arc::clone(&cursor);
            Interceptor::default()
                .ask::<List>(move |request| {
                    let cursor = cursor.lock().unwrap_or_else(PoisonError::into_inner);
                    if request.max_entries == 1 {
                        request.starting_token.clone_from(&cursor);
                    }
                })
                .reply::<List>(move |request, reply| {
                    if request.max_entries == 1 {
                        let mut cursor = moved.lock().unwrap_or_else(PoisonError::into_inner);
                        cursor.clone_from(&reply.next_token);
                    }
                })
        },
    ),
    violation("list-volumes-repeats", "LV-08", "repeats the last entry on the next page", || {
        let last = Mutex::new(None);
        Interceptor::default().reply::<List>(move |request, reply| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *last, reply.entries.last().cloned());
            if let (Some(before), false) = (before, request.starting_token.is_empty()) {
                reply.entries.insert(0, before);
            }
        })
    }),
    violation(
        "list-volumes-skips",
        "LV-08",
        "leaves out the first entry of each next page",
        || {
            Interceptor::default().reply::<List>(|request, reply| {
                if !request.starting_token.is_empty() && !reply.entries.is_empty() {
                    reply.entries.remove(0);
                }
            })
        },
    ),
    violation(
        "list-volumes-bad-token-is-invalid",
        "LV-09",
        "answers INVALID_ARGUMENT for a bad token",
        || Interceptor::default().recode::<List>(Code::Aborted, Code::InvalidArgument),
    ),
    violation("list-volumes-bad-token-is-nothing", "LV-09", "starts over for a bad token", || {
        Interceptor::default().accept::<List>(Code::Aborted)
    }),
    violation(
        "list-volumes-has-an-empty-end",
        "LV-10",
        "hands out a token where nothing follows",
        || {
            Interceptor::default()
                .answer::<List>(|request| {
                    let end = request.starting_token == "end";
                    end.then(|| Ok(ListVolumesResponse::default()))
                })
                .reply::<List>(|_, reply| {
                    if reply.next_token.is_empty() && !reply.entries.is_empty() {
                        "end".clone_into(&mut reply.next_token);
                    }
                })
        },
    ),
    violation("list-volumes-names-nothing", "LV-11", "lists entries without a volume", || {
        Interceptor::default().reply::<List>(|_, reply| {
            reply.entries.iter_mut().for_each(|entry| entry.volume = None);
        })
    }),
    violation("list-volumes-has-no-status", "LV-12", "leaves out the status of entries", || {
        Interceptor::default().reply::<List>(|_, reply| {
            reply.entries.iter_mut().for_each(|entry| entry.status = None);
        })
    }),
    violation(
        "list-volumes-knows-no-nodes",
        "LV-13",
        "does not say where volumes are published",
        || {
            Interceptor::default().reply::<List>(|_, reply| {
                for status in reply.entries.iter_mut().filter_map(|entry| entry.status.as_mut()) {
                    status.published_node_ids.clear();
                }
            })
        },
    ),
    violation(
        "list-volumes-remembers-nodes",
        "LV-13",
        "names nodes that a volume was taken from",
        || {
            let seen = Mutex::new(HashSet::<String>::new());
            Interceptor::default().reply::<List>(move |_, reply| {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                for status in reply.entries.iter_mut().filter_map(|entry| entry.status.as_mut()) {
                    seen.extend(status.published_node_ids.iter().cloned());
                    status.published_node_ids = seen.iter().cloned().collect();
                }
            })
        },
    ),
    violation(
        "list-volumes-tells-no-condition",
        "LV-15",
        "leaves out the condition of volumes",
        || {
            Interceptor::default().reply::<List>(|_, reply| {
                for status in reply.entries.iter_mut().filter_map(|entry| entry.status.as_mut()) {
                    status.volume_condition = None;
                }
            })
        },
    ),
    violation(
        "list-volumes-loses-its-place",
        "LV-17",
        "answers NOT_FOUND where the volume of the token is gone",
        || {
            let gone = Arc::new(Mutex::new(HashSet::<String>::new()));
            let noted = Arc::clone(&gone);
            Interceptor::default()
                .reply::<DeleteVolumeRequest>(move |request, _| {
                    let mut gone = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    gone.insert(request.volume_id.clone());
                })
                .answer::<List>(move |request| {
                    let gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
                    let lost = gone.contains(&request.starting_token);
                    lost.then(|| Err(Status::not_found("there is no such volume")))
                })
        },
    ),
    violation(
        "list-volumes-hides-failures",
        "LV-18",
        "returns an empty list where the storage failed",
        || {
            Interceptor::default()
                .refusal::<List>(|_, _| Ok(ListVolumesResponse::default()))
                .reply::<List>(|_, reply| {
                    let sick =
                        |entry: &csi_conformance::wire::csi::v1::list_volumes_response::Entry| {
                            let status = entry.status.as_ref();
                            let condition =
                                status.and_then(|status| status.volume_condition.as_ref());
                            condition.is_some_and(|condition| condition.abnormal)
                        };
                    reply.entries.retain(|entry| !sick(entry));
                })
        },
    ),
];
