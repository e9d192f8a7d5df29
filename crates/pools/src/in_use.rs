//! The one answer to a device that cannot be let go of.

use orlop_model::{Error, VolumeId};
use orlop_sys::loopdev::{self, LoopDevice};

pub(crate) fn still_in_use(device: &LoopDevice, id: &VolumeId) -> Error {
    used_by(device, id, loopdev::user_of(device))
}

pub(crate) fn used_by(device: &LoopDevice, id: &VolumeId, user: Option<String>) -> Error {
    let user = user.map(|user| format!(": {user}")).unwrap_or_default();
    let device = device.path();
    Error::precondition(format!(
        "{} of volume {id} is still in use{user}; unmount or close it first",
        device.display()
    ))
}
