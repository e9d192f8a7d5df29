//! The one answer to a device that cannot be let go of.

use orlop_model::{Error, VolumeId};
use orlop_sys::loopdev::{self, LoopDevice};

pub(crate) fn still_in_use(device: &LoopDevice, id: &VolumeId) -> Error {
    used_by(device, id, loopdev::user_of(device))
}

pub(crate) fn used_by(device: &LoopDevice, id: &VolumeId, user: Option<String>) -> Error {
    let user = user.unwrap_or_else(|| unseen(device));
    let device = device.path();
    Error::precondition(format!(
        "{} of volume {id} is still in use: {user}; unmount or close it first",
        device.display()
    ))
}

/// The daemon has given up the right to look at what more privileged processes have open.
fn unseen(device: &LoopDevice) -> String {
    format!(
        "a process that cannot be seen from here has it or files in it open ('fuser -vm {}' as root \
         on the host may name it)",
        device.path().display()
    )
}
