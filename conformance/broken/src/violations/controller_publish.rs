//! ControllerPublishVolume (CP).

use std::sync::atomic::{AtomicUsize, Ordering};

use csi_conformance::wire::csi::v1::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, NodeStageVolumeRequest,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

type Publish = ControllerPublishVolumeRequest;

pub(super) const ALL: &[Violation] = &[
    violation("controller-publish-is-missing", "CP-01", "does not know the call it offers", || {
        Interceptor::default().unimplemented::<Publish>()
    }),
    violation(
        "controller-publish-is-no-use",
        "CP-03",
        "publishes volumes that the node then cannot stage",
        || {
            Interceptor::default().answer::<NodeStageVolumeRequest>(|_| {
                Some(Err(Status::failed_precondition("the volume is not attached")))
            })
        },
    ),
    violation(
        "controller-publish-only-once",
        "CP-04",
        "answers ALREADY_EXISTS when a call is repeated",
        || {
            let calls = AtomicUsize::new(0);
            Interceptor::default().answer::<Publish>(move |_| {
                let again = calls.fetch_add(1, Ordering::Relaxed) > 0;
                again.then(|| Err(Status::already_exists("it is published")))
            })
        },
    ),
    violation(
        "controller-publish-takes-no-volume",
        "CP-05",
        "answers NOT_FOUND although the id is missing",
        || Interceptor::default().recode::<Publish>(Code::InvalidArgument, Code::NotFound),
    ),
    violation(
        "controller-publish-takes-no-node",
        "CP-06",
        "publishes to its own node if none is named",
        || {
            Interceptor::default().ask::<Publish>(|request| {
                if request.node_id.is_empty() {
                    "node-1".clone_into(&mut request.node_id);
                }
            })
        },
    ),
    violation(
        "controller-publish-takes-no-capability",
        "CP-07",
        "answers OK although the capability is missing",
        || Interceptor::default().accept::<Publish>(Code::InvalidArgument),
    ),
    violation(
        "controller-publish-takes-any-mode",
        "CP-08",
        "does not look at the access mode",
        || {
            Interceptor::default().refusal::<Publish>(|request, status| {
                let asked = request.volume_capability.as_ref().and_then(|it| it.access_mode);
                if asked.is_some_and(|mode| mode.mode > 7) {
                    return Ok(ControllerPublishVolumeResponse::default());
                }
                Err(status)
            })
        },
    ),
    violation(
        "controller-publish-ignores-readonly",
        "CP-09",
        "publishes for writing although read-only is asked for",
        || Interceptor::default().ask::<Publish>(|request| request.readonly = false),
    )
    .on_real(),
    violation(
        "controller-publish-ignores-context",
        "CP-11",
        "does not look at the volume_context",
        || Interceptor::default().ask::<Publish>(|request| request.volume_context.clear()),
    ),
    violation(
        "controller-publish-invalid-volume",
        "CP-12",
        "answers INVALID_ARGUMENT where the volume is gone",
        || Interceptor::default().recode::<Publish>(Code::NotFound, Code::InvalidArgument),
    ),
    violation(
        "controller-publish-to-any-node",
        "CP-13",
        "publishes to nodes that do not exist",
        || {
            Interceptor::default().ask::<Publish>(|request| {
                if request.node_id.starts_with("no-such") {
                    "node-1".clone_into(&mut request.node_id);
                }
            })
        },
    ),
    violation(
        "controller-publish-does-not-compare",
        "CP-14",
        "answers OK where the volume is published otherwise",
        || Interceptor::default().accept::<Publish>(Code::AlreadyExists),
    ),
    violation(
        "controller-publish-to-readers-too",
        "CP-14",
        "lets a volume that is published for writing pass as read-only",
        || {
            Interceptor::default().outcome::<Publish>(|request, answer| match answer {
                Err(status) if request.readonly && status.code() == Code::AlreadyExists => {
                    Ok(ControllerPublishVolumeResponse::default())
                }
                other => other,
            })
        },
    ),
    violation(
        "controller-publish-to-a-second-node",
        "CP-15",
        "publishes a volume for one node to two",
        || Interceptor::default().accept::<Publish>(Code::FailedPrecondition),
    )
    .on_shared(),
    violation(
        "controller-publish-names-no-holder",
        "CP-16",
        "does not say which node holds the volume",
        || {
            Interceptor::default().refusal::<Publish>(|_, status| {
                Err(Status::new(status.code(), "the volume is in use"))
            })
        },
    )
    .on_shared(),
    violation(
        "controller-publish-without-end",
        "CP-17",
        "publishes more volumes to a node than it can take",
        || Interceptor::default().accept::<Publish>(Code::ResourceExhausted),
    ),
    violation(
        "controller-publish-to-one-node-only",
        "CP-18",
        "refuses a second node in every mode",
        || {
            Interceptor::default().answer::<Publish>(|request| {
                let second = request.node_id == "node-2";
                second.then(|| Err(Status::failed_precondition("it is published to node-1")))
            })
        },
    )
    .on_shared(),
    violation(
        "controller-publish-changes-its-context",
        "CP-19",
        "returns another publish_context at each call",
        || {
            let calls = AtomicUsize::new(0);
            Interceptor::default().reply::<Publish>(move |_, reply| {
                let number = calls.fetch_add(1, Ordering::Relaxed);
                reply.publish_context.insert("session".to_owned(), number.to_string());
            })
        },
    ),
    violation(
        "controller-publish-tells-secrets",
        "CP-20",
        "puts the secrets into the publish_context",
        || {
            Interceptor::default().reply::<Publish>(|request, reply| {
                reply.publish_context.extend(request.secrets.clone());
            })
        },
    ),
    violation(
        "controller-publish-hides-failures",
        "CP-22",
        "answers OK where the storage failed",
        || {
            Interceptor::default()
                .refusal::<Publish>(|_, _| Ok(ControllerPublishVolumeResponse::default()))
        },
    ),
];
