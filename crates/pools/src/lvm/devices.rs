//! Volumes as block devices.
//!
//! What a workload gets is not the logical volume, but a linear device on top of it with the volume's id in its name, so
//! that its filesystem can be frozen while LVM suspends what is below, and so that several can be suspended while snapshots
//! of all are taken (docs/decisions/0064). A second one, read-only, can stand beside it.
//!
//! Nothing is remembered: the names of devices say what is attached, also after a restart of the daemon. The kernel removes
//! no device that is open, so what is in use stays, whatever opened it.

mod nodes;
mod suspended;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Device, DeviceAccess, Devices, Error, PoolId, Result, VolumeId};
use orlop_sys::loopdev::user_of_number;
use orlop_sys::thaw_helper::ThawHelper;

use super::catalogue::LvmCatalogue;
use super::commands::Lvm;
use super::device_mapper::{self, FoundDevice, Table};
use super::pool_lock::commands_lock;
use super::report::Group;
use crate::in_use::{check_not_cut, used_by};
pub(super) use nodes::ensure_nodes;
pub(super) use suspended::{SuspendedDevice, refresh_suspended, resume_suspended};

/// udev and programs that inspect all devices have each of them open for a moment.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const BOTH: [DeviceAccess; 2] = [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly];

pub(super) struct LinearDevices {
    lvm: Arc<Lvm>,
    catalogue: Arc<LvmCatalogue>,
    pool: PoolId,
    /// What device-mapper's UUIDs of logical volumes of this volume group begin with.
    uuid_prefix: String,
    helper: Option<Arc<ThawHelper>>,
    /// How long a device may be suspended.
    suspend_limit: Duration,
}

impl std::fmt::Debug for LinearDevices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinearDevices").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// The rest is a volume of the pool, and how it is accessed.
pub(super) fn prefix(pool: &PoolId) -> String {
    format!("orlop-v-{pool}-")
}

/// Device-mapper's UUID of a logical volume is this, and the UUID of the volume without its '-'.
pub(super) fn uuid_prefix(group: &Group) -> String {
    format!("LVM-{}", group.uuid.replace('-', ""))
}

impl LinearDevices {
    pub(super) fn new(
        lvm: &Arc<Lvm>,
        catalogue: &Arc<LvmCatalogue>,
        pool: &PoolId,
        group: &Group,
        (helper, suspend_limit): (Option<ThawHelper>, Duration),
    ) -> Arc<Self> {
        Arc::new(Self {
            lvm: Arc::clone(lvm),
            catalogue: Arc::clone(catalogue),
            pool: pool.clone(),
            uuid_prefix: uuid_prefix(group),
            helper: helper.map(Arc::new),
            suspend_limit,
        })
    }

    /// The device, if it shows the logical volume.
    fn find(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<FoundDevice>> {
        let name = access.mapped_name(id);
        let Some(found) = device_mapper::find(&name)? else { return Ok(None) };
        match found.shows_only(&self.uuid_prefix, &self.lvm.group().device_name(&id.to_string())) {
            true => Ok(Some(found)),
            false => Err(Error::precondition(format!(
                "cannot use volume {id}: the device {} shows something else than the logical volume {}: that was \
                 renamed or replaced, or a copy of the volume group is in use; rename it back, or unmount what is on \
                 the device and remove it with `dmsetup remove {name}`",
                found.device.path.display(),
                self.lvm.group().lv(id)
            ))),
        }
    }

    fn is_any_attached(&self, id: &VolumeId) -> Result<bool> {
        let attached = BOTH.into_iter().map(|access| self.find(id, access));
        Ok(attached.collect::<Result<Vec<_>>>()?.iter().any(Option::is_some))
    }

    /// The device of the logical volume. What was active before may be used by something that Orlop does not know of.
    fn ensure_active(&self, id: &VolumeId, access: DeviceAccess) -> Result<FoundDevice> {
        let name = self.lvm.group().device_name(&id.to_string());
        let attaching = || format!("attach volume {id}");
        match device_mapper::find(&name)? {
            Some(found) => {
                self.check_unopened(id, access, &name, &found)?;
                Ok(found)
            }
            None => {
                let lv = self.lvm.group().lv(id);
                let arguments = ["--activate", "y", "--ignoreactivationskip", &lv];
                self.lvm.change(attaching, "lvchange", &arguments)?;
                device_mapper::find(&name)?.ok_or_else(|| {
                    let reason =
                        format!("LVM has activated {lv}, and the device {name} is not there");
                    Error::failed(attaching(), reason)
                })
            }
        }
    }

    /// Two caches of one disk know nothing of each other. What only reads does no harm to readers.
    fn check_unopened(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        name: &str,
        found: &FoundDevice,
    ) -> Result<()> {
        if access == DeviceAccess::ReadOnly || self.is_any_attached(id)? {
            return Ok(());
        }
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while device_mapper::open_count(name)? > 0 {
            if Instant::now() >= deadline {
                let user = user_of_number(found.device.major, found.device.minor)
                    .unwrap_or_else(|| "something has it open".to_owned());
                let path = found.device.path.display();
                return Err(Error::precondition(format!(
                    "cannot attach volume {id}: its logical volume {path} is in use by something other than Orlop: \
                     {user}; end that first"
                )));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// What is open stays as it is.
    fn remove(&self, id: &VolumeId, access: DeviceAccess, device: &Device) -> Result<()> {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        loop {
            match device_mapper::remove(&access.mapped_name(id)) {
                Err(Error::Precondition(_)) if Instant::now() < deadline => {
                    thread::sleep(POLL_INTERVAL);
                }
                Err(Error::Precondition(_)) => {
                    let user = user_of_number(device.major, device.minor);
                    return Err(used_by(&device.path, id, user));
                }
                done => return done,
            }
        }
    }

    pub(super) fn deactivate_unattached(&self, id: &VolumeId) -> Result<()> {
        let name = self.lvm.group().device_name(&id.to_string());
        if self.is_any_attached(id)? || device_mapper::find(&name)?.is_none() {
            return Ok(());
        }
        let arguments = ["--activate", "n", &self.lvm.group().lv(id)];
        self.lvm.change(|| format!("detach volume {id}"), "lvchange", &arguments)
    }

    /// The device of its logical volume, for what the pool itself does with that, also while the volume is attached.
    pub(super) fn activate(&self, id: &VolumeId) -> Result<Device> {
        Ok(self.ensure_active(id, DeviceAccess::ReadOnly)?.device)
    }

    /// Before it is deleted. `Precondition` if anything has it open, also its logical volume.
    pub(super) fn ensure_no_device(&self, id: &VolumeId) -> Result<()> {
        for access in BOTH {
            if let Some(found) = self.find(id, access)? {
                self.remove(id, access, &found.device)?;
            }
        }
        self.deactivate_unattached(id)
    }

    pub(super) fn is_active(&self, id: &VolumeId) -> Result<bool> {
        let name = self.lvm.group().device_name(&id.to_string());
        Ok(device_mapper::find(&name)?.is_some())
    }

    /// The path of its logical volume, which is active until the volume is detached. Nothing else has it open.
    pub(super) fn activate_unattached(&self, id: &VolumeId) -> Result<Device> {
        if let Some(found) = self.find(id, DeviceAccess::ReadWrite)? {
            return Err(Error::precondition(format!(
                "cannot reclaim space of volume {id}: it is attached as {}; unstage it first",
                found.device.path.display()
            )));
        }
        Ok(self.ensure_active(id, DeviceAccess::ReadWrite)?.device)
    }

    /// `None`: it is not attached, so nothing writes to it.
    pub(super) fn suspend(&self, id: &VolumeId) -> Result<Option<SuspendedDevice>> {
        match self.find(id, DeviceAccess::ReadWrite)? {
            None => Ok(None),
            Some(found) => {
                let name = DeviceAccess::ReadWrite.mapped_name(id);
                let (path, helper) = (found.device.path, self.helper.as_ref());
                let lock_file = commands_lock(&self.pool);
                let limits = (lock_file.as_path(), self.suspend_limit);
                SuspendedDevice::suspend(name, path, helper, limits).map(Some)
            }
        }
    }
}

impl Devices for LinearDevices {
    fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device> {
        let record = self.catalogue.volume_objects().require(id)?;
        if let Some(device) = self.attached(id, access)? {
            return Ok(device);
        }
        let lv = self.ensure_active(id, access)?;
        let (shown, recorded) = (lv.size()?, record.capacity_bytes);
        if shown < recorded {
            let reason = format!(
                "its logical volume has {shown} bytes, its record says {recorded}: something has made it smaller; \
                 restore it from a backup (extending it would put zeroes where data was)"
            );
            return Err(Error::damaged(format!("volume {id}"), reason));
        }
        let path = lv.device.path.display().to_string();
        let table = Table { of: &path, bytes: recorded };
        let name = access.mapped_name(id);
        device_mapper::create(&name, &table, access == DeviceAccess::ReadOnly)?;
        self.attached(id, access)?.ok_or_else(|| {
            let reason = format!("the device {name} was made and is not there");
            Error::failed(format!("attach volume {id}"), reason)
        })
    }

    fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        Ok(self.find(id, access)?.map(|found| found.device))
    }

    fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        if let Some(found) = self.find(id, access)? {
            self.remove(id, access, &found.device)?;
        }
        match self.deactivate_unattached(id) {
            Err(Error::Precondition(reason)) => {
                tracing::warn!(
                    volume = %id,
                    %reason,
                    "the volume is detached, and something else has its logical volume open"
                );
                Ok(())
            }
            done => done,
        }
    }

    fn try_detach_unused(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        // A node that is bound to another path is a use of the device, and does not open it.
        if let Some(found) = self.find(id, access)?
            && let Some(user) = user_of_number(found.device.major, found.device.minor)
        {
            return Err(used_by(&found.device.path, id, Some(user)));
        }
        self.ensure_detached(id, access)
    }

    fn refresh_device(&self, id: &VolumeId) -> Result<u64> {
        let bytes = self.catalogue.volume_objects().require(id)?.capacity_bytes;
        let lv = self.lvm.group().device_path(&id.to_string()).display().to_string();
        let mut is_attached = false;
        for access in BOTH {
            let Some(found) = self.find(id, access)? else { continue };
            is_attached = true;
            let shown = found.size()?;
            check_not_cut(&found.device.path, id, shown, bytes)?;
            if shown < bytes {
                let name = access.mapped_name(id);
                let table = Table { of: &lv, bytes };
                device_mapper::replace(&name, &table, access == DeviceAccess::ReadOnly)?;
            }
        }
        match is_attached {
            true => Ok(bytes),
            false => Err(Error::precondition(format!(
                "cannot grow the device of volume {id}: it is not attached; stage it first"
            ))),
        }
    }

    fn attached_volumes(&self) -> Result<Vec<VolumeId>> {
        let all = device_mapper::named(&prefix(&self.pool))?;
        let id = |name: &str| DeviceAccess::of_mapped_name(name).map(|(id, _)| id);
        let mut ids: Vec<VolumeId> = all.iter().filter_map(|device| id(&device.name)).collect();
        ids.sort();
        ids.dedup();
        Ok(ids)
    }
}

#[cfg(test)]
mod tests;
