//! What a pool remembers about a volume or a snapshot, beside the data itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::capability::{CapabilitySet, FsType, VolumeCapability};
use crate::encryption::{EncryptionState, HEADER_BYTES};
use crate::error::{Error, Result};
use crate::id::{GroupSnapshotId, NodeId, PoolId, SnapshotId, VolumeGroupId, VolumeId};
use crate::name::ObjectName;
use crate::parameters::{IoLimits, VolumeParameters};

/// The record layout that this version writes. A record of a later one is refused, not guessed at.
pub const RECORD_VERSION: u32 = 1;

/// The same, of what is encrypted: a version of Orlop that knows nothing of encryption would hand out such a volume as
/// raw data. It refuses this version.
pub const ENCRYPTED_RECORD_VERSION: u32 = 2;

/// The version of a new record.
pub fn version_of(encryption: Option<EncryptionState>) -> u32 {
    match encryption {
        Some(_) => ENCRYPTED_RECORD_VERSION,
        None => RECORD_VERSION,
    }
}

/// Does this version of Orlop know the records of that version?
pub fn is_known_version(version: u32) -> bool {
    [RECORD_VERSION, ENCRYPTED_RECORD_VERSION].contains(&version)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    pub version: u32,
    pub id: VolumeId,
    pub name: ObjectName,
    pub capacity_bytes: u64,
    pub capabilities: CapabilitySet,
    pub parameters: VolumeParameters,
    pub limits: IoLimits,
    pub source: Option<ContentSource>,
    pub format: FormatState,
    /// Of an encrypted volume; `format` is then what is on its mapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<EncryptionState>,
    /// The unmounted filesystem is being grown, or that was interrupted: the only cause for which it is repaired
    /// without asking. It is not mounted before the growth is complete. A daemon that does not know this field
    /// does not stage a volume that needs the repair.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub growing: bool,
    /// Made by NodePublishVolume for one workload and gone with it.
    pub ephemeral: bool,
    /// Of an ephemeral volume: no workload has seen it yet, so it may be discarded. Cleared before
    /// the first publication. A record that does not say is of a volume that may hold data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_published: bool,
    pub created: Timestamp,
    /// Nodes that the controller published the volume to.
    pub published: BTreeMap<NodeId, ControllerPublication>,
}

/// How many bytes a workload has of a volume or snapshot of that size.
fn usable_bytes(size: u64, encryption: Option<EncryptionState>) -> u64 {
    match encryption {
        Some(_) => size.saturating_sub(HEADER_BYTES),
        None => size,
    }
}

impl VolumeRecord {
    pub fn is_encrypted(&self) -> bool {
        self.encryption.is_some()
    }

    /// What of the capacity a workload has: all but the header of an encrypted volume.
    pub fn usable_bytes(&self) -> u64 {
        usable_bytes(self.capacity_bytes, self.encryption)
    }

    /// For messages: the id, and the name by which the orchestrator knows the volume.
    pub fn label(&self) -> String {
        format!("volume {} ({})", self.id, self.name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    pub version: u32,
    pub id: SnapshotId,
    pub name: ObjectName,
    pub source: VolumeId,
    /// What a volume restored from this needs at least.
    pub size_bytes: u64,
    pub format: FormatState,
    /// As that of its volume, with the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<EncryptionState>,
    /// What the source volume was made for: a restore may not turn raw data into a mount.
    pub capabilities: CapabilitySet,
    /// When the point-in-time copy was taken, not when the record was written.
    pub created: Timestamp,
    /// Set for a member of a group snapshot, which lives and dies with its group.
    #[serde(default)]
    pub group: Option<GroupSnapshotId>,
    #[serde(default)]
    pub consistency: Consistency,
}

impl SnapshotRecord {
    /// As [`VolumeRecord::usable_bytes`].
    pub fn usable_bytes(&self) -> u64 {
        usable_bytes(self.size_bytes, self.encryption)
    }

    /// As [`VolumeRecord::label`].
    pub fn label(&self) -> String {
        format!("snapshot {} ({})", self.id, self.name)
    }
}

/// What is certain about the data of a snapshot; the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// As `Crash`, but each member of the group for itself: not of one instant with the others.
    Alone,
    /// As after a power cut: what was flushed is there, in order.
    #[default]
    Crash,
    /// Nothing was writing, or the filesystem was frozen: clean, with all that was written.
    Filesystem,
}

impl Consistency {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alone => "crash-alone",
            Self::Crash => "crash",
            Self::Filesystem => "filesystem",
        }
    }
}

/// Snapshots of several volumes, taken together. Exists only when all of them do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSnapshotRecord {
    pub version: u32,
    pub id: GroupSnapshotId,
    pub name: ObjectName,
    pub members: Vec<SnapshotId>,
    pub created: Timestamp,
    /// The pools on which parts of the group are, if there are several. Each has its own record, with the
    /// same name.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pools: BTreeSet<PoolId>,
}

impl GroupSnapshotRecord {
    /// The id of the whole group, which all its parts have in common.
    pub fn whole(&self) -> GroupSnapshotId {
        let first = self.pools.first().unwrap_or_else(|| self.id.pool());
        GroupSnapshotId::new(first.clone(), self.id.digest().clone())
    }
}

/// Volumes that are handled together (CSI-Addons).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeGroupRecord {
    pub version: u32,
    pub id: VolumeGroupId,
    pub name: ObjectName,
    pub members: BTreeSet<VolumeId>,
    /// How many members the group takes at most.
    pub max_members: u32,
    pub created: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentSource {
    Snapshot(SnapshotId),
    Volume(VolumeId),
}

impl ContentSource {
    pub fn pool(&self) -> &PoolId {
        match self {
            Self::Snapshot(id) => id.pool(),
            Self::Volume(id) => id.pool(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerPublication {
    pub read_only: bool,
    pub capability: VolumeCapability,
    /// Set before the node is fenced, so that it does not attach the volume in between; other
    /// nodes wait until the entry is gone.
    #[serde(default)]
    pub leaving: bool,
    #[serde(default)]
    pub reader: ReaderState,
}

impl ControllerPublication {
    /// A mode for readers is read-only whatever `readonly` says (NP-35).
    pub fn writes(&self) -> bool {
        !self.read_only && !self.capability.mode.is_read_only()
    }
}

/// How far a node is that mounts a filesystem which other nodes mount as well. All of them read,
/// but a journal has to be replayed and a copy to be given its identity before, by one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReaderState {
    #[default]
    Away,
    Preparing,
    Reading,
}

/// Whether a volume was ever formatted, and as what. mkfs runs on `Blank` and `Formatting`
/// only; in every other state a probe that disagrees is an error, never a reason to format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum FormatState {
    /// Nothing was ever written by anyone.
    Blank,
    /// mkfs was about to run or was interrupted; it never was mounted, so mkfs may run again.
    Formatting {
        fs: FsType,
        uuid: FsUuid,
    },
    Formatted {
        fs: FsType,
        uuid: FsUuid,
    },
    /// A copy that was not mounted yet; the original has the same UUID.
    Copied {
        fs: FsType,
        uuid: FsUuid,
    },
    /// The UUID of a copy is being changed from `old` to `new`; the device holds either.
    Renewing {
        fs: FsType,
        old: FsUuid,
        new: FsUuid,
    },
    /// Handed out as a raw device: what is on it is the workload's business.
    Raw,
}

impl FormatState {
    pub fn fs(&self) -> Option<FsType> {
        match self {
            Self::Blank | Self::Raw => None,
            Self::Formatting { fs, .. }
            | Self::Formatted { fs, .. }
            | Self::Copied { fs, .. }
            | Self::Renewing { fs, .. } => Some(*fs),
        }
    }

    /// The state of a byte-for-byte copy. `None` while the UUID is being changed, as the copy could hold
    /// either; and while the filesystem is being made, as mkfs would run on the copy, whatever has been
    /// written since.
    pub fn of_copy(self) -> Option<Self> {
        match self {
            Self::Formatted { fs, uuid } => Some(Self::Copied { fs, uuid }),
            Self::Blank | Self::Raw | Self::Copied { .. } => Some(self),
            Self::Formatting { .. } | Self::Renewing { .. } => None,
        }
    }
}

/// A filesystem's UUID, in the byte order of its text form.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FsUuid([u8; 16]);

impl FsUuid {
    /// Marks random bytes as a version 4 UUID.
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Self(bytes)
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for FsUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for FsUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for FsUuid {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        let malformed = || Error::invalid("uuid", "is not a UUID");
        let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
        let digits = str::from_utf8(&digits).map_err(|_| malformed())?;
        if text.len() != 36 || digits.len() != 32 {
            return Err(malformed());
        }
        let number = u128::from_str_radix(digits, 16).map_err(|_| malformed())?;
        let uuid = Self(number.to_be_bytes());
        // A number may have a sign, and dashes were not looked at.
        if uuid.to_string() != text.to_ascii_lowercase() {
            return Err(malformed());
        }
        Ok(uuid)
    }
}

impl From<FsUuid> for String {
    fn from(uuid: FsUuid) -> String {
        uuid.to_string()
    }
}

/// A moment, as the wire has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanos: i32,
}

impl Timestamp {
    /// This time, or the one right after `earlier` if a clock that was set back says less.
    #[must_use]
    pub fn after(self, earlier: Self) -> Self {
        const SECOND: i32 = 1_000_000_000;
        if self > earlier {
            return self;
        }
        if earlier.nanos < SECOND - 1 {
            return Self { nanos: earlier.nanos + 1, ..earlier };
        }
        Self { seconds: earlier.seconds.saturating_add(1), nanos: 0 }
    }
}

impl From<SystemTime> for Timestamp {
    /// A clock before 1970 is a broken clock; the epoch is as good an answer as any.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(since.subsec_nanos()).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn order_survives_a_clock_set_back() {
        let at = |seconds, nanos| Timestamp { seconds, nanos };
        assert_eq!(at(5, 1).after(at(4, 9)), at(5, 1));
        assert_eq!(at(3, 0).after(at(4, 9)), at(4, 10));
        assert_eq!(at(4, 9).after(at(4, 9)), at(4, 10));
        assert_eq!(at(3, 0).after(at(4, 999_999_999)), at(5, 0));
    }

    #[test]
    fn uuid_round_trips_through_text() {
        let uuid = FsUuid::from_random([0xab; 16]);
        assert_eq!(uuid.to_string(), "abababab-abab-4bab-abab-abababababab");
        assert_eq!(FsUuid::try_from(uuid.to_string()).unwrap(), uuid);
        for text in [
            "not-a-uuid",
            "+bababab-abab-4bab-abab-abababababab",
            "abababababab-4bab-abab-abab-abababab",
        ] {
            assert!(FsUuid::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn copy_records_that_its_uuid_is_shared() {
        let uuid = FsUuid::from_random([1; 16]);
        let formatted = FormatState::Formatted { fs: FsType::Btrfs, uuid };
        let copied = FormatState::Copied { fs: FsType::Btrfs, uuid };
        assert_eq!(formatted.of_copy(), Some(copied));
        assert_eq!(copied.of_copy(), Some(copied));
        let renewing = FormatState::Renewing { fs: FsType::Btrfs, old: uuid, new: uuid };
        assert_eq!(renewing.of_copy(), None);
        assert_eq!(FormatState::Formatting { fs: FsType::Ext4, uuid }.of_copy(), None);
    }
}
