//! ControllerUnpublishVolume (CU).

use csi_conformance::wire::csi::v1::{
    ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

type Unpublish = ControllerUnpublishVolumeRequest;

pub(super) const ALL: &[Violation] = &[
    violation(
        "controller-unpublish-is-missing",
        "CU-01",
        "does not know the call it offers",
        || Interceptor::default().unimplemented::<Unpublish>(),
    ),
    violation(
        "controller-unpublish-only-once",
        "CU-02",
        "answers NOT_FOUND where the volume is not published",
        || {
            let published = std::sync::Mutex::new(std::collections::HashSet::<String>::new());
            let published = std::sync::Arc::new(published);
            let noted = std::sync::Arc::clone(&published);
            Interceptor::default()
                .reply::<ControllerPublishVolumeRequest>(move |request, _| {
                    let mut noted = noted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    noted.insert(request.volume_id.clone());
                })
                .answer::<Unpublish>(move |request| {
                    let mut published =
                        published.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    let was = published.remove(&request.volume_id);
                    (!was).then(|| Err(Status::not_found("it is not published")))
                })
        },
    ),
    violation(
        "controller-unpublish-does-nothing",
        "CU-03",
        "says that the volume is unpublished and leaves it",
        || Interceptor::default().forget::<Unpublish>(),
    ),
    violation(
        "controller-unpublish-ignores-the-node",
        "CU-03",
        "unpublishes from all nodes whichever is named",
        || Interceptor::default().ask::<Unpublish>(|request| request.node_id.clear()),
    )
    .on_shared(),
    violation(
        "controller-unpublish-wants-a-node",
        "CU-04",
        "refuses a call that names no node",
        || {
            Interceptor::default().answer::<Unpublish>(|request| {
                let missing = request.node_id.is_empty();
                missing.then(|| Err(Status::invalid_argument("node_id is missing")))
            })
        },
    ),
    violation(
        "controller-unpublish-from-itself-only",
        "CU-04",
        "unpublishes from one node where all are meant",
        || {
            Interceptor::default().ask::<Unpublish>(|request| {
                if request.node_id.is_empty() {
                    "node-1".clone_into(&mut request.node_id);
                }
            })
        },
    )
    .on_shared(),
    violation(
        "controller-unpublish-takes-no-id",
        "CU-05",
        "answers OK although the id is missing",
        || Interceptor::default().accept::<Unpublish>(Code::InvalidArgument),
    ),
    violation(
        "controller-unpublish-misses-volumes",
        "CU-06",
        "answers NOT_FOUND where the volume never was",
        || {
            Interceptor::default().answer::<Unpublish>(|request| {
                let foreign = request.volume_id.starts_with("nobody");
                foreign.then(|| Err(Status::not_found("there is no such volume")))
            })
        },
    ),
    violation(
        "controller-unpublish-keeps-hold",
        "CU-10",
        "lets a volume not go to another node",
        || Interceptor::default().forget::<Unpublish>(),
    )
    .on_shared(),
    violation(
        "controller-unpublish-hides-failures",
        "CU-11",
        "answers OK where the storage failed",
        || {
            Interceptor::default()
                .refusal::<Unpublish>(|_, _| Ok(ControllerUnpublishVolumeResponse::default()))
        },
    ),
];
