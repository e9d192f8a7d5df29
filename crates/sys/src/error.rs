use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::io::Errno;

use crate::crash;
use crate::resolve::path_of;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{operation} {}: {errno}", path.display())]
    Call { operation: &'static str, path: PathBuf, errno: Errno },

    /// The kernel explained itself through the log of a filesystem context.
    #[error("{operation} {}: {errno}: {messages}", path.display())]
    Explained { operation: &'static str, path: PathBuf, errno: Errno, messages: String },

    /// Nothing failed, but what is there is not what this operation may touch.
    #[error("{operation} {}: {reason}", path.display())]
    Refused { operation: &'static str, path: PathBuf, reason: String },

    /// A lock or protection that an operator has set on the object prevents this until it is removed.
    #[error("{operation} {}: {reason}", path.display())]
    HeldByOperator { operation: &'static str, path: PathBuf, reason: String },

    /// A program that an earlier daemon started, and that is not killed half-way.
    #[error("a tool that was started earlier is still running on {}", device.display())]
    DeviceBusy { device: PathBuf },

    /// The kernel has asked for it back; its holder may take a while.
    #[error("another program holds a lease on {}", path.display())]
    Leased { path: PathBuf },

    #[error("{tool} is not installed in any of /usr/sbin, /usr/bin, /sbin, /bin")]
    ToolMissing { tool: String },

    /// A program that only reads, and was given a time for that.
    #[error("{tool} does not answer: {reason}")]
    Unanswered { tool: String, reason: String },

    /// Never carries the arguments: they may hold what must not reach a log.
    #[error("{tool} ended with {status}: {stderr}")]
    Tool { tool: String, status: ExitStatus, stderr: String },
}

impl Error {
    pub(crate) fn refused(operation: &'static str, path: &Path, reason: impl Into<String>) -> Self {
        Self::Refused { operation, path: path.to_owned(), reason: reason.into() }
    }

    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Call { errno, .. } | Self::Explained { errno, .. } => Some(*errno),
            Self::Refused { .. }
            | Self::HeldByOperator { .. }
            | Self::DeviceBusy { .. }
            | Self::Leased { .. }
            | Self::ToolMissing { .. }
            | Self::Unanswered { .. }
            | Self::Tool { .. } => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(Errno::NOENT)
    }

    pub fn is_taken(&self) -> bool {
        self.errno() == Some(Errno::EXIST)
    }

    pub fn is_no_space(&self) -> bool {
        matches!(self.errno(), Some(Errno::NOSPC | Errno::DQUOT))
    }

    pub fn is_busy(&self) -> bool {
        self.errno() == Some(Errno::BUSY)
    }

    /// The device that a program of an earlier daemon still works on.
    pub fn busy_device(&self) -> Option<&Path> {
        if let Self::DeviceBusy { device } = self { Some(device) } else { None }
    }

    /// The file on which another program holds a lease.
    pub fn leased_file(&self) -> Option<&Path> {
        if let Self::Leased { path } = self { Some(path) } else { None }
    }

    pub fn is_held_by_operator(&self) -> bool {
        matches!(self, Self::HeldByOperator { .. })
    }

    /// Without the operation and its object, for a caller who names them.
    pub fn cause(&self) -> String {
        match self {
            Self::Call { errno, .. } => errno.to_string(),
            Self::Refused { reason, .. } | Self::HeldByOperator { reason, .. } => reason.clone(),
            Self::Explained { .. }
            | Self::DeviceBusy { .. }
            | Self::Leased { .. }
            | Self::ToolMissing { .. }
            | Self::Unanswered { .. }
            | Self::Tool { .. } => self.to_string(),
        }
    }

    /// What is there is not what the operation may touch.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    pub fn is_read_only(&self) -> bool {
        self.errno() == Some(Errno::ROFS)
    }
}

/// The error of a call that failed: one of this crate's, or of std where a caller uses that directly.
pub trait CallError: std::error::Error + Send + Sync + 'static {
    fn errno(&self) -> Option<Errno>;

    /// The device that a program of an earlier daemon still works on.
    fn busy_device(&self) -> Option<&Path>;

    /// The file on which another program holds a lease.
    fn leased_file(&self) -> Option<&Path>;

    /// Is it kept from by what an operator has set on the object?
    fn is_held_by_operator(&self) -> bool;
}

impl CallError for Error {
    fn errno(&self) -> Option<Errno> {
        Self::errno(self)
    }

    fn busy_device(&self) -> Option<&Path> {
        Self::busy_device(self)
    }

    fn leased_file(&self) -> Option<&Path> {
        Self::leased_file(self)
    }

    fn is_held_by_operator(&self) -> bool {
        Self::is_held_by_operator(self)
    }
}

impl CallError for std::io::Error {
    fn errno(&self) -> Option<Errno> {
        Errno::from_io_error(self)
    }

    fn busy_device(&self) -> Option<&Path> {
        None
    }

    fn leased_file(&self) -> Option<&Path> {
        None
    }

    fn is_held_by_operator(&self) -> bool {
        false
    }
}

/// Names the operation and its object where a kernel call failed.
///
/// `effect_on` is for calls that change something outside of this process: once such a call succeeded, a
/// test may end the process ([`crate::crash`]). `on` is for all others: they read, prepare, or change what
/// ends with the process.
pub(crate) trait Context<T> {
    fn on(self, operation: &'static str, path: &Path) -> Result<T>;
    fn on_fd(self, operation: &'static str, fd: impl AsFd) -> Result<T>;
    #[track_caller]
    fn effect_on(self, operation: &'static str, path: &Path) -> Result<T>;
    #[track_caller]
    fn effect_on_fd(self, operation: &'static str, fd: impl AsFd) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Context<T> for std::result::Result<T, E> {
    fn on(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::Call {
            operation,
            path: path.to_owned(),
            errno: errno_of(&error.into()),
        })
    }

    fn on_fd(self, operation: &'static str, fd: impl AsFd) -> Result<T> {
        self.map_err(|error| Error::Call {
            operation,
            path: path_of(fd),
            errno: errno_of(&error.into()),
        })
    }

    fn effect_on(self, operation: &'static str, path: &Path) -> Result<T> {
        if self.is_ok() {
            crash::after(operation);
        }
        self.on(operation, path)
    }

    fn effect_on_fd(self, operation: &'static str, fd: impl AsFd) -> Result<T> {
        if self.is_ok() {
            crash::after(operation);
        }
        self.on_fd(operation, fd)
    }
}

/// Errors that std makes up itself (a write of zero bytes, an early end of file) carry no number;
/// on a block device or an image they all mean that the medium did not deliver.
fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests;
