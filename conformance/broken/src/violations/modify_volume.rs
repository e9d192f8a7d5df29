//! ControllerModifyVolume (MV).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use csi_conformance::wire::csi::v1::{
    ControllerGetVolumeRequest, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

type Modify = ControllerModifyVolumeRequest;

pub(super) const ALL: &[Violation] = &[
    violation("modify-volume-is-missing", "MV-01", "does not know the call it offers", || {
        Interceptor::default().unimplemented::<Modify>()
    }),
    violation("modify-volume-only-once", "MV-02", "refuses a change that was made before", || {
        let last = std::sync::Mutex::new(None);
        Interceptor::default().answer::<Modify>(move |request| {
            let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let again = last.replace(request.clone()) == Some(request.clone());
            again.then(|| Err(Status::already_exists("it has these values")))
        })
    }),
    violation(
        "modify-volume-takes-no-id",
        "MV-03",
        "answers OK although the id is missing",
        || Interceptor::default().accept::<Modify>(Code::InvalidArgument),
    ),
    violation("modify-volume-takes-nothing", "MV-04", "answers OK to an empty change", || {
        Interceptor::default().accept::<Modify>(Code::InvalidArgument)
    }),
    violation(
        "modify-volume-ignores-bad-values",
        "MV-05",
        "drops values that mean nothing",
        || {
            Interceptor::default().ask::<Modify>(|request| {
                request
                    .mutable_parameters
                    .retain(|key, value| key != "readIops" || value.parse::<u64>().is_ok());
                if request.mutable_parameters.is_empty() {
                    request.mutable_parameters.insert("readIops".to_owned(), "1000".to_owned());
                }
            })
        },
    ),
    violation(
        "modify-volume-ignores-unknown-keys",
        "MV-06",
        "drops keys that it does not know",
        || {
            Interceptor::default().ask::<Modify>(|request| {
                request.mutable_parameters.retain(|key, _| key == "readIops");
            })
        },
    ),
    violation(
        "modify-volume-lost-is-invalid",
        "MV-08",
        "answers INVALID_ARGUMENT where it is gone",
        || Interceptor::default().recode::<Modify>(Code::NotFound, Code::InvalidArgument),
    ),
    violation(
        "modify-volume-changes-context",
        "MV-11",
        "writes the change into the volume_context",
        || {
            let modified = Arc::new(AtomicBool::new(false));
            let noted = Arc::clone(&modified);
            Interceptor::default()
                .reply::<Modify>(move |_, _| noted.store(true, Ordering::Relaxed))
                .reply::<ControllerGetVolumeRequest>(move |_, reply| {
                    if let (true, Some(volume)) =
                        (modified.load(Ordering::Relaxed), &mut reply.volume)
                    {
                        volume.volume_context.insert("readIops".to_owned(), "2000".to_owned());
                    }
                })
        },
    ),
    violation(
        "modify-volume-hides-failures",
        "MV-12",
        "answers OK where the storage failed",
        || {
            Interceptor::default()
                .refusal::<Modify>(|_, _| Ok(ControllerModifyVolumeResponse::default()))
        },
    ),
];
