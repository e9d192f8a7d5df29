//! Secrets, and flags that may hold some.

use csi_conformance::wire::csi::v1::volume_capability::AccessType;
use csi_conformance::wire::csi::v1::{
    CreateVolumeRequest, NodeStageVolumeRequest, VolumeCapability,
};
use tonic::Status;

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

fn flags(capability: &VolumeCapability) -> String {
    match &capability.access_type {
        Some(AccessType::Mount(mount)) => mount.mount_flags.join(","),
        Some(AccessType::Block(_)) | None => String::new(),
    }
}

pub(super) const ALL: &[Violation] = &[
    violation("keys-of-secrets-are-not-read", "GEN-31", "takes any key of a secret", || {
        Interceptor::default().ask::<CreateVolumeRequest>(|request| request.secrets.clear())
    }),
    violation("secrets-need-not-be-text", "GEN-32", "takes secrets that are not UTF-8", || {
        Interceptor::default().ask_bytes::<CreateVolumeRequest>(|bytes| {
            let text = |byte| if byte == 0xff { b'?' } else { byte };
            bytes.into_iter().map(text).collect()
        })
    }),
    violation("base64-is-refused", "GEN-33", "refuses secrets in base64", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let refusal = Status::invalid_argument("a secret has strange characters");
            request.secrets.values().any(|it| it.contains('=')).then_some(Err(refusal))
        })
    }),
    violation("secrets-of-others-are-refused", "GEN-36", "refuses keys that others need", || {
        Interceptor::default().answer::<NodeStageVolumeRequest>(|request| {
            let refusal = Status::invalid_argument("a secret that is not needed");
            (!request.secrets.is_empty()).then_some(Err(refusal))
        })
    }),
    violation("secrets-in-the-log", "GEN-37", "logs requests as they are", || {
        Interceptor::default().ask::<CreateVolumeRequest>(|request| {
            tracing::info!("CreateVolume {request:?}");
        })
    }),
    violation("flags-in-an-error", "GEN-38", "quotes mount flags that it refuses", || {
        Interceptor::default().refusal::<CreateVolumeRequest>(|request, status| {
            let quoted: Vec<_> = request.volume_capabilities.iter().map(flags).collect();
            Err(Status::new(status.code(), format!("{}: {quoted:?}", status.message())))
        })
    }),
    violation("flags-in-the-log", "GEN-38", "logs mount flags", || {
        Interceptor::default().ask_bytes::<NodeStageVolumeRequest>(|bytes| {
            tracing::info!("staging {}", String::from_utf8_lossy(&bytes));
            bytes
        })
    }),
];
