//! Answers that never came.

use tonic::Status;

/// The connection broke, or nothing listens: not the daemon's answer, which has no source.
pub fn is_connection_lost(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}
