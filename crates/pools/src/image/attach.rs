//! Volumes as block devices: loop devices with the volume's id as their label.
//!
//! The kernel lets one file be attached twice, and two devices on one image destroy it. So every
//! attachment goes through the lock of its volume. While the pool is open nobody else attaches
//! its files, hence what is remembered here is all there is; each use asks the kernel whether it
//! still holds, and no call has to search all devices.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use orlop_model::{
    Device, DeviceAccess, Error, PoolId, Provisioning, Result, VolumeId, VolumeRecord,
};
use orlop_sys::loopdev::{self, AttachOptions, LoopDevice, LoopStatus};

use super::failure::Doing;
use super::original::check_data;
use super::shelf::Shelf;
use super::store::Store;
use crate::loops::{
    Loops, all_attached, check_staying, described, detach, label_of, parse_label, verified,
};
use crate::poison::lock;

fn backs(data: &Path, status: &LoopStatus) -> bool {
    fs::symlink_metadata(data)
        .is_ok_and(|file| (file.dev(), file.ino()) == (status.backing_device, status.backing_inode))
}

/// Finds what an earlier process attached. A device whose file was deleted meanwhile, or was
/// being deleted, is taken down: nothing will ever ask for it again.
pub(super) fn recover(
    pool: &PoolId,
    volumes: &Shelf<VolumeRecord>,
    filesystem: u64,
) -> Result<Loops> {
    let found = Loops::default();
    for status in all_attached()? {
        let Some((id, access)) = parse_label(&status.label) else {
            continue;
        };
        if id.pool() != pool || status.backing_device != filesystem {
            continue;
        }
        if backs(&volumes.home(&id).data(), &status) {
            *lock(&found.slots(&id)).of(access) = Some(status.device);
        } else {
            take_down(&status);
        }
    }
    Ok(found)
}

fn take_down(status: &LoopStatus) {
    let device = status.device.path();
    match loopdev::ensure_detached(&status.device, &status.label) {
        Ok(()) => tracing::info!(device = %device.display(), "detached from a deleted volume"),
        Err(error) => tracing::warn!(%error, "still attached to a deleted volume"),
    }
}

impl Store {
    pub(super) fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device> {
        self.check_present()?;
        let record = self.volumes.require(id)?;
        check_data(&self.volumes, &record)?;
        let slots = self.attachments.slots(id);
        let mut slots = lock(&slots);
        let slot = slots.of(access);
        let device = match self.usable(id, access, slot)? {
            Some(device) => device,
            None => slot.insert(self.attach(&record, access)?).clone(),
        };
        // Also when it was attached before: a crash may have come between the two.
        if record.parameters.provisioning == Provisioning::Thick {
            loopdev::disable_discard(&device)
                .doing(|| format!("keep the preallocated space of volume {id}"))?;
        }
        described(&device)
    }

    /// The device in the slot, if it is fit for use.
    fn usable(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        slot: &mut Option<LoopDevice>,
    ) -> Result<Option<LoopDevice>> {
        let Some(status) = verified(id, access, slot)? else {
            return Ok(None);
        };
        check_staying(id, &status)?;
        if !backs(&self.volumes.home(id).data(), &status) {
            // The data was replaced under the device, which still shows the old one.
            detach(id, access, slot)?;
            return Ok(None);
        }
        Ok(Some(status.device))
    }

    /// Shows what the record says: data that a crash left longer was never promised.
    fn attach(&self, record: &VolumeRecord, access: DeviceAccess) -> Result<LoopDevice> {
        let id = &record.id;
        let options = AttachOptions {
            label: &label_of(id, access),
            read_only: access == DeviceAccess::ReadOnly,
            size: record.capacity_bytes,
        };
        loopdev::attach(&self.volumes.home(id).data(), &options)
            .doing(|| format!("attach volume {id}"))
    }

    pub(super) fn refresh_device(&self, id: &VolumeId) -> Result<u64> {
        let refreshing = || format!("let the device of volume {id} grow");
        let promised = self.volumes.require(id)?.capacity_bytes;
        let data = self.volumes.home(id).data();
        let slots = self.attachments.slots(id);
        let mut slots = lock(&slots);
        let mut size = None;
        for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
            if let Some(status) = verified(id, access, slots.of(access))? {
                loopdev::refresh_size(&status.device, &data, promised).doing(refreshing)?;
                size = Some(loopdev::size(&status.device.path()).doing(refreshing)?);
            }
        }
        size.ok_or_else(|| Error::precondition(format!("volume {id} is not attached")))
    }

    pub(super) fn attached_volumes(&self) -> Result<Vec<VolumeId>> {
        let ours = |status: LoopStatus| {
            let (id, _) = parse_label(&status.label)?;
            let is_ours = id.pool() == self.id() && backs(&self.volumes.home(&id).data(), &status);
            is_ours.then_some(id)
        };
        let ids: BTreeSet<VolumeId> = all_attached()?.into_iter().filter_map(ours).collect();
        Ok(ids.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
