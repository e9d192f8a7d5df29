//! Making, growing and removing what a pool holds, and the space for it.

use super::draft::{Draft, NewGroupSnapshot, NewSnapshot, NewVolume};
use crate::error::Result;
use crate::id::{GroupSnapshotId, SnapshotId, VolumeId};
use crate::parameters::Provisioning;
use crate::record::{GroupSnapshotRecord, SnapshotRecord, VolumeRecord};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCapacity {
    /// What can still be promised, in bytes.
    pub available_bytes: u64,
    /// The largest volume that can be made now.
    pub largest_volume: u64,
}

/// Every `ensure_*` may be repeated, also after a crash at any instruction in it.
pub trait Provisioner: Send + Sync {
    /// What can still be made with this way of taking space.
    fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity>;

    /// What the volume's data takes of the pool now.
    fn used_bytes(&self, id: &VolumeId) -> Result<u64>;

    /// Refuses with `Exhausted` what does not fit.
    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>>;

    fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>>;

    /// All members or none, also after a crash: a member is not visible before its group is.
    fn begin_group_snapshot(
        &self,
        new: &NewGroupSnapshot,
    ) -> Result<Box<dyn Draft<GroupSnapshotRecord>>>;

    /// Is a copy one instant of its source even while something writes to it?
    fn has_atomic_copies(&self) -> bool;

    /// Are all members of a group snapshot of one instant even while something writes to them?
    fn has_atomic_groups(&self) -> bool;

    /// Grows the data and then the record; never shrinks either.
    fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord>;

    /// Gives back blocks of zeroes of a volume that is not in use. A thick volume keeps its space.
    fn ensure_reclaimed(&self, id: &VolumeId) -> Result<()>;

    fn ensure_no_volume(&self, id: &VolumeId) -> Result<()>;

    fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()>;

    /// The group and all its members. [`Provisioner::ensure_no_snapshot`] is for others.
    fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()>;
}
