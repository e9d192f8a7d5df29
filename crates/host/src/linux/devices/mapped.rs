//! Devices of device-mapper that show volumes (docs/decisions/0064), found without their pool: by their names.

use orlop_model::{
    Device, DeviceAccess, Error, LabelledDevice, Reason, Result, UnservedDevice, VolumeId,
};
use orlop_sys::device_mapper::{self, MappedDevice};

use super::super::failure::cannot;

const BOTH: [DeviceAccess; 2] = [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly];

pub(in crate::linux) fn of_volume(id: &VolumeId) -> Result<Vec<UnservedDevice>> {
    let mut found = Vec::new();
    for access in BOTH {
        let device = find(id, access)?;
        // What it shows is a logical volume, which LVM does not remove while this device has it open.
        found.extend(device.map(|device| UnservedDevice {
            device: described(&device),
            access,
            is_only_copy: false,
        }));
    }
    Ok(found)
}

/// `None`: it is a device of another kind.
pub(in crate::linux) fn of_labelled(labelled: &LabelledDevice) -> Option<UnservedDevice> {
    let name = labelled.device.path.file_name()?.to_str()?;
    let (volume, access) = DeviceAccess::of_mapped_name(name)?;
    let device = labelled.device.clone();
    (volume == labelled.volume).then_some(UnservedDevice { device, access, is_only_copy: false })
}

/// Does a device of a volume have this number?
pub(in crate::linux) fn is_of_any_volume(major: u32, minor: u32) -> Result<bool> {
    let all = device_mapper::named("").map_err(cannot(LISTING))?;
    let is_it = |device: &MappedDevice| {
        (device.major, device.minor) == (major, minor)
            && DeviceAccess::of_mapped_name(&device.name).is_some()
    };
    Ok(all.iter().any(is_it))
}

/// With its logical volume, which would refer to a disk that is gone, and be in the way when that comes back.
pub(in crate::linux) fn try_detach(id: &VolumeId, unserved: &UnservedDevice) -> Result<()> {
    let number = (unserved.device.major, unserved.device.minor);
    let is_it = |device: &MappedDevice| (device.major, device.minor) == number;
    let Some(device) = find(id, unserved.access)?.filter(is_it) else { return Ok(()) };
    let below = device.below().map_err(cannot(LISTING))?;
    remove(&device)?;
    for logical_volume in below.into_iter().filter(|it| is_logical_volume(it, id)) {
        if logical_volume.above().map_err(cannot(LISTING))?.is_empty() {
            remove(&logical_volume)?;
        }
    }
    Ok(())
}

const LISTING: &str = "list the devices of device-mapper";

fn find(id: &VolumeId, access: DeviceAccess) -> Result<Option<MappedDevice>> {
    let name = access.mapped_name(id);
    let found = device_mapper::named(&name).map_err(cannot(LISTING))?;
    Ok(found.into_iter().find(|device| device.name == name))
}

fn described(device: &MappedDevice) -> Device {
    Device { path: device.path(), major: device.major, minor: device.minor }
}

/// Of any volume group: device-mapper doubles each '-' within the two parts of the name.
fn is_logical_volume(device: &MappedDevice, id: &VolumeId) -> bool {
    let own = format!("-{}", id.to_string().replace('-', "--"));
    device.uuid.starts_with("LVM-") && device.name.ends_with(&own)
}

fn remove(device: &MappedDevice) -> Result<()> {
    device_mapper::try_remove(device).map_err(|error| {
        if error.is_refusal() {
            let text = format!(
                "cannot detach {}: {}; end that first",
                device.path().display(),
                error.cause()
            );
            return Error::precondition(Reason::explained(text, error));
        }
        cannot("detach a device of device-mapper")(error)
    })
}

#[cfg(test)]
mod tests;
