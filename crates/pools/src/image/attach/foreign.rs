//! Uses of a volume's or a snapshot's data that Orlop did not begin, before calls that they would harm or
//! that would harm them (decision 0046).

use std::fs;
use std::path::Path;

use orlop_model::{DeviceAccess, Devices, Result, SnapshotId, VolumeId};
use orlop_sys::loopdev::LoopDevice;

use super::{LoopDevices, ObjectDir, Slots};
use crate::image::sharing::{Harm, SharingCheck};

impl LoopDevices {
    /// Before a volume gets another device, for readers or for writers.
    pub(super) fn check_attachable(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        slots: &Slots,
    ) -> Result<()> {
        let harm = match access {
            DeviceAccess::ReadWrite => Harm::Any,
            DeviceAccess::ReadOnly => Harm::Writing,
        };
        self.check_volume("attach", id, harm, &slots.devices())
    }

    /// Before a volume that has no device of the pool any more is moved to the trash.
    pub(in crate::image) fn check_deletable(&self, id: &VolumeId) -> Result<()> {
        // What is missing, or was replaced by something else, has no device.
        if !fs::symlink_metadata(self.data_of(id)).is_ok_and(|data| data.is_file()) {
            return Ok(());
        }
        self.check_volume("delete", id, Harm::Any, &[])
    }

    /// Before a volume is copied, or changed in its file: writers that Orlop does not know of cannot be
    /// frozen. Those of a volume that the pool has attached are the engine's to freeze.
    pub(in crate::image) fn check_still(&self, doing: &str, id: &VolumeId) -> Result<()> {
        self.check_shows_data(id)?;
        if self.attached(id, DeviceAccess::ReadWrite)?.is_some() {
            return Ok(());
        }
        self.check_volume(doing, id, Harm::Writing, &[])
    }

    /// Before a volume is restored from a snapshot, which the pool attaches to no device.
    pub(in crate::image) fn check_snapshot_still(&self, id: &SnapshotId) -> Result<()> {
        let check = SharingCheck {
            doing: "copy",
            object: &format!("snapshot {id}"),
            data: &self.catalogue.snapshot_index().directory_of(id).data(),
            harm: Harm::Writing,
            own: &[],
            tells_openers: self.directory.tells_openers(),
        };
        check.run(|file| is_named_as(&id.to_string(), file))
    }

    fn check_volume(
        &self,
        doing: &str,
        id: &VolumeId,
        harm: Harm,
        own: &[&LoopDevice],
    ) -> Result<()> {
        let check = SharingCheck {
            doing,
            object: &format!("volume {id}"),
            data: &self.data_of(id),
            harm,
            own,
            tells_openers: self.directory.tells_openers(),
        };
        check.run(|file| is_named_as(&id.to_string(), file))
    }
}

/// As `ID/data`, wherever the pool is mounted, or as `data` in a directory that is not named as one
/// of a volume or snapshot: that of the data may be mounted by itself.
fn is_named_as(id: &str, file: &Path) -> bool {
    let directory = file.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let named = directory
        .and_then(|name| name.split('.').next())
        .filter(|name| name.parse::<VolumeId>().is_ok() || name.parse::<SnapshotId>().is_ok());
    file.file_name().is_some_and(|name| name == ObjectDir::DATA) && named.is_none_or(|it| it == id)
}

#[cfg(test)]
mod tests;
