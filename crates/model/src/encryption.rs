//! Encryption at rest: what of it is asked for, and how far a volume has got with it.

use serde::{Deserialize, Serialize};

use crate::record::FsUuid;

/// Where the data of a volume begins behind its LUKS2 header. It is fixed when the volume is formatted, so it must not
/// depend on which cryptsetup formats it.
pub const HEADER_BYTES: u64 = 16 << 20;

/// What a volume is encrypted with; fixed for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encryption {
    pub kind: EncryptionKind,
    /// Discards of the filesystem reach the pool, and so show which blocks are unused.
    pub discard: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EncryptionKind {
    Luks2,
}

impl EncryptionKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Luks2 => "luks2",
        }
    }
}

/// Whether an encrypted volume has its header. luksFormat runs in the first two states only. A volume is opened, and so
/// written to, in the last one only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum EncryptionState {
    Unformatted,
    /// luksFormat was about to run or was interrupted.
    Formatting {
        uuid: FsUuid,
    },
    Formatted {
        uuid: FsUuid,
    },
}

impl EncryptionState {
    /// The state of a byte-for-byte copy, which has the same key. `None` while the header is being written.
    pub fn of_copy(self) -> Option<Self> {
        match self {
            Self::Unformatted | Self::Formatted { .. } => Some(self),
            Self::Formatting { .. } => None,
        }
    }
}

/// What is on the device of an encrypted volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncryptedSignature {
    pub header: HeaderSignature,
    /// The first MiB behind the header and the end of the device are not only zeroes: something was written through a
    /// mapping.
    pub has_data: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderSignature {
    /// Nothing but zeroes where a header begins.
    Blank,
    Luks2 {
        uuid: FsUuid,
    },
    Foreign,
}
