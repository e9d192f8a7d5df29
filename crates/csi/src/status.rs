//! Domain errors become gRPC statuses here and nowhere else.

use orlop_model::Error;
use tonic::{Code, Status};

use crate::reply::shortened;

/// Statuses travel in HTTP headers, which peers bound, mostly to 8 KiB; a text of this length fits whatever its
/// characters are. Commands that save data, with the paths of kubelet, fit too.
const LONGEST_MESSAGE: usize = 2048;

/// The message is never empty and there are no details (GEN-16, GEN-17).
pub(crate) fn from_error(error: &Error) -> Status {
    Status::new(code(error), shortened(&error.to_string(), LONGEST_MESSAGE))
}

/// CSI-Addons has a separate code for a failure of which nothing is known but that it happened
/// (RS-07); for all that is known, the codes are the same.
pub(crate) fn from_reclaim_error(error: &Error) -> Status {
    let status = from_error(error);
    if status.code() == Code::Internal {
        return Status::unknown(status.message());
    }
    status
}

fn code(error: &Error) -> Code {
    match error {
        Error::Invalid { .. } => Code::InvalidArgument,
        Error::NoSuchVolume(_)
        | Error::NoSuchSnapshot(_)
        | Error::NoSuchGroupSnapshot(_)
        | Error::NoSuchVolumeGroup(_)
        | Error::NotServed { .. }
        | Error::NoSuchNode(_)
        | Error::NotAtPath { .. }
        | Error::NotOnNode(_) => Code::NotFound,
        Error::Conflict { .. } => Code::AlreadyExists,
        Error::Busy { .. } | Error::StaleToken => Code::Aborted,
        Error::OutOfRange(_) => Code::OutOfRange,
        Error::Exhausted(_) => Code::ResourceExhausted,
        Error::Precondition(_) => Code::FailedPrecondition,
        Error::Unauthenticated(_) => Code::Unauthenticated,
        Error::NotOffered(..) => Code::Unimplemented,
        Error::Damaged { .. } => Code::DataLoss,
        Error::Starting | Error::Stopping | Error::Unreachable { .. } => Code::Unavailable,
        Error::Failed { .. } => Code::Internal,
    }
}

/// A code by the name that the protocol's documents use.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests;
