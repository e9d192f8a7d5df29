//! Is what stands at a path already what was asked for? Repeating a call must find so; anything
//! else there is left alone and the call refused.

use orlop_model::{Device, Error, MountRequest, MountState, Result, TargetPath};

/// A mount that may be written where reading was asked for is another mount. A filesystem that
/// turned read-only after an error is still the one that was asked for.
pub(crate) fn check_filesystem(
    target: &TargetPath,
    there: &MountState,
    wanted: &MountRequest<'_>,
) -> Result<()> {
    let same_access = match wanted.read_only {
        true => there.read_only || there.filesystem_read_only,
        false => !there.read_only,
    };
    let same = !there.is_device_node && there.is_of(wanted.device) && same_access;
    same.then_some(()).ok_or_else(|| taken(target, there))
}

/// A bind of a read-only mount is read-only whatever was asked for.
pub(crate) fn check_bind(
    target: &TargetPath,
    there: &MountState,
    staged: &MountState,
    read_only: bool,
) -> Result<()> {
    let same_access = there.read_only == (read_only || staged.read_only);
    let same_device = (there.major, there.minor) == (staged.major, staged.minor);
    let same = !there.is_device_node && same_device && same_access;
    same.then_some(()).ok_or_else(|| taken(target, there))
}

pub(crate) fn check_device(target: &TargetPath, there: &MountState, device: &Device) -> Result<()> {
    let same = there.is_device_node && there.is_of(device);
    same.then_some(()).ok_or_else(|| taken(target, there))
}

/// What is staged at `source`: an empty directory must not be handed to a workload as its volume.
pub(crate) fn staged(source: &TargetPath, there: Option<MountState>) -> Result<MountState> {
    there.filter(|there| !there.is_device_node).ok_or_else(|| {
        Error::precondition(format!(
            "cannot publish from {source}: no filesystem is mounted \
             there; stage the volume again"
        ))
    })
}

fn taken(target: &TargetPath, by: &MountState) -> Error {
    let what = match by.is_device_node {
        true => "the device node",
        false => "the filesystem of device",
    };
    let access = if by.read_only { ", read-only," } else { "" };
    Error::precondition(format!(
        "cannot mount at {target}: {what} {}:{} is mounted there{access} and is not what is asked for; \
         unmount it first",
        by.major, by.minor,
    ))
}
