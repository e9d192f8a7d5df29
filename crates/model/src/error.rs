//! Everything that can go wrong, named by what the caller can do about it.
//!
//! The edge turns these into gRPC codes in one place (`orlop-csi`'s `status.rs`). Texts are for
//! people who were woken up: what is wrong, with which object, and what would mend it. They
//! never hold secrets, mount flags or tool arguments.

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

    #[error("node {0} is not known to this plugin")]
    NoSuchNode(String),

    /// The volume exists, but not where the caller says it is.
    #[error("volume {volume} is not at {path}: {reason}")]
    NotAtPath { volume: String, path: String, reason: String },

    /// The name or place is taken by something that differs from what was asked for.
    #[error("{what} exists already and differs: {reason}")]
    Conflict { what: String, reason: String },

    /// Another call on the same object is running.
    #[error("another operation on {0} is in progress; try again")]
    Busy(String),

    /// A page token that this plugin never issued.
    #[error("starting_token is not one that was issued here; start again from the first page")]
    StaleToken,

    /// Never possible with these limits, however much space there is.
    #[error("{0}")]
    OutOfRange(String),

    /// Not possible now: space, or a node's volume count, is used up.
    #[error("{0}")]
    Exhausted(String),

    /// The object is in a state that forbids this; the text says which and what to do.
    #[error("{0}")]
    Precondition(String),

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

    /// A pool is away and may come back by itself: whether it has happened is not known.
    #[error("{doing}: {reason}")]
    Unreachable { doing: String, reason: String },

    /// A pool or the machine failed. `doing` says at what.
    #[error("{doing}: {reason}")]
    Failed { doing: String, reason: String },
}

impl Error {
    pub fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }

    pub fn precondition(reason: impl Into<String>) -> Self {
        Self::Precondition(reason.into())
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

    pub fn failed(doing: impl Into<String>, reason: impl ToString) -> Self {
        Self::Failed { doing: doing.into(), reason: reason.to_string() }
    }
}
