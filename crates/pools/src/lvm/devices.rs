//! Volumes as block devices.
//!
//! What a workload gets is not the logical volume, but a linear device on top of it with the volume's id in its name, so
//! that its filesystem can be frozen while LVM suspends what is below, and so that several can be suspended while snapshots
//! of all are taken (docs/decisions/0064). A second one, read-only, can stand beside it.
//!
//! A daemon that is killed in between leaves suspended devices, to which writers wait: they are resumed when the pool is
//! opened, before anything else.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlop_model::{Device, DeviceAccess, Error, PoolId, Reason, Result, VolumeId};
use rustix::fs::{major, minor};

use super::catalogue::LvmCatalogue;
use super::commands::Lvm;
use super::device_mapper::{self, Table};

#[derive(Debug)]
pub(super) struct LinearDevices {
    lvm: Arc<Lvm>,
    catalogue: Arc<LvmCatalogue>,
}

const BOTH: [DeviceAccess; 2] = [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly];

/// The rest is a volume of the pool, and how it is accessed.
fn prefix(pool: &PoolId) -> String {
    format!("orlop-v-{pool}-")
}

fn name_of(id: &VolumeId, access: DeviceAccess) -> String {
    match access {
        DeviceAccess::ReadWrite => format!("orlop-{id}"),
        DeviceAccess::ReadOnly => format!("orlop-{id}-ro"),
    }
}

fn path_of(name: &str) -> PathBuf {
    Path::new("/dev/mapper").join(name)
}

impl LinearDevices {
    pub(super) fn new(lvm: &Arc<Lvm>, catalogue: &Arc<LvmCatalogue>) -> Arc<Self> {
        Arc::new(Self { lvm: Arc::clone(lvm), catalogue: Arc::clone(catalogue) })
    }

    pub(super) fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device> {
        if let Some(device) = self.attached(id, access)? {
            return Ok(device);
        }
        let record = self.catalogue.volume_objects().require(id)?;
        let lv = self.ensure_active(id)?;
        let table = Table { of: &lv, bytes: record.capacity_bytes };
        device_mapper::create(&name_of(id, access), &table, access == DeviceAccess::ReadOnly)?;
        self.attached(id, access)?.ok_or_else(|| {
            let name = name_of(id, access);
            Error::failed(
                format!("attach volume {id}"),
                format!("the device {name} was made and is not there"),
            )
        })
    }

    /// The path of its logical volume.
    fn ensure_active(&self, id: &VolumeId) -> Result<String> {
        let path = self.lvm.group().device_path(&id.to_string());
        if !path.exists() {
            let lv = self.lvm.group().lv(id);
            let arguments = ["--activate", "y", "--ignoreactivationskip", &lv];
            self.lvm.change(|| format!("attach volume {id}"), "lvchange", &arguments)?;
        }
        Ok(path.display().to_string())
    }

    pub(super) fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        let path = path_of(&name_of(id, access));
        match fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(Error::failed(format!("inspect {}", path.display()), Reason::of(error)))
            }
            Ok(node) if node.file_type().is_block_device() => {
                let (major, minor) = (major(node.rdev()), minor(node.rdev()));
                Ok(Some(Device { path, major, minor }))
            }
            Ok(_) => {
                Err(Error::failed(format!("inspect {}", path.display()), "it is no block device"))
            }
        }
    }

    /// `Precondition` if it is in use.
    pub(super) fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        if self.attached(id, access)?.is_some() {
            device_mapper::remove(&name_of(id, access))?;
        }
        for other in BOTH {
            if self.attached(id, other)?.is_some() {
                return Ok(());
            }
        }
        if self.lvm.group().device_path(&id.to_string()).exists() {
            let arguments = ["--activate", "n", &self.lvm.group().lv(id)];
            self.lvm.change(|| format!("detach volume {id}"), "lvchange", &arguments)?;
        }
        Ok(())
    }

    pub(super) fn ensure_no_device(&self, id: &VolumeId) -> Result<()> {
        BOTH.into_iter().try_for_each(|access| self.ensure_detached(id, access))
    }

    /// Lets attached devices see that the volume has grown; returns its size.
    pub(super) fn refresh_device(&self, id: &VolumeId) -> Result<u64> {
        let bytes = self.catalogue.volume_objects().require(id)?.capacity_bytes;
        let lv = self.lvm.group().device_path(&id.to_string()).display().to_string();
        for access in BOTH {
            if self.attached(id, access)?.is_some() {
                let table = Table { of: &lv, bytes };
                device_mapper::replace(
                    &name_of(id, access),
                    &table,
                    access == DeviceAccess::ReadOnly,
                )?;
            }
        }
        Ok(bytes)
    }

    /// `None`: it is not attached, so nothing writes to it.
    pub(super) fn suspend(&self, id: &VolumeId) -> Result<Option<SuspendedDevice>> {
        if self.attached(id, DeviceAccess::ReadWrite)?.is_none() {
            return Ok(None);
        }
        // Before it is suspended: it is resumed even if it is not known whether it is.
        let suspended = SuspendedDevice { name: name_of(id, DeviceAccess::ReadWrite) };
        device_mapper::suspend(&suspended.name)?;
        Ok(Some(suspended))
    }
}

/// Resumed when dropped.
#[derive(Debug)]
pub(super) struct SuspendedDevice {
    name: String,
}

impl Drop for SuspendedDevice {
    fn drop(&mut self) {
        if let Err(error) = device_mapper::resume(&self.name) {
            tracing::error!(
                device = self.name,
                %error,
                "cannot resume a device that was suspended for a snapshot: writes to it wait; `dmsetup resume` ends that"
            );
        }
    }
}

/// What a daemon suspended that was killed.
pub(super) fn resume_suspended(pool: &PoolId) -> Result<()> {
    for device in device_mapper::suspended(&prefix(pool))? {
        match device_mapper::resume(&device) {
            Ok(()) => {
                tracing::warn!(device, "resumed a volume that an earlier daemon had suspended")
            }
            Err(error) => tracing::error!(
                device,
                %error,
                "cannot resume a volume that an earlier daemon had suspended: writes to it wait"
            ),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
