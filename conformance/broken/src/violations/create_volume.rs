//! CreateVolume (CV).

use std::sync::atomic::{AtomicUsize, Ordering};

use csi_conformance::wire::csi::v1::CreateVolumeRequest;
use tonic::Code;

use crate::rig::Rig;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation(
        "create-volume-is-not-idempotent",
        "CV-02",
        "makes another volume at each call",
        || {
            let calls = AtomicUsize::new(0);
            Rig::default().ask::<CreateVolumeRequest>(move |request| {
                let number = calls.fetch_add(1, Ordering::Relaxed);
                request.name.push_str(&format!("-{number}"));
            })
        },
    ),
    violation(
        "create-volume-takes-no-name",
        "CV-05",
        "answers OK although the name is missing",
        || Rig::default().accept::<CreateVolumeRequest>(Code::InvalidArgument),
    ),
];
