//! The records of a pool.

use crate::error::Result;
use crate::id::{GroupSnapshotId, SnapshotId, VolumeGroupId, VolumeId};
use crate::record::{GroupSnapshotRecord, SnapshotRecord, VolumeGroupRecord, VolumeRecord};

/// What exists in a pool. Data is made and removed by its [`Provisioner`](super::Provisioner); a
/// volume group is a record alone.
pub trait Catalogue: Send + Sync {
    /// `Ok(None)`: no such volume. A damaged record is an error, not an absence.
    fn volume(&self, id: &VolumeId) -> Result<Option<VolumeRecord>>;

    /// In the order of ids, after `after`, at most `limit` (0: all). A volume whose record
    /// cannot be read is in the list too, with the reason.
    fn volumes(
        &self,
        after: Option<&VolumeId>,
        limit: usize,
    ) -> Result<Vec<(VolumeId, Result<VolumeRecord>)>>;

    /// Durable once it returns. What `change` refuses is not written; where another process was
    /// faster it is called again, with what that one wrote.
    fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord>;

    fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>>;

    /// As [`Catalogue::volumes`]; damaged snapshots are left out: nothing can be made from them.
    fn snapshots(&self, after: Option<&SnapshotId>, limit: usize) -> Result<Vec<SnapshotRecord>>;

    fn group_snapshot(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshotRecord>>;

    fn volume_group(&self, id: &VolumeGroupId) -> Result<Option<VolumeGroupRecord>>;

    /// As [`Catalogue::snapshots`].
    fn volume_groups(
        &self,
        after: Option<&VolumeGroupId>,
        limit: usize,
    ) -> Result<Vec<VolumeGroupRecord>>;

    /// Makes the group, or replaces the record that it `was`; durable once it returns. `Busy` if it
    /// is another one by now.
    fn save_volume_group(
        &self,
        record: &VolumeGroupRecord,
        was: Option<&VolumeGroupRecord>,
    ) -> Result<()>;

    /// The group alone; its volumes are not touched.
    fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()>;
}
