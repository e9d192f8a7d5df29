//! Configuration and operation (OP).

use csi_conformance::wire::csi::v1::ControllerExpandVolumeRequest;

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] =
    &[violation("logs-hold-secrets", "OP-14", "logs the secrets of an expansion", || {
        Interceptor::default().ask::<ControllerExpandVolumeRequest>(|request| {
            for (key, value) in &request.secrets {
                tracing::debug!("expanding with {key}={value}");
            }
        })
    })];
