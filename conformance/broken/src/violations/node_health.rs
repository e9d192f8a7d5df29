//! NodeGetVolumeHealth and NodeGetStorageHealth (NH).

use csi_conformance::wire::csi::v1::node_get_storage_health_response::StorageBackendHealth;
use csi_conformance::wire::csi::v1::volume_health::VolumeHealthEntry;
use csi_conformance::wire::csi::v1::{
    NodeGetStorageHealthRequest, NodeGetStorageHealthResponse, NodeGetVolumeHealthRequest,
    NodeGetVolumeHealthResponse, StorageHealthErrorType, VolumeHealth, VolumeHealthErrorType,
};
use tonic::{Code, Status};

use super::unknown;
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

type Volume = NodeGetVolumeHealthRequest;
type Storage = NodeGetStorageHealthRequest;

pub(super) const ALL: &[Violation] = &[
    violation("node-health-is-missing", "NH-01", "does not know the call it offers", || {
        Interceptor::default().unimplemented::<Volume>()
    }),
    violation("node-health-returns-nothing", "NH-02", "leaves out the health", || {
        Interceptor::default().reply::<Volume>(|_, reply| reply.volume_health = None)
    }),
    violation("node-health-always-has-an-entry", "NH-03", "has an entry that all is well", || {
        Interceptor::default().reply::<Volume>(|_, reply| {
            let health = reply.volume_health.get_or_insert_default();
            health.health_statuses.push(VolumeHealthEntry {
                status: VolumeHealthErrorType::Degraded.into(),
                reason: "AllIsWell".to_owned(),
                message: String::new(),
            });
        })
    }),
    violation("node-health-takes-no-id", "NH-04", "answers NOT_FOUND for a missing id", || {
        Interceptor::default().recode::<Volume>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("node-health-invents", "NH-05", "answers OK for a volume that never was", || {
        Interceptor::default().outcome::<Volume>(|request, answer| match answer {
            Err(_) if unknown(&request.volume_id) => Ok(healthy(request)),
            answer => answer,
        })
    }),
    violation(
        "node-health-of-others",
        "NH-06",
        "answers OK for a volume that is not there",
        || {
            Interceptor::default().outcome::<Volume>(|request, answer| match answer {
                Err(status) if status.code() == Code::NotFound && !unknown(&request.volume_id) => {
                    Ok(healthy(request))
                }
                answer => answer,
            })
        },
    ),
    violation("node-health-wants-paths", "NH-07", "wants both paths or none", || {
        Interceptor::default().answer::<Volume>(|request| {
            let (published, staged) =
                (request.volume_publish_path.is_empty(), request.staging_target_path.is_empty());
            let refusal = || Err(Status::invalid_argument("both paths are needed"));
            (published != staged).then(refusal)
        })
    }),
    violation("node-health-takes-any-path", "NH-08", "does not look at the paths", || {
        Interceptor::default().ask::<Volume>(|request| {
            request.volume_publish_path.clear();
            request.staging_target_path.clear();
        })
    }),
    violation("node-health-forgets-failures", "NH-09", "says nothing of a failed stage", || {
        Interceptor::default().reply::<Volume>(|_, reply| {
            if let Some(health) = &mut reply.volume_health {
                health.health_statuses.clear();
            }
        })
    }),
    violation("node-health-has-no-status", "NH-10", "leaves the status unknown", || {
        each_entry(|entry| entry.status = 0)
    }),
    violation("node-health-writes-sentences", "NH-10", "has a sentence as the reason", || {
        each_entry(|entry| entry.reason = "the pool is away".to_owned())
    }),
    violation(
        "node-health-hides-failures",
        "NH-11",
        "says healthy where the storage failed",
        || Interceptor::default().outcome::<Volume>(|request, _| Ok(healthy(request))),
    ),
    violation("storage-health-is-missing", "NH-13", "does not know the call it offers", || {
        Interceptor::default().unimplemented::<Storage>()
    }),
    violation(
        "storage-health-always-has-an-entry",
        "NH-14",
        "has an entry that all is well",
        || {
            Interceptor::default().reply::<Storage>(|_, reply| {
                reply.backend_health.push(StorageBackendHealth {
                    status: StorageHealthErrorType::StorageDegraded.into(),
                    reason: "AllIsWell".to_owned(),
                    ..Default::default()
                });
            })
        },
    ),
    violation("storage-health-has-no-status", "NH-15", "leaves the status unknown", || {
        Interceptor::default().reply::<Storage>(|_, reply| {
            reply.backend_health.iter_mut().for_each(|entry| entry.status = 0);
        })
    }),
    violation("storage-health-repeats-itself", "NH-16", "has each entry twice", || {
        Interceptor::default().reply::<Storage>(|_, reply| {
            let again = reply.backend_health.clone();
            reply.backend_health.extend(again);
        })
    }),
    violation(
        "storage-health-hides-failures",
        "NH-17",
        "says nothing of storage that failed",
        || {
            Interceptor::default()
                .outcome::<Storage>(|_, _| Ok(NodeGetStorageHealthResponse::default()))
        },
    ),
];

fn healthy(request: &Volume) -> NodeGetVolumeHealthResponse {
    let volume_id = request.volume_id.clone();
    let volume_health = Some(VolumeHealth { volume_id, ..Default::default() });
    NodeGetVolumeHealthResponse { volume_health }
}

fn each_entry(change: fn(&mut VolumeHealthEntry)) -> Interceptor {
    Interceptor::default().reply::<Volume>(move |_, reply| {
        if let Some(health) = &mut reply.volume_health {
            health.health_statuses.iter_mut().for_each(change);
        }
    })
}
