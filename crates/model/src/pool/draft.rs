//! Objects that are being made, and are not visible yet.

use crate::capability::{CapabilitySet, FsType};
use crate::error::Result;
use crate::id::{GroupSnapshotId, SnapshotId, VolumeId};
use crate::name::ObjectName;
use crate::parameters::{IoLimits, VolumeParameters};
use crate::record::{Consistency, ContentSource, FormatState, FsUuid, VolumeRecord};

/// A volume to be made.
#[derive(Debug, Clone)]
pub struct NewVolume {
    pub id: VolumeId,
    pub name: ObjectName,
    pub capacity_bytes: u64,
    pub capabilities: CapabilitySet,
    pub parameters: VolumeParameters,
    pub limits: IoLimits,
    /// On the same pool; its data comes first, zeroes follow up to the capacity.
    pub source: Option<ContentSource>,
    pub format: FormatState,
    /// What a blank volume will hold as soon as it is used. A pool that has it ready puts it in at
    /// once, and records that.
    pub filesystem: Option<NewFilesystem>,
    pub ephemeral: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewFilesystem {
    pub fs: FsType,
    pub uuid: FsUuid,
}

/// A snapshot to be made of a volume of the same pool.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    pub id: SnapshotId,
    pub name: ObjectName,
    pub source: VolumeRecord,
    pub format: FormatState,
    pub consistency: Consistency,
}

/// Snapshots of several volumes of one pool, to be taken together.
#[derive(Debug, Clone)]
pub struct NewGroupSnapshot {
    pub id: GroupSnapshotId,
    pub name: ObjectName,
    /// At least one.
    pub members: Vec<NewSnapshot>,
}

/// Something half-made. [`Draft::capture`] takes the point-in-time copy that it holds, so that a
/// caller can hold the source's writers still for just that long; it becomes visible in
/// [`Draft::commit`], whole and durable. Dropped before that, it leaves nothing behind.
pub trait Draft<Record>: Send {
    fn capture(&mut self) -> Result<()>;
    fn commit(self: Box<Self>) -> Result<Record>;
}
