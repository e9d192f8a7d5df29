//! CreateVolume (CV).

pub(super) mod copies;

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use csi_conformance::wire::csi::v1::{
    CapacityRange, ControllerGetCapabilitiesResponse, CreateVolumeRequest, Volume,
};
use csi_conformance::wire::csi::v1::{
    ControllerGetCapabilitiesRequest, CreateVolumeResponse, controller_service_capability,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("create-volume-is-missing", "CV-01", "does not know the call it offers", || {
        Interceptor::default().unimplemented::<CreateVolumeRequest>()
    }),
    violation(
        "create-volume-is-not-idempotent",
        "CV-02",
        "makes another volume at each call",
        numbered,
    ),
    violation(
        "create-volume-wants-the-same-range",
        "CV-03",
        "takes any other range for another volume",
        || {
            let seen = Mutex::new(Vec::<(String, Option<CapacityRange>)>::new());
            Interceptor::default().answer::<CreateVolumeRequest>(move |request| {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                let now = (request.name.clone(), request.capacity_range);
                let clash = seen.iter().any(|(name, range)| *name == now.0 && *range != now.1);
                seen.push(now);
                clash.then(|| Err(Status::already_exists("there is a volume of this name")))
            })
        },
    ),
    violation(
        "create-volume-loses-races",
        "CV-04",
        "makes a volume for each of two calls at once",
        numbered,
    ),
    violation(
        "create-volume-takes-no-name",
        "CV-05",
        "answers OK although the name is missing",
        accept_invalid,
    ),
    violation(
        "create-volume-takes-control-characters",
        "CV-06",
        "drops forbidden characters from names instead of refusing them",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                request.name.retain(|it| !it.is_control() || "\t\r\n".contains(it));
            })
        },
    ),
    violation(
        "create-volume-takes-delete-characters",
        "CV-06",
        "knows the control characters of ASCII and forgets those after it",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                request.name.retain(|it| !('\u{80}'..='\u{9f}').contains(&it));
            })
        },
    ),
    violation(
        "create-volume-flattens-names",
        "CV-07",
        "makes one name of two that differ in a slash",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                request.name = request.name.replace('/', "-");
            })
        },
    ),
    violation(
        "create-volume-wants-plain-names",
        "CV-07",
        "refuses names that are no file names",
        || {
            Interceptor::default().answer::<CreateVolumeRequest>(|request| {
                let odd = request.name.contains(['/', '\t']) || !request.name.is_ascii();
                odd.then(|| Err(Status::invalid_argument("name is not plain")))
            })
        },
    ),
    violation(
        "create-volume-takes-no-capabilities",
        "CV-08",
        "answers OK although the capabilities are missing",
        accept_invalid,
    ),
    violation(
        "create-volume-looks-at-one-use",
        "CV-09",
        "makes the volume for the first capability only",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                request.volume_capabilities.truncate(1);
            })
        },
    ),
    violation(
        "create-volume-checks-one-use",
        "CV-10",
        "looks at the first capability only",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                request.volume_capabilities.truncate(1);
            })
        },
    ),
    violation("create-volume-needs-a-size", "CV-11", "refuses a call without a range", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let sized = request.capacity_range.is_some();
            (!sized).then(|| Err(Status::invalid_argument("capacity_range is missing")))
        })
    }),
    violation(
        "create-volume-rounds-up-too-far",
        "CV-12",
        "makes volumes larger than the limit",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                if let Some(range) = &mut request.capacity_range {
                    range.required_bytes *= 2;
                    range.limit_bytes = 0;
                }
            })
        },
    ),
    violation(
        "create-volume-too-large-is-exhausted",
        "CV-13",
        "answers RESOURCE_EXHAUSTED where a size can never be had",
        || {
            let (from, to) = (Code::OutOfRange, Code::ResourceExhausted);
            Interceptor::default().recode::<CreateVolumeRequest>(from, to)
        },
    ),
    violation(
        "create-volume-ignores-the-limit",
        "CV-13",
        "makes a volume of its default size where less is asked for",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                request.capacity_range = request.capacity_range.filter(|it| it.required_bytes > 0);
            })
        },
    ),
    violation(
        "create-volume-ignores-unknown-parameters",
        "CV-18",
        "takes parameters that it does not know",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                request.parameters.retain(|key, _| key == "pool");
            })
        },
    ),
    violation(
        "create-volume-ignores-bad-mutable-parameters",
        "CV-20",
        "takes mutable parameters with values that mean nothing",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                request
                    .mutable_parameters
                    .retain(|key, value| key != "readIops" || value.parse::<u64>().is_ok());
            })
        },
    ),
    violation(
        "create-volume-takes-what-is-not-offered",
        "CV-21",
        "takes mutable parameters and does not offer MODIFY_VOLUME",
        || without(controller_service_capability::rpc::Type::ModifyVolume),
    ),
    violation(
        "create-volume-does-not-compare-sizes",
        "CV-29",
        "returns a volume of another size than that asked for",
        || {
            let seen = Mutex::new(HashSet::<String>::new());
            Interceptor::default().ask::<CreateVolumeRequest>(move |request| {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                if !seen.insert(request.name.clone()) {
                    request.capacity_range = None;
                }
            })
        },
    ),
    violation(
        "create-volume-does-not-compare-sources",
        "CV-29",
        "returns a volume with other content than that asked for",
        || {
            Interceptor::default().outcome::<CreateVolumeRequest>(|request, answer| {
                let copy = request.volume_content_source.is_some();
                match answer {
                    Err(status) if copy && status.code() == Code::AlreadyExists => {
                        Ok(CreateVolumeResponse::default())
                    }
                    other => other,
                }
            })
        },
    ),
    violation(
        "create-volume-forgets-where",
        "CV-29",
        "does not compare the places of a volume that is there",
        || {
            let seen = Mutex::new(HashSet::<String>::new());
            Interceptor::default().ask::<CreateVolumeRequest>(move |request| {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                if !seen.insert(request.name.clone()) {
                    request.accessibility_requirements = None;
                }
            })
        },
    ),
    violation(
        "create-volume-full-place-is-out-of-range",
        "CV-30",
        "answers OUT_OF_RANGE where the place is full",
        || {
            let (from, to) = (Code::ResourceExhausted, Code::OutOfRange);
            Interceptor::default().recode::<CreateVolumeRequest>(from, to)
        },
    ),
    violation(
        "create-volume-returns-nothing",
        "CV-31",
        "leaves the volume out of the reply",
        || Interceptor::default().reply::<CreateVolumeRequest>(|_, reply| reply.volume = None),
    ),
    violation(
        "create-volume-hides-failures",
        "CV-32",
        "answers OK where the storage failed",
        || {
            Interceptor::default().refusal::<CreateVolumeRequest>(|request, _| {
                let volume_id = format!("volume-{}", request.name.len());
                let volume = Volume { volume_id, ..Volume::default() };
                Ok(CreateVolumeResponse { volume: Some(volume) })
            })
        },
    ),
    violation(
        "create-volume-starts-over",
        "CV-35",
        "makes a second volume after a call whose answer was lost",
        numbered,
    ),
];

/// Each call has another name.
fn numbered() -> Interceptor {
    let calls = AtomicUsize::new(0);
    Interceptor::default().ask::<CreateVolumeRequest>(move |request| {
        let number = calls.fetch_add(1, Ordering::Relaxed);
        request.name.push_str(&format!("-{number}"));
    })
}

fn accept_invalid() -> Interceptor {
    Interceptor::default().accept::<CreateVolumeRequest>(Code::InvalidArgument)
}

/// Does not say that it can do this.
pub(super) fn without(left_out: controller_service_capability::rpc::Type) -> Interceptor {
    let kept = move |reply: &mut ControllerGetCapabilitiesResponse| {
        reply.capabilities.retain(|entry| {
            let Some(controller_service_capability::Type::Rpc(rpc)) = &entry.r#type else {
                return true;
            };
            rpc.r#type() != left_out
        });
    };
    Interceptor::default().reply::<ControllerGetCapabilitiesRequest>(move |_, reply| kept(reply))
}
