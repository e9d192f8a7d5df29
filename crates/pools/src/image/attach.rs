//! Volumes as block devices: loop devices with the volume's id as their label.
//!
//! The kernel lets one file be attached twice, and two devices on one image destroy it. So every
//! attachment goes through the lock of its volume, and is refused while something else has the file
//! open in a way that would do harm (`foreign.rs`). The
//! pool's own devices are kept in memory; each use asks the kernel whether an entry is still true, so no call has
//! to search all devices.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use orlop_model::{
    Device, DeviceAccess, DeviceOnOtherFile, Devices, Error, PoolId, Provisioning, Result,
    VolumeId, VolumeRecord,
};
use orlop_sys::device_lock::wait_until_unlocked;
use orlop_sys::file::{self, Openers};
use orlop_sys::loopdev::{self, AttachOptions, LoopDevice, LoopStatus};

use super::PoolDirectory;
use super::catalogue::{ImageCatalogue, check_current};
use super::failure::cannot;
use super::layout::ObjectDir;
use crate::in_use::{check_not_cut, still_in_use, used_by};
use crate::poison::lock;

mod backing_files;
pub(super) mod foreign;
pub(super) mod lost_data;
mod other_files;

pub(super) use lost_data::is_removed;

use backing_files::is_below;
pub(super) use backing_files::{backs, is_deleted, is_outside};

const READ_ONLY_SUFFIX: &str = "/ro";

#[derive(Debug)]
pub(super) struct LoopDevices {
    directory: Arc<PoolDirectory>,
    catalogue: Arc<ImageCatalogue>,
    volumes: Mutex<HashMap<VolumeId, Arc<Mutex<Slots>>>>,
}

/// The devices of one volume.
#[derive(Debug, Default)]
struct Slots {
    read_write: Option<LoopDevice>,
    read_only: Option<LoopDevice>,
}

impl Slots {
    fn devices(&self) -> Vec<&LoopDevice> {
        self.read_write.iter().chain(&self.read_only).collect()
    }

    fn get(&self, access: DeviceAccess) -> Option<&LoopDevice> {
        match access {
            DeviceAccess::ReadWrite => self.read_write.as_ref(),
            DeviceAccess::ReadOnly => self.read_only.as_ref(),
        }
    }

    fn of(&mut self, access: DeviceAccess) -> &mut Option<LoopDevice> {
        match access {
            DeviceAccess::ReadWrite => &mut self.read_write,
            DeviceAccess::ReadOnly => &mut self.read_only,
        }
    }
}

pub(crate) fn label_of(id: &VolumeId, access: DeviceAccess) -> String {
    access.label(id)
}

pub(crate) fn parse_label(label: &str) -> Option<(VolumeId, DeviceAccess)> {
    let (id, access) = match label.strip_suffix(READ_ONLY_SUFFIX) {
        Some(id) => (id, DeviceAccess::ReadOnly),
        None => (label, DeviceAccess::ReadWrite),
    };
    Some((id.parse().ok()?, access))
}

impl LoopDevices {
    /// Finds what an earlier process attached. A device on a file in trash/ is detached unless something uses it,
    /// because no call names it any more. DeleteVolume leaves no other devices, so any other file that is not the
    /// volume's data may be the only copy of that data, or belong to another pool.
    pub(super) fn recover(
        directory: Arc<PoolDirectory>,
        catalogue: Arc<ImageCatalogue>,
    ) -> Result<Self> {
        let found = Self { directory, catalogue, volumes: Mutex::default() };
        let (pool, layout) = (found.directory.id(), found.directory.layout());
        let volumes = found.catalogue.volume_index();
        for status in all_attached(pool, layout.root())? {
            let Some((id, access)) = parse_label(&status.label) else {
                continue;
            };
            if id.pool() != pool {
                continue;
            }
            // Also on another disk, where the volume's directory is a link to one.
            if backs(&volumes.directory_of(&id).data(), &status) {
                *lock(&found.slots(&id)).of(access) = Some(status.device);
            } else if status.backing_device != found.directory.filesystem() {
                continue;
            } else if is_deleted(layout, &status)? {
                detach_of_deleted(&status);
            } else {
                warn_of_other_file(&id, &status);
                // Remembered, so that data which is moved back is not attached a second time.
                let is_known = !matches!(volumes.get(&id), Ok(None));
                if is_known && is_below(layout.root(), &status)? {
                    lock(&found.slots(&id)).of(access).get_or_insert(status.device);
                }
            }
        }
        Ok(found)
    }

    fn slots(&self, id: &VolumeId) -> Arc<Mutex<Slots>> {
        Arc::clone(lock(&self.volumes).entry(id.clone()).or_default())
    }

    fn known(&self, id: &VolumeId) -> Option<Arc<Mutex<Slots>>> {
        lock(&self.volumes).get(id).map(Arc::clone)
    }

    fn forget(&self, id: &VolumeId) {
        lock(&self.volumes).remove(id);
    }
}

/// All loop devices. Devices of other programs are left out if their files do not answer.
pub(super) fn all_attached(pool: &PoolId, root: &Path) -> Result<Vec<LoopStatus>> {
    let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    loopdev::attached(|file| file.starts_with(&root) || is_named_as_of(pool, file))
        .map_err(cannot(|| "list the loop devices".to_owned()))
}

/// As in `volumes/ID/data` and `trash/ID.N/data`, wherever the pool is mounted.
fn is_named_as_of(pool: &PoolId, file: &Path) -> bool {
    let home = || file.parent()?.file_name()?.to_str()?.split('.').next()?.parse().ok();
    file.file_name().is_some_and(|name| name == ObjectDir::DATA)
        && home().is_some_and(|id: VolumeId| id.pool() == pool)
}

fn warn_of_other_file(id: &VolumeId, status: &LoopStatus) {
    let file = loopdev::backing(&status.device).ok().flatten().map(|there| there.file);
    tracing::warn!(
        volume = %id,
        device = %status.device.path().display(),
        file = %file.unwrap_or_default().display(),
        "a loop device stays attached: its file is not the volume's data in this pool; it may be \
         the only copy of data that was moved or removed, or belong to a copy of the pool"
    );
}

fn detach_of_deleted(status: &LoopStatus) {
    let device = status.device.path();
    let device = device.display();
    // Without waiting, which would delay the start for each such device.
    match loopdev::try_detach_unused(&status.device, &status.label, Path::new("")) {
        Ok(None) => tracing::info!(%device, "detached the loop device of a deleted volume"),
        Ok(Some(user)) => {
            tracing::warn!(
                %device,
                user,
                "the loop device of a deleted volume stays attached: it is in use; end what uses it"
            );
        }
        Err(error) => {
            tracing::warn!(%device, %error, "cannot detach the loop device of a deleted volume");
        }
    }
}

fn try_detach_unused(
    id: &VolumeId,
    access: DeviceAccess,
    slot: &mut Option<LoopDevice>,
    data: &Path,
) -> Result<()> {
    let Some(device) = slot.as_ref() else {
        return Ok(());
    };
    let attempted = loopdev::try_detach_unused(device, &label_of(id, access), data);
    match attempted.map_err(cannot(|| format!("detach volume {id}")))? {
        None => *slot = None,
        user @ Some(_) => return Err(used_by(&device.path(), id, user)),
    }
    Ok(())
}

fn detach(
    id: &VolumeId,
    access: DeviceAccess,
    slot: &mut Option<LoopDevice>,
    data: &Path,
) -> Result<()> {
    let Some(device) = slot.as_ref() else {
        return Ok(());
    };
    match loopdev::ensure_detached_even_dead(device, &label_of(id, access), data) {
        Ok(()) => *slot = None,
        Err(error) if error.is_busy() => return Err(still_in_use(device, id)),
        Err(error) => return Err(cannot(|| format!("detach volume {id}"))(error)),
    }
    Ok(())
}

/// What the kernel says about the device in a slot, if it is still this volume's.
fn verified(
    id: &VolumeId,
    access: DeviceAccess,
    slot: &mut Option<LoopDevice>,
) -> Result<Option<LoopStatus>> {
    let Some(device) = slot.as_ref() else {
        return Ok(None);
    };
    let status =
        loopdev::status(device).map_err(cannot(|| format!("inspect the device of volume {id}")))?;
    let status = status.filter(|status| status.label == label_of(id, access));
    if status.is_none() {
        *slot = None;
    }
    Ok(status)
}

pub(super) fn described(device: &LoopDevice) -> Result<Device> {
    let (major, minor) = device
        .device_number()
        .map_err(cannot(|| format!("inspect {}", device.path().display())))?;
    Ok(Device { path: device.path(), major, minor })
}

impl LoopDevices {
    /// The device in the slot, if it is fit for use.
    fn usable(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        slots: &mut Slots,
    ) -> Result<Option<LoopDevice>> {
        let Some(status) = verified(id, access, slots.of(access))? else {
            return Ok(None);
        };
        if !backs(&self.data_of(id), &status) {
            // The data was replaced, and the device is still attached to the old file.
            self.check_not_only_copy(id, access, slots)?;
            try_detach_unused(id, access, slots.of(access), &self.data_of(id))?;
            return Ok(None);
        }
        // After a refused detachment the kernel detaches it when its last user closes it, which may be much later.
        let keeping = || format!("lock the device of volume {id}");
        if status.detaching
            && !loopdev::try_keep(&status.device, &label_of(id, access)).map_err(cannot(keeping))?
        {
            *slots.of(access) = None;
            return Ok(None);
        }
        // A mkfs that an earlier daemon started may still be running.
        wait_until_unlocked(&status.device.path())
            .map_err(cannot(|| format!("wait for the device of volume {id}")))?;
        Ok(Some(status.device))
    }

    /// True unless the kernel says that nothing has it open. What has it open may be a device of the pool, or harmless.
    fn may_be_open(&self, id: &VolumeId) -> Result<bool> {
        let inspecting = || format!("inspect the data of volume {id}");
        Ok(!self.directory.reports_openers()
            || file::openers(&self.data_of(id)).map_err(cannot(inspecting))? != Openers::None)
    }

    /// With the size on record: data that a crash left longer was never promised.
    fn attach(&self, record: &VolumeRecord, access: DeviceAccess) -> Result<LoopDevice> {
        let id = &record.id;
        let options = AttachOptions {
            label: &label_of(id, access),
            read_only: access == DeviceAccess::ReadOnly,
            size: record.capacity_bytes,
        };
        loopdev::attach(&self.data_of(id), &options)
            .map_err(cannot(|| format!("attach volume {id}")))
    }

    pub(super) fn ensure_no_device(&self, id: &VolumeId) -> Result<()> {
        for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
            self.ensure_detached(id, access)?;
        }
        self.forget(id);
        Ok(())
    }

    fn data_of(&self, id: &VolumeId) -> PathBuf {
        self.catalogue.volume_index().directory_of(id).data()
    }
}

impl Devices for LoopDevices {
    fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device> {
        self.directory.check_present()?;
        let record = self.catalogue.volume_index().require(id)?;
        check_current(self.catalogue.volume_index(), id, record.capacity_bytes)?;
        let slots = self.slots(id);
        let mut slots = lock(&slots);
        let device = match self.usable(id, access, &mut slots)? {
            Some(device) => device,
            None => {
                if self.may_be_open(id)? {
                    self.check_attachable(id, access, &slots)?;
                }
                slots.of(access).insert(self.attach(&record, access)?).clone()
            }
        };
        // Also when it was attached before: a crash may have come between the two.
        if record.parameters.provisioning == Provisioning::Thick {
            loopdev::disable_discard(&device)
                .map_err(cannot(|| format!("keep the preallocated space of volume {id}")))?;
        }
        described(&device)
    }

    fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        let Some(slots) = self.known(id) else {
            return Ok(None);
        };
        let mut slots = lock(&slots);
        let slot = slots.of(access);
        let Some(device) = slot.as_ref() else {
            return Ok(None);
        };
        let data = self.data_of(id);
        // The device of a volume must be found, and detachable, on a disk that no longer answers.
        let is_ours = loopdev::is_labelled(device, &label_of(id, access), &data)
            .map_err(cannot(|| format!("inspect the device of volume {id}")))?;
        if !is_ours {
            *slot = None;
        }
        slot.as_ref().map(described).transpose()
    }

    fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        let Some(slots) = self.known(id) else {
            return Ok(());
        };
        let mut slots = lock(&slots);
        self.check_not_only_copy(id, access, &slots)?;
        detach(id, access, slots.of(access), &self.data_of(id))
    }

    fn check_detachable(&self, id: &VolumeId) -> Result<()> {
        self.known(id).map_or(Ok(()), |slots| self.check_none_is_only_copy(id, &lock(&slots)))
    }

    fn try_detach_unused(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        let Some(slots) = self.known(id) else {
            return Ok(());
        };
        let mut slots = lock(&slots);
        self.check_not_only_copy(id, access, &slots)?;
        try_detach_unused(id, access, slots.of(access), &self.data_of(id))
    }

    fn refresh_device(&self, id: &VolumeId) -> Result<u64> {
        let refreshing = || format!("grow the device of volume {id}");
        let promised = self.catalogue.volume_index().require(id)?.capacity_bytes;
        let data = self.data_of(id);
        let slots = self.slots(id);
        let mut slots = lock(&slots);
        let mut size = None;
        for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
            if let Some(status) = verified(id, access, slots.of(access))? {
                if self.is_on_other_file(id, &status) {
                    return Err(self.not_shown(id, &status.device));
                }
                let shown = loopdev::size(&status.device.path()).map_err(cannot(refreshing))?;
                check_not_cut(&status.device.path(), id, shown, promised)?;
                loopdev::refresh_size(&status.device, &data, promised)
                    .map_err(cannot(refreshing))?;
                size = Some(loopdev::size(&status.device.path()).map_err(cannot(refreshing))?);
            }
        }
        size.ok_or_else(|| {
            Error::precondition(format!(
                "cannot grow the device of volume {id}: it is not attached; stage it first"
            ))
        })
    }

    fn on_other_files(&self) -> Result<Vec<DeviceOnOtherFile>> {
        self.labelled_on_other_files()
    }

    fn take_over(&self, other: &DeviceOnOtherFile) {
        self.take_over_labelled(other);
    }

    fn attached_volumes(&self) -> Result<Vec<VolumeId>> {
        let ours = |status: LoopStatus| {
            let (id, _) = parse_label(&status.label)?;
            let is_ours = id.pool() == self.directory.id() && backs(&self.data_of(&id), &status);
            is_ours.then_some(id)
        };
        let all = all_attached(self.directory.id(), self.directory.root())?;
        let ids: BTreeSet<VolumeId> = all.into_iter().filter_map(ours).collect();
        Ok(ids.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
