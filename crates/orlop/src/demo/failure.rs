//! Why the demo did not reach its end.

use rustix::process::Signal;

use crate::MISCONFIGURED;

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Of the machine, or of what was asked for; nothing was made yet.
    #[error("{0}")]
    Missing(String),

    #[error("{0}")]
    Broken(String),

    /// What was to be shown is not so.
    #[error("not as it should be: {0}")]
    Untrue(String),

    #[error("interrupted")]
    Interrupted(Signal),
}

impl Failure {
    pub(super) fn missing(what: impl Into<String>) -> Self {
        Self::Missing(what.into())
    }

    pub(super) fn broken(what: impl Into<String>) -> Self {
        Self::Broken(what.into())
    }

    /// For `map_err`: `cannot` names what was tried.
    pub(super) fn cannot<E: std::fmt::Display>(
        cannot: impl Into<String>,
    ) -> impl FnOnce(E) -> Self {
        let cannot = cannot.into();
        move |error| Self::Broken(format!("cannot {cannot}: {error}"))
    }

    pub(super) fn signal(&self) -> Option<&'static str> {
        match self {
            Self::Interrupted(Signal::INT) => Some("Ctrl-C"),
            Self::Interrupted(Signal::HUP) => Some("SIGHUP"),
            Self::Interrupted(_) => Some("SIGTERM"),
            Self::Missing(_) | Self::Broken(_) | Self::Untrue(_) => None,
        }
    }

    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Missing(_) => MISCONFIGURED,
            Self::Broken(_) | Self::Untrue(_) => 1,
            // As shells have it.
            Self::Interrupted(signal) => u8::try_from(128 + signal.as_raw()).unwrap_or(1),
        }
    }

    /// And then what it made could not be removed either.
    pub(super) fn and(self, left: &Self) -> Self {
        let first = match self.signal() {
            Some(name) => format!("interrupted by {name}"),
            None => self.to_string(),
        };
        Self::Broken(format!("{first}; then {left}"))
    }
}

/// A claim of a line.
pub(super) fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    match holds {
        true => Ok(()),
        false => Err(Failure::Untrue(otherwise())),
    }
}
