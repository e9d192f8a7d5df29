//! Reclaim space of CSI-Addons (RS).

use std::sync::atomic::{AtomicUsize, Ordering};

use csi_conformance::wire::reclaimspace::{
    ControllerReclaimSpaceRequest, NodeReclaimSpaceRequest, StorageConsumption,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("reclaims-nothing", "RS-02", "reclaims without a volume_id", || {
        Interceptor::default().accept::<ControllerReclaimSpaceRequest>(Code::InvalidArgument)
    }),
    violation("reclaims-nowhere", "RS-02", "takes no path for an unknown one", || {
        Interceptor::default()
            .recode::<NodeReclaimSpaceRequest>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("reclaims-the-unknown", "RS-03", "reclaims what does not exist", || {
        Interceptor::default().accept::<ControllerReclaimSpaceRequest>(Code::NotFound)
    }),
    violation("reclaims-the-unknown-on-node", "RS-03", "has another code for that", || {
        Interceptor::default()
            .recode::<NodeReclaimSpaceRequest>(Code::NotFound, Code::InvalidArgument)
    }),
    violation("reclaims-one-at-a-time", "RS-04", "breaks down at a second call", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().answer::<ControllerReclaimSpaceRequest>(move |_| {
            let is_second = calls.fetch_add(1, Ordering::Relaxed) % 2 == 1;
            is_second.then(|| Err(Status::internal("the volume is locked")))
        })
    }),
    violation("reclaim-is-internal", "RS-05", "has another code for what it cannot do", || {
        Interceptor::default().answer::<ControllerReclaimSpaceRequest>(|_| {
            Some(Err(Status::failed_precondition("the filesystem cannot do it")))
        })
    }),
    violation("reclaim-denies-secrets", "RS-06", "has another code for wrong secrets", || {
        Interceptor::default().answer::<ControllerReclaimSpaceRequest>(|request| {
            let is_wrong = request.secrets.values().any(|value| value == "wrong");
            is_wrong.then(|| Err(Status::permission_denied("wrong secrets")))
        })
    }),
    violation("reclaim-trouble-is-internal", "RS-07", "has another code for trouble", || {
        Interceptor::default()
            .recode::<ControllerReclaimSpaceRequest>(Code::Unknown, Code::Internal)
    }),
    violation("reclaim-has-no-trouble", "RS-07", "says that it reclaimed and did not", || {
        Interceptor::default().accept::<ControllerReclaimSpaceRequest>(Code::Unknown)
    }),
    violation("reclaim-without-usage", "RS-08", "sends a usage that says nothing", || {
        Interceptor::default().reply::<NodeReclaimSpaceRequest>(|_, reply| {
            reply.post_usage = Some(StorageConsumption::default());
        })
    })
    .on_real(),
    violation("reclaim-at-short-paths", "RS-09", "takes paths of 128 bytes at most", || {
        Interceptor::default().answer::<NodeReclaimSpaceRequest>(|request| {
            let is_long = request.volume_path.len() > 128;
            is_long.then(|| Err(Status::invalid_argument("volume_path is too long")))
        })
    }),
    violation("reclaim-wants-capability", "RS-10", "fails without a capability", || {
        Interceptor::default().answer::<NodeReclaimSpaceRequest>(|request| {
            let is_missing = request.volume_capability.is_none();
            is_missing.then(|| Err(Status::internal("no volume_capability")))
        })
    }),
];
