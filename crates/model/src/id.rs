//! Identifiers. A volume's id holds its pool and a digest of its name, so that two creations of
//! one name meet each other, and so that an id can be parsed without asking anyone.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::name::ObjectName;

/// Eight lower-case hexadecimal digits, drawn when the pool was made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PoolId(String);

impl PoolId {
    const LENGTH: usize = 8;

    pub fn from_random(bytes: [u8; 4]) -> Self {
        Self(hex(&bytes))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// 128 bits of the SHA-256 of a name, as 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameDigest(String);

impl NameDigest {
    const LENGTH: usize = 32;

    pub fn of(name: &ObjectName) -> Self {
        Self::of_text(name.as_str())
    }

    /// Of a group's member. No name holds a NUL, so no snapshot that is made alone can have the
    /// same digest.
    pub fn of_member(group: &ObjectName, volume: &VolumeId) -> Self {
        Self::of_text(&format!("{}\0{volume}", group.as_str()))
    }

    pub fn of_text(text: &str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        Self(hex(&digest[..Self::LENGTH / 2]))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_lower_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

impl FromStr for PoolId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if is_lower_hex(text, Self::LENGTH) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::invalid("pool_id", "is not eight hexadecimal digits"))
    }
}

macro_rules! object_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $missing:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name {
            pool: PoolId,
            digest: NameDigest,
        }

        impl $name {
            pub fn new(pool: PoolId, digest: NameDigest) -> Self {
                Self { pool, digest }
            }

            pub fn pool(&self) -> &PoolId {
                &self.pool
            }

            pub fn digest(&self) -> &NameDigest {
                &self.digest
            }

            fn parse(text: &str) -> Option<Self> {
                let (pool, digest) = text.strip_prefix(concat!($prefix, "-"))?.split_once('-')?;
                let pool = pool.parse().ok()?;
                is_lower_hex(digest, NameDigest::LENGTH)
                    .then(|| Self { pool, digest: NameDigest(digest.to_owned()) })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "-{}-{}"), self.pool.0, self.digest.0)
            }
        }

        /// An id that was never issued here is simply an object that does not exist.
        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                Self::parse(text).ok_or_else(|| $missing(shown(text)))
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
    };
}

object_id!(
    /// `v-POOL-DIGEST`
    VolumeId, "v", Error::NoSuchVolume
);
object_id!(
    /// `s-POOL-DIGEST`
    SnapshotId, "s", Error::NoSuchSnapshot
);

object_id!(
    /// `gs-POOL-DIGEST`
    GroupSnapshotId, "gs", Error::NoSuchGroupSnapshot
);
object_id!(
    /// `g-POOL-DIGEST`
    VolumeGroupId, "g", Error::NoSuchVolumeGroup
);

/// A foreign id as it may stand in a message: bounded and without control characters.
pub fn shown(text: &str) -> String {
    const LONGEST: usize = 128;
    let clean = text.chars().map(|c| if c.is_control() { '?' } else { c });
    let mut shown: String = clean.take(LONGEST).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

impl TryFrom<String> for PoolId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<PoolId> for String {
    fn from(id: PoolId) -> String {
        id.0
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A node as the orchestrator knows it (NI-03: at most 256 bytes).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(String);

impl NodeId {
    const LONGEST: usize = 256;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::invalid("node_id", "is missing"));
        }
        if text.len() > Self::LONGEST || text.chars().any(char::is_control) {
            return Err(Error::invalid(
                "node_id",
                "is longer than 256 bytes or holds control characters",
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for NodeId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<NodeId> for String {
    fn from(id: NodeId) -> String {
        id.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
