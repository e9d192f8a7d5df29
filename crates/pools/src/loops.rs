//! Loop devices of volumes, with the volume's id as their label.
//!
//! What is remembered here is all there is while the pool is open; each use asks the kernel whether
//! it still holds, and no call has to search all devices.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use orlop_model::{Device, DeviceAccess, Error, Result, VolumeId};
use orlop_sys::loopdev::{self, LoopDevice, LoopStatus};

use crate::poison::lock;

const READ_ONLY_SUFFIX: &str = "/ro";

pub(crate) const BOTH: [DeviceAccess; 2] = [DeviceAccess::ReadOnly, DeviceAccess::ReadWrite];

#[derive(Debug, Default)]
pub(crate) struct Loops {
    volumes: Mutex<HashMap<VolumeId, Arc<Mutex<Slots>>>>,
}

/// The devices of one volume.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    read_write: Option<LoopDevice>,
    read_only: Option<LoopDevice>,
}

impl Slots {
    pub(crate) fn of(&mut self, access: DeviceAccess) -> &mut Option<LoopDevice> {
        match access {
            DeviceAccess::ReadWrite => &mut self.read_write,
            DeviceAccess::ReadOnly => &mut self.read_only,
        }
    }
}

pub(crate) fn label_of(id: &VolumeId, access: DeviceAccess) -> String {
    match access {
        DeviceAccess::ReadWrite => id.to_string(),
        DeviceAccess::ReadOnly => format!("{id}{READ_ONLY_SUFFIX}"),
    }
}

pub(crate) fn parse_label(label: &str) -> Option<(VolumeId, DeviceAccess)> {
    let (id, access) = match label.strip_suffix(READ_ONLY_SUFFIX) {
        Some(id) => (id, DeviceAccess::ReadOnly),
        None => (label, DeviceAccess::ReadWrite),
    };
    Some((id.parse().ok()?, access))
}

pub(crate) fn all_attached() -> Result<Vec<LoopStatus>> {
    loopdev::attached().map_err(|error| Error::failed("list the loop devices", error))
}

impl Loops {
    pub(crate) fn slots(&self, id: &VolumeId) -> Arc<Mutex<Slots>> {
        Arc::clone(lock(&self.volumes).entry(id.clone()).or_default())
    }

    pub(crate) fn known(&self, id: &VolumeId) -> Option<Arc<Mutex<Slots>>> {
        lock(&self.volumes).get(id).map(Arc::clone)
    }

    pub(crate) fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        let Some(slots) = self.known(id) else {
            return Ok(None);
        };
        let mut slots = lock(&slots);
        verified(id, access, slots.of(access))?.map(|status| described(&status.device)).transpose()
    }

    pub(crate) fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        let Some(slots) = self.known(id) else {
            return Ok(());
        };
        detach(id, access, lock(&slots).of(access))
    }

    pub(crate) fn ensure_none(&self, id: &VolumeId) -> Result<()> {
        for access in BOTH {
            self.ensure_detached(id, access)?;
        }
        lock(&self.volumes).remove(id);
        Ok(())
    }
}

pub(crate) fn detach(
    id: &VolumeId,
    access: DeviceAccess,
    slot: &mut Option<LoopDevice>,
) -> Result<()> {
    let Some(device) = slot.as_ref() else {
        return Ok(());
    };
    match loopdev::ensure_detached(device, &label_of(id, access)) {
        Ok(()) => *slot = None,
        Err(error) if error.is_busy() => {
            return Err(Error::precondition(format!(
                "{} of volume {id} is still in use; unmount or close it first",
                device.path().display()
            )));
        }
        Err(error) => return Err(Error::failed(format!("detach volume {id}"), error)),
    }
    Ok(())
}

/// What the kernel says about the device in a slot, if it is still this volume's.
pub(crate) fn verified(
    id: &VolumeId,
    access: DeviceAccess,
    slot: &mut Option<LoopDevice>,
) -> Result<Option<LoopStatus>> {
    let Some(device) = slot.as_ref() else {
        return Ok(None);
    };
    let status = loopdev::status(device)
        .map_err(|error| Error::failed(format!("look at the device of volume {id}"), error))?;
    let status = status.filter(|status| status.label == label_of(id, access));
    if status.is_none() {
        *slot = None;
    }
    Ok(status)
}

/// A device that goes away at its last close cannot be handed out any more.
pub(crate) fn check_staying(id: &VolumeId, status: &LoopStatus) -> Result<()> {
    if !status.detaching {
        return Ok(());
    }
    Err(Error::precondition(format!(
        "{} of volume {id} is going away as soon as its last user closes it; try again",
        status.device.path().display()
    )))
}

pub(crate) fn described(device: &LoopDevice) -> Result<Device> {
    let path = device.path();
    let (major, minor) = device
        .device_number()
        .map_err(|error| Error::failed(format!("look at {}", path.display()), error))?;
    Ok(Device { path, major, minor })
}
