//! The loop devices on this node's exports.
//!
//! A device is known by the file that it is on. Its status is not asked for: that asks the export,
//! which may wait for the cluster, or be dead.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use orlop_model::{Device, DeviceAccess, Error, Reason, Result, VolumeId};
use orlop_sys::loopdev::{self, BackedDevice, LoopDevice};
use orlop_sys::rbd_export::Export;

use super::super::session::cannot;
use crate::in_use::{still_in_use, used_by};
use crate::poison::lock;

pub(super) const BOTH: [DeviceAccess; 2] = [DeviceAccess::ReadOnly, DeviceAccess::ReadWrite];
const READ_ONLY_SUFFIX: &str = ".ro";

#[derive(Debug)]
pub(super) struct ExportDevices {
    /// One directory for each export.
    exports: PathBuf,
    known: Mutex<HashMap<(VolumeId, DeviceAccess), LoopDevice>>,
}

impl ExportDevices {
    /// Finds what an earlier process attached. Other daemons on this machine may have attached the
    /// same volumes, on other exports.
    pub(super) fn recover(exports: PathBuf) -> Result<Self> {
        let listing = || "list the loop devices".to_owned();
        let mut known = HashMap::new();
        for there in loopdev::all_backed().map_err(cannot(listing))? {
            let directory = there.file.parent().filter(|it| it.parent() == Some(&exports));
            if let Some((id, _)) = directory.and_then(named) {
                let access = match there.read_only {
                    true => DeviceAccess::ReadOnly,
                    false => DeviceAccess::ReadWrite,
                };
                known.insert((id, access), there.device);
            }
        }
        Ok(Self { exports, known: Mutex::new(known) })
    }

    pub(super) fn export(&self, id: &VolumeId, access: DeviceAccess) -> Export {
        let name = match access {
            DeviceAccess::ReadWrite => id.to_string(),
            DeviceAccess::ReadOnly => format!("{id}{READ_ONLY_SUFFIX}"),
        };
        Export::at(self.exports.join(name))
    }

    pub(super) fn holds(&self, directory: &Path) -> bool {
        directory.parent() == Some(&self.exports)
    }

    /// Volumes of which something is left here, with or without a device.
    pub(super) fn exported(&self) -> Result<Vec<VolumeId>> {
        let listing = |error| Error::failed("list the exports", Reason::of(error));
        let entries = match std::fs::read_dir(&self.exports) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(listing(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            found.extend(named(&entry.map_err(listing)?.path()).map(|(id, _)| id));
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    pub(super) fn remember(&self, id: &VolumeId, access: DeviceAccess, device: LoopDevice) {
        lock(&self.known).insert((id.clone(), access), device);
    }

    /// What is known of the device, if it still is on an export of this volume, and which.
    pub(super) fn find(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
    ) -> Result<Option<(BackedDevice, DeviceAccess)>> {
        let key = (id.clone(), access);
        let Some(device) = lock(&self.known).get(&key).cloned() else {
            return Ok(None);
        };
        let there = loopdev::backing(&device)
            .map_err(cannot(|| format!("inspect the device of volume {id}")))?
            .and_then(|there| {
                let on = BOTH.into_iter().find(|on| self.export(id, *on).file() == there.file)?;
                Some((there, on))
            });
        if there.is_none() {
            lock(&self.known).remove(&key);
        }
        Ok(there)
    }

    pub(super) fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        let found = self.find(id, access)?;
        found.map(|(there, _)| described(&there.device)).transpose()
    }

    pub(super) fn is_any_attached(&self, id: &VolumeId) -> Result<bool> {
        Ok(self.find(id, DeviceAccess::ReadWrite)?.is_some()
            || self.find(id, DeviceAccess::ReadOnly)?.is_some())
    }

    pub(super) fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        let Some((there, _)) = self.find(id, access)? else {
            return Ok(());
        };
        match loopdev::ensure_detached_from(&there.device, &there.file) {
            Ok(()) => {
                lock(&self.known).remove(&(id.clone(), access));
                Ok(())
            }
            Err(error) if error.is_busy() => Err(still_in_use(&there.device, id)),
            Err(error) => Err(cannot(|| format!("detach volume {id}"))(error)),
        }
    }

    /// As [`Self::ensure_detached`], of a device that may be in use; then it stays as it was.
    pub(super) fn try_detach_unused(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        let Some((there, _)) = self.find(id, access)? else {
            return Ok(());
        };
        let attempted = loopdev::try_detach_unused_from(&there.device, &there.file);
        match attempted.map_err(cannot(|| format!("detach volume {id}")))? {
            None => {
                lock(&self.known).remove(&(id.clone(), access));
                Ok(())
            }
            user @ Some(_) => Err(used_by(&there.device.path(), id, user)),
        }
    }
}

/// The volume that a directory of an export is named after.
fn named(directory: &Path) -> Option<(VolumeId, DeviceAccess)> {
    let name = directory.file_name()?.to_str()?;
    match name.strip_suffix(READ_ONLY_SUFFIX) {
        Some(id) => Some((id.parse().ok()?, DeviceAccess::ReadOnly)),
        None => Some((name.parse().ok()?, DeviceAccess::ReadWrite)),
    }
}

pub(super) fn described(device: &LoopDevice) -> Result<Device> {
    let path = device.path();
    let (major, minor) =
        device.device_number().map_err(cannot(|| format!("inspect {}", path.display())))?;
    Ok(Device { path, major, minor })
}
