//! The answers to a device that is in use.

use std::path::Path;

use orlop_model::{Error, Result, VolumeId};
use orlop_sys::loopdev::{self, LoopDevice};

pub(crate) fn still_in_use(device: &LoopDevice, id: &VolumeId) -> Error {
    used_by(&device.path(), id, loopdev::user_of(device))
}

pub(crate) fn used_by(device: &Path, id: &VolumeId, user: Option<String>) -> Error {
    let user = user.unwrap_or_else(|| unseen(device));
    Error::precondition(format!(
        "cannot detach {} of volume {id}: it is still in use: {user}; unmount or close it first",
        device.display()
    ))
}

/// Before a device is refreshed to what the record says. One that shows more was grown before the record was replaced by an
/// older copy: cut off, a filesystem that is mounted from it would lose its end.
pub(crate) fn check_not_cut(device: &Path, id: &VolumeId, shown: u64, recorded: u64) -> Result<()> {
    if shown <= recorded {
        return Ok(());
    }
    Err(Error::precondition(format!(
        "cannot grow {} of volume {id}: it has {shown} bytes, and the volume's record, which is outdated, says \
         {recorded}; expand the volume to {shown} bytes, or restore its current record",
        device.display()
    )))
}

/// A program that an earlier daemon started is not killed half-way.
pub(crate) fn device_busy(device: &Path) -> Error {
    Error::busy(device.display(), "a tool that was started earlier is still running on it")
}

/// The daemon has given up the right to look at what more privileged processes have open.
fn unseen(device: &Path) -> String {
    format!(
        "a process that this daemon cannot see has it or files in it open ('fuser -vm {}' as \
         root on the host may name it)",
        device.display()
    )
}
