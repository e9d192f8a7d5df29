//! Why a command failed, and its exit code.

use std::fmt::Display;

use tonic::{Code, Status};

/// The command line is wrong or incomplete; nothing was done.
const USAGE: u8 = 2;
/// The plugin refused, or has no such object.
const REFUSED: u8 = 3;
const FAILED: u8 = 1;
/// 128 and the number of SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;

pub(crate) const EXIT_CODES: &str = "Exit codes: 0 done; 1 something failed, and a repeated call may succeed; \
    2 the command line is wrong, or a confirmation is missing; 3 the plugin refused, or has no such object; \
    130 interrupted.";

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    Interrupted(String),
    /// Standard output is closed, as by `| head`. Nothing is printed.
    #[error("standard output is closed")]
    OutputClosed,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::Refused(text.into())
    }

    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// `doing` reads as in "delete volume v-1".
    pub(crate) fn of_status(doing: &dyn Display, status: &Status) -> Self {
        let (code, is_refusal) = classify(status.code());
        let message = match status.message() {
            "" => "it gave no reason",
            message => message,
        };
        match is_refusal {
            true => {
                Self::Refused(format!("cannot {doing}: the plugin refused it ({code}): {message}"))
            }
            false => Self::Failed(format!("cannot {doing}: the plugin failed ({code}): {message}")),
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Refused(_) => REFUSED,
            Self::Failed(_) => FAILED,
            Self::Interrupted(_) => INTERRUPTED,
            Self::OutputClosed => 0,
        }
    }

    /// The plugin has no such call.
    pub(crate) fn is_unimplemented(&self) -> bool {
        matches!(self, Self::Refused(text) if text.contains("(UNIMPLEMENTED)"))
    }

    /// The plugin has no such object.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(text) if text.contains("(NOT_FOUND)"))
    }

    /// What the object holds cannot be read any more.
    pub(crate) fn is_data_loss(&self) -> bool {
        matches!(self, Self::Failed(text) if text.contains("(DATA_LOSS)"))
    }

    /// The plugin answered that it did not do it.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Refused(_)) || self.is_data_loss()
    }

    /// The same failure, with advice at the end of its text.
    #[must_use]
    pub(crate) fn with_hint(self, hint: &str) -> Self {
        match self {
            Self::Usage(text) => Self::Usage(format!("{text}; {hint}")),
            Self::Refused(text) => Self::Refused(format!("{text}; {hint}")),
            Self::Failed(text) => Self::Failed(format!("{text}; {hint}")),
            Self::Interrupted(text) => Self::Interrupted(format!("{text}; {hint}")),
            Self::OutputClosed => Self::OutputClosed,
        }
    }
}

/// The name of a code as the protocol writes it, and whether it is an answer rather than a fault.
fn classify(code: Code) -> (&'static str, bool) {
    match code {
        Code::Ok => ("OK", false),
        Code::Cancelled => ("CANCELLED", false),
        Code::Unknown => ("UNKNOWN", false),
        Code::InvalidArgument => ("INVALID_ARGUMENT", true),
        Code::DeadlineExceeded => ("DEADLINE_EXCEEDED", false),
        Code::NotFound => ("NOT_FOUND", true),
        Code::AlreadyExists => ("ALREADY_EXISTS", true),
        Code::PermissionDenied => ("PERMISSION_DENIED", true),
        Code::ResourceExhausted => ("RESOURCE_EXHAUSTED", true),
        Code::FailedPrecondition => ("FAILED_PRECONDITION", true),
        Code::Aborted => ("ABORTED", true),
        Code::OutOfRange => ("OUT_OF_RANGE", true),
        Code::Unimplemented => ("UNIMPLEMENTED", true),
        Code::Internal => ("INTERNAL", false),
        Code::Unavailable => ("UNAVAILABLE", false),
        Code::DataLoss => ("DATA_LOSS", false),
        Code::Unauthenticated => ("UNAUTHENTICATED", true),
    }
}
