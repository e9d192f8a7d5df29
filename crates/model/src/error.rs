//! Everything that can go wrong, named by what the caller can do about it.
//!
//! The edge turns these into gRPC codes in one place (`orlop-csi`'s `status.rs`). Texts are for
//! people who were woken up: what is wrong, with which object, and what would mend it. They
//! never hold secrets, mount flags or tool arguments.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::id::PoolId;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request breaks a rule of the protocol or asks for something unknown here.
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: String },

    #[error("volume {0} does not exist")]
    NoSuchVolume(String),

    #[error("snapshot {0} does not exist")]
    NoSuchSnapshot(String),

    #[error("group snapshot {0} does not exist")]
    NoSuchGroupSnapshot(String),

    #[error("volume group {0} does not exist")]
    NoSuchVolumeGroup(String),

    /// Its id names a pool that is not served here; what is there is not known.
    #[error(
        "cannot find {what}: its pool {pool} is not configured on this daemon; configure that pool, \
         or send the call to the daemon that serves it"
    )]
    NotServed { what: String, pool: String },

    #[error(
        "node {0} is not known to this plugin; name one on which its daemon runs, as NodeGetInfo there \
         calls it"
    )]
    NoSuchNode(String),

    /// The volume exists, but not where the caller says it is.
    #[error("volume {volume} is not at {path}: {reason}")]
    NotAtPath { volume: String, path: String, reason: String },

    /// The volume may exist, but nothing of it is here.
    #[error(
        "volume {0} is not on this node: it is not staged here, and no attempt to stage it has failed \
         since the daemon started"
    )]
    NotOnNode(String),

    /// The name or place is taken by something that differs from what was asked for.
    #[error("{what} exists already and differs: {reason}")]
    Conflict { what: String, reason: String },

    /// Another call or process is changing the same object.
    #[error("{object} is busy: {why}; try again")]
    Busy { object: String, why: String },

    /// A page token that this plugin never issued.
    #[error("starting_token is not one that was issued here; start again from the first page")]
    StaleToken,

    /// Never possible with these limits, however much space there is.
    #[error("{0}")]
    OutOfRange(String),

    /// Not possible now: space, or a node's volume count, is used up.
    #[error("{0}")]
    Exhausted(#[source] Reason),

    /// The object is in a state that forbids this; the text says which and what to do.
    #[error("{0}")]
    Precondition(#[source] Reason),

    /// The key that was given does not open the volume.
    #[error("{0}")]
    Unauthenticated(#[source] Reason),

    #[error("{0} is not offered: {1}")]
    NotOffered(&'static str, String),

    /// What is on the pool is not what the record promises. Never overwritten.
    #[error("{what} is damaged: {reason}")]
    Damaged { what: String, reason: String },

    /// The pools are still being read.
    #[error("starting: the pools are still being read; try again")]
    Starting,

    #[error("stopping: this daemon takes on nothing new; try again")]
    Stopping,

    /// A pool is absent and may come back by itself: whether the call had an effect is not known.
    #[error("cannot {doing}: {reason}")]
    Unreachable {
        doing: String,
        #[source]
        reason: Reason,
    },

    /// A pool or the machine failed. `doing` says at what, as a verb phrase: "read the pool header".
    #[error("cannot {doing}: {reason}")]
    Failed {
        doing: String,
        #[source]
        reason: Reason,
    },
}

/// Why a call failed, as a text; with the error of the layer below, if there was one.
///
/// The text includes that of the source: an answer and a log line show it whole. Two reasons are equal if
/// they read alike.
#[derive(Debug, Clone)]
pub struct Reason {
    text: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Reason {
    /// What `source` says of itself.
    pub fn of(source: impl StdError + Send + Sync + 'static) -> Self {
        Self { text: source.to_string(), source: Some(Arc::new(source)) }
    }

    /// `text` tells more than `source` does: what the call was to do, or what would help.
    pub fn explained(text: String, source: impl StdError + Send + Sync + 'static) -> Self {
        Self { text, source: Some(Arc::new(source)) }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl StdError for Reason {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Reason {}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self { text, source: None }
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Error {
    pub fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }

    pub fn precondition(reason: impl Into<Reason>) -> Self {
        Self::Precondition(reason.into())
    }

    pub fn unauthenticated(reason: impl Into<Reason>) -> Self {
        Self::Unauthenticated(reason.into())
    }

    pub fn exhausted(reason: impl Into<Reason>) -> Self {
        Self::Exhausted(reason.into())
    }

    pub fn busy(object: impl ToString, why: impl Into<String>) -> Self {
        Self::Busy { object: object.to_string(), why: why.into() }
    }

    pub fn conflict(what: impl ToString, reason: impl Into<String>) -> Self {
        Self::Conflict { what: what.to_string(), reason: reason.into() }
    }

    pub fn not_served(what: impl ToString, pool: &PoolId) -> Self {
        Self::NotServed { what: what.to_string(), pool: pool.to_string() }
    }

    pub fn damaged(what: impl ToString, reason: impl ToString) -> Self {
        Self::Damaged { what: what.to_string(), reason: reason.to_string() }
    }

    pub fn unreachable(doing: impl Into<String>, reason: impl Into<Reason>) -> Self {
        Self::Unreachable { doing: doing.into(), reason: reason.into() }
    }

    pub fn failed(doing: impl Into<String>, reason: impl Into<Reason>) -> Self {
        Self::Failed { doing: doing.into(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests;
