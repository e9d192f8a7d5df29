//! ValidateVolumeCapabilities (VC).

use std::sync::atomic::{AtomicUsize, Ordering};

use csi_conformance::wire::csi::v1::validate_volume_capabilities_response::Confirmed;
use csi_conformance::wire::csi::v1::{
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

type Validate = ValidateVolumeCapabilitiesRequest;

pub(super) const ALL: &[Violation] = &[
    violation("validate-is-missing", "VC-01", "does not know the call", || {
        Interceptor::default().unimplemented::<Validate>()
    }),
    violation("validate-changes-its-mind", "VC-02", "confirms every other time", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().reply::<Validate>(move |_, reply| {
            if calls.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
                reply.confirmed = None;
            }
        })
    }),
    violation("validate-never-confirms", "VC-03", "does not confirm what it can do", || {
        Interceptor::default().reply::<Validate>(|_, reply| reply.confirmed = None)
    }),
    violation(
        "validate-looks-at-one-use",
        "VC-04",
        "confirms all if the first capability is good",
        || {
            Interceptor::default()
                .ask::<Validate>(|request| request.volume_capabilities.truncate(1))
        },
    ),
    violation(
        "validate-refuses",
        "VC-04",
        "answers INVALID_ARGUMENT where it should say no",
        || {
            Interceptor::default().outcome::<Validate>(|_, answer| match answer {
                Ok(reply) if reply.confirmed.is_none() => {
                    Err(Status::invalid_argument("this cannot be had"))
                }
                other => other,
            })
        },
    ),
    violation("validate-confirms-nothing", "VC-06", "confirms without saying what", || {
        Interceptor::default().reply::<Validate>(|_, reply| {
            if let Some(confirmed) = &mut reply.confirmed {
                confirmed.volume_capabilities.clear();
            }
        })
    }),
    violation(
        "validate-confirms-what-nobody-asked",
        "VC-07",
        "confirms parameters that were not in the question",
        || {
            Interceptor::default().reply::<Validate>(|_, reply| {
                if let Some(confirmed) = &mut reply.confirmed {
                    confirmed.parameters.insert("pool".to_owned(), "memory".to_owned());
                }
            })
        },
    ),
    violation("validate-takes-no-volume", "VC-08", "answers OK although the id is missing", || {
        Interceptor::default().accept::<Validate>(Code::InvalidArgument)
    }),
    violation(
        "validate-takes-no-capabilities",
        "VC-09",
        "confirms a question without capabilities",
        || Interceptor::default().accept::<Validate>(Code::InvalidArgument),
    ),
    violation(
        "validate-denies-lost-volumes",
        "VC-10",
        "answers OK without confirmed where the volume is gone",
        || Interceptor::default().accept::<Validate>(Code::NotFound),
    ),
    violation(
        "validate-ignores-context",
        "VC-11",
        "confirms a volume_context that is not the volume's",
        || {
            Interceptor::default()
                .ask::<Validate>(|request| request.volume_context.clear())
                .reply::<Validate>(|request, reply| {
                    if let Some(confirmed) = &mut reply.confirmed {
                        confirmed.volume_context.clone_from(&request.volume_context);
                    }
                })
        },
    ),
    violation("validate-hides-failures", "VC-12", "confirms where the storage failed", || {
        Interceptor::default().refusal::<Validate>(|request, _| {
            let volume_capabilities = request.volume_capabilities.clone();
            let confirmed = Some(Confirmed { volume_capabilities, ..Confirmed::default() });
            Ok(ValidateVolumeCapabilitiesResponse { confirmed, message: String::new() })
        })
    }),
];
