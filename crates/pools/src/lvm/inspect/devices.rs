//! Devices of device-mapper that carry names of this pool.

use orlop_model::{
    BehindDevice, Device, DeviceAccess, Error, Finding, LabelledDevice, Reason, Result,
};
use orlop_sys::device_mapper::MappedDevice;

use super::super::device_mapper;
use super::super::devices::{prefix, uuid_prefix};
use super::InspectedPool;

impl InspectedPool<'_> {
    pub(super) fn inspect_devices(&mut self) -> Result<()> {
        let group = uuid_prefix(&self.report.group);
        for mapped in device_mapper::named(&prefix(&self.id))? {
            let Some((volume, access)) = DeviceAccess::of_mapped_name(&mapped.name) else {
                continue;
            };
            let below = below(&mapped)?;
            let is_of_group = below.iter().any(|lv| lv.uuid.starts_with(&group));
            let behind = match self.catalogue.volume_objects().get(&volume) {
                _ if below.is_empty() => BehindDevice::Nothing,
                _ if !is_of_group => BehindDevice::Elsewhere,
                Ok(None) => BehindDevice::LostData,
                Ok(Some(_)) | Err(_) => BehindDevice::Volume,
            };
            let (label, path) = (access.label(&volume), mapped.path());
            let device = Device { path, major: mapped.major, minor: mapped.minor };
            self.devices.push(LabelledDevice { volume, label, device, behind });
        }
        if !self.in_use {
            self.inspect_suspended()?;
        }
        Ok(())
    }

    /// A daemon that was killed while it took snapshots of several volumes.
    fn inspect_suspended(&mut self) -> Result<()> {
        for name in device_mapper::suspended(&prefix(&self.id))? {
            let path = device_mapper::path_of(&name).display().to_string();
            self.found(Finding::repairable(
                "suspended",
                path,
                "it was suspended for a snapshot, and all that is written to it waits",
                "resume it, as the next start would",
                move || device_mapper::resume(&name),
            ));
        }
        Ok(())
    }
}

fn below(mapped: &MappedDevice) -> Result<Vec<MappedDevice>> {
    mapped.below().map_err(|error| {
        Error::failed(format!("inspect the device {}", mapped.name), Reason::of(error))
    })
}
