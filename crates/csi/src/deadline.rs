//! The deadline that a caller sets for its call. The gRPC library enforces it too, but answers
//! CANCELLED, which says that the caller gave up; so it is enforced here, a moment earlier.

use std::time::Duration;

use tokio::time::Sleep;
use tonic::Status;
use tonic::codegen::http::HeaderMap;

const HEADER: &str = "grpc-timeout";
/// As the gRPC text has it.
const MAX_DIGITS: usize = 8;

/// Begins to run when it is made; `None`: the call has no deadline, or one that cannot be read.
pub(crate) fn of(headers: &HeaderMap) -> Option<Sleep> {
    headers.get(HEADER)?.to_str().ok().and_then(parse).map(tokio::time::sleep)
}

/// Returns once the deadline has passed, or never.
pub(crate) async fn passed(deadline: Option<Sleep>) {
    match deadline {
        Some(deadline) => deadline.await,
        None => std::future::pending().await,
    }
}

pub(crate) fn exceeded() -> Status {
    Status::deadline_exceeded(
        "the caller's deadline has passed; an operation that has begun continues",
    )
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty()
        || digits.len() > MAX_DIGITS
        || !digits.bytes().all(|digit| digit.is_ascii_digit())
    {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "deadline_tests.rs"]
mod tests;
