//! Deleting: a volume is marked as deleted, which makes it gone, and then removed.

use orlop_model::{Error, GroupSnapshotId, Result, SnapshotId, VolumeId};

use super::LvmProvisioner;

impl LvmProvisioner {
    pub(super) fn delete_volume(&self, id: &VolumeId) -> Result<()> {
        let volumes = self.catalogue.volume_objects();
        if volumes.get(id)?.is_some() {
            // Before it is marked: what is in use stays as it is.
            self.devices.ensure_no_device(id)?;
        }
        let gone = volumes.ensure_gone(id);
        self.capacity.forget_numbers();
        gone
    }

    pub(super) fn delete_snapshot(&self, id: &SnapshotId) -> Result<()> {
        let snapshots = self.catalogue.snapshot_objects();
        match snapshots.get(id)?.and_then(|record| record.group) {
            Some(group) if self.catalogue.group_snapshot_records().holds(&group) => {
                Err(Error::invalid(
                    "snapshot_id",
                    format!("is a member of group snapshot {group} and is deleted with it"),
                ))
            }
            // A member without its group is an orphan.
            Some(_) | None => {
                let gone = snapshots.ensure_gone(id);
                self.capacity.forget_numbers();
                gone
            }
        }
    }

    /// The record first: a crash after it leaves members that are not visible, and are removed when the pool is opened.
    pub(super) fn delete_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        self.catalogue.group_snapshot_records().remove(id)?;
        let snapshots = self.catalogue.snapshot_objects();
        let of_group = snapshots.records().filter(|record| record.group.as_ref() == Some(id));
        for member in of_group.collect::<Vec<_>>() {
            snapshots.ensure_gone(&member.id)?;
        }
        self.capacity.forget_numbers();
        Ok(())
    }
}
