//! Health as CSI 1.13 has it.

use orlop_model::{Problem, Severity};

use super::in_brief;
use crate::proto::csi::v1;
use crate::proto::csi::v1::node_get_storage_health_response::StorageBackendHealth;
use crate::proto::csi::v1::volume_health::VolumeHealthEntry;
use crate::proto::csi::v1::{StorageHealthErrorType, VolumeHealthErrorType};

/// VH-05: without any problem, without any entry.
pub(crate) fn volume_health(id: &str, problems: &[Problem]) -> v1::VolumeHealth {
    let entry = |problem: &Problem| VolumeHealthEntry {
        status: volume_status(problem.reason.severity()).into(),
        reason: problem.reason.as_str().to_owned(),
        message: in_brief(&problem.message),
    };
    v1::VolumeHealth {
        volume_id: id.to_owned(),
        health_statuses: problems.iter().map(entry).collect(),
    }
}

/// Of every kind of volume: no pool fails for one access type alone.
pub(crate) fn storage_health(problem: &Problem) -> StorageBackendHealth {
    StorageBackendHealth {
        status: storage_status(problem.reason.severity()).into(),
        reason: problem.reason.as_str().to_owned(),
        message: in_brief(&problem.message),
        volume_capability: None,
    }
}

fn volume_status(severity: Severity) -> VolumeHealthErrorType {
    match severity {
        Severity::Degraded => VolumeHealthErrorType::Degraded,
        Severity::Inaccessible => VolumeHealthErrorType::Inaccessible,
        Severity::DataLoss => VolumeHealthErrorType::DataLoss,
    }
}

/// A pool whose image is lost is reached all the same: its volumes go on.
fn storage_status(severity: Severity) -> StorageHealthErrorType {
    match severity {
        Severity::Degraded | Severity::DataLoss => StorageHealthErrorType::StorageDegraded,
        Severity::Inaccessible => StorageHealthErrorType::StorageUnreachable,
    }
}
