//! ControllerGetVolumeHealth and ControllerListVolumeHealth (VH).

use std::sync::{Mutex, PoisonError};

use csi_conformance::wire::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;
use csi_conformance::wire::csi::v1::volume_health::VolumeHealthEntry;
use csi_conformance::wire::csi::v1::{
    ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerListVolumeHealthRequest, ControllerListVolumeHealthResponse, VolumeHealth,
    VolumeHealthErrorType,
};
use tonic::Code;

use super::without_controller;
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

type Get = ControllerGetVolumeHealthRequest;
type List = ControllerListVolumeHealthRequest;

pub(super) const ALL: &[Violation] = &[
    violation("get-health-is-missing", "VH-01", "does not know the call it offers", || {
        Interceptor::default().unimplemented::<Get>()
    }),
    violation("list-health-is-missing", "VH-02", "does not know the call it offers", || {
        Interceptor::default().unimplemented::<List>()
    }),
    violation("list-health-without-get", "VH-03", "offers the list alone", || {
        without_controller(&[ControllerRpc::GetVolumeHealth])
    }),
    violation("get-health-returns-nothing", "VH-04", "leaves out the health", || {
        Interceptor::default().reply::<Get>(|_, reply| reply.volume_health = None)
    }),
    violation("get-health-of-another", "VH-04", "tells the health of another volume", || {
        Interceptor::default().reply::<Get>(|_, reply| {
            if let Some(health) = &mut reply.volume_health {
                health.volume_id.push('x');
            }
        })
    }),
    violation("get-health-always-has-an-entry", "VH-05", "has an entry that all is well", || {
        Interceptor::default().reply::<Get>(|_, reply| {
            let health = reply.volume_health.get_or_insert_default();
            health.health_statuses.push(entry("AllIsWell"));
        })
    }),
    violation("get-health-takes-no-id", "VH-06", "answers NOT_FOUND for a missing id", || {
        Interceptor::default().recode::<Get>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("get-health-invents", "VH-07", "answers OK for a volume that is gone", || {
        Interceptor::default().accept::<Get>(Code::NotFound)
    }),
    violation("get-health-has-no-status", "VH-08", "leaves the status unknown", || {
        each_entry(|entry| entry.status = 0)
    }),
    violation("get-health-writes-sentences", "VH-09", "has a sentence as the reason", || {
        each_entry(|entry| entry.reason = "the pool is away".to_owned())
    }),
    violation("get-health-leaves-out-reasons", "VH-09", "leaves out the reason", || {
        each_entry(|entry| entry.reason.clear())
    }),
    violation("get-health-repeats-itself", "VH-10", "has each entry twice", || {
        Interceptor::default().reply::<Get>(|_, reply| {
            if let Some(health) = &mut reply.volume_health {
                let again = health.health_statuses.clone();
                health.health_statuses.extend(again);
            }
        })
    }),
    violation("list-health-has-the-healthy", "VH-11", "lists a healthy volume too", || {
        Interceptor::default().reply::<List>(|_, reply| {
            let volume_id = "v-healthy".to_owned();
            reply.entries.push(VolumeHealth { volume_id, ..Default::default() });
        })
    }),
    violation("list-health-forgets-one", "VH-12", "leaves one volume out of the list", || {
        Interceptor::default().reply::<List>(|request, reply| {
            if request.max_entries == 0 {
                reply.entries.pop();
            }
        })
    })
    .on_real(),
    violation("list-health-ignores-the-most", "VH-13", "returns all, however few", || {
        Interceptor::default().ask::<List>(|request| request.max_entries = 0)
    })
    .on_real(),
    violation("list-health-cuts-off", "VH-14", "does not say that there is more", || {
        Interceptor::default().reply::<List>(|_, reply| reply.next_token.clear())
    })
    .on_real(),
    violation("list-health-takes-negative", "VH-15", "returns all for -1 entries", || {
        Interceptor::default()
            .ask::<List>(|request| request.max_entries = request.max_entries.max(0))
    }),
    violation("list-health-takes-any-token", "VH-16", "refuses a bad token as an argument", || {
        Interceptor::default().recode::<List>(Code::Aborted, Code::InvalidArgument)
    }),
    violation("list-health-repeats-a-page", "VH-17", "has the first entry on every page", || {
        let first = Mutex::new(None);
        Interceptor::default().reply::<List>(move |request, reply| {
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            if request.max_entries == 1 {
                let entry = first.get_or_insert_with(|| reply.entries.clone());
                reply.entries.clone_from(entry);
            }
        })
    })
    .on_real(),
    violation("list-health-contradicts", "VH-18", "lists other reasons than it tells", || {
        Interceptor::default().reply::<List>(|_, reply| {
            for health in &mut reply.entries {
                health.health_statuses.push(entry("SomethingElse"));
            }
        })
    })
    .on_real(),
    violation(
        "get-health-hides-failures",
        "VH-19",
        "says healthy where the storage failed",
        || {
            Interceptor::default().outcome::<Get>(|request, _| {
                let volume_id = request.volume_id.clone();
                let volume_health = Some(VolumeHealth { volume_id, ..Default::default() });
                Ok(ControllerGetVolumeHealthResponse { volume_health })
            })
        },
    ),
    violation(
        "list-health-hides-failures",
        "VH-19",
        "lists nothing where the storage failed",
        || {
            Interceptor::default()
                .outcome::<List>(|_, _| Ok(ControllerListVolumeHealthResponse::default()))
        },
    ),
    violation("get-health-never-forgets", "VH-20", "keeps what is over", || {
        let last = Mutex::new(Vec::new());
        Interceptor::default().reply::<Get>(move |_, reply| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(health) = &mut reply.volume_health {
                if health.health_statuses.is_empty() {
                    health.health_statuses.clone_from(&last);
                }
                last.clone_from(&health.health_statuses);
            }
        })
    }),
];

fn entry(reason: &str) -> VolumeHealthEntry {
    VolumeHealthEntry {
        status: VolumeHealthErrorType::Degraded.into(),
        reason: reason.to_owned(),
        message: reason.to_owned(),
    }
}

/// An entry of what is unwell is changed.
fn each_entry(change: fn(&mut VolumeHealthEntry)) -> Interceptor {
    Interceptor::default().reply::<Get>(move |_, reply| {
        if let Some(health) = &mut reply.volume_health {
            health.health_statuses.iter_mut().for_each(change);
        }
    })
}
