//! Detaching what no call has asked to be detached.
//!
//! The number of a device that is detached goes to another file next. Who still has a node of it,
//! bound or of their making, would then read and write that one. So a device that was only found is
//! detached if nothing uses it, and left as it is otherwise.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use super::{LoopDevice, backing, discard, is_gone, is_labelled, user_of};
use crate::abi;
use crate::crash;
use crate::device_lock::DeviceLock;
use crate::error::{Context, Result};

/// Detaches the device if it carries `label` and nothing uses it; `file` is what it was on. Says what
/// uses it otherwise. Waits only for programs that inspect all devices for a moment.
pub fn try_detach_unused(device: &LoopDevice, label: &str, file: &Path) -> Result<Option<String>> {
    detach_if(device, || is_labelled(device, label, file))
}

/// As [`try_detach_unused`], but the device is ours if it is on this file.
pub fn try_detach_unused_from(device: &LoopDevice, file: &Path) -> Result<Option<String>> {
    detach_if(device, || Ok(backing(device)?.is_some_and(|there| there.file == file)))
}

fn detach_if(device: &LoopDevice, is_ours: impl Fn() -> Result<bool>) -> Result<Option<String>> {
    let path = device.path();
    if !is_ours()? {
        return Ok(None);
    }
    if let Some(user) = lasting(|| user_of(device)) {
        return Ok(Some(user));
    }
    let is_going = backing(device)?.is_some_and(|there| there.detaching);
    let fd = match device.open(OFlags::RDONLY) {
        Err(errno) if is_gone(errno) => return Ok(None),
        fd => fd.on("open", &path)?,
    };
    // Again: as long as it is open here, it is attached to nothing else.
    if !is_ours()? {
        return Ok(None);
    }
    // A program that was given this number would find another file behind it.
    let _lock = DeviceLock::take_if_free(&path)?;
    match abi::loop_clear(&fd) {
        Ok(()) => crash::after("detach"),
        Err(errno) if is_gone(errno) => return Ok(None),
        Err(errno) => return Err(errno).on("detach", &path),
    }
    if is_still_there(device, &fd, is_going)? {
        return Ok(Some("a process that this daemon cannot see has it open".to_owned()));
    }
    drop(fd);
    discard::remove_if_disabled(device);
    Ok(None)
}

/// A program that looks at all devices, such as blkid or mkfs.btrfs, has each of them open for a moment.
fn lasting(mut user: impl FnMut() -> Option<String>) -> Option<String> {
    for milliseconds in [5, 20, 80] {
        user()?;
        std::thread::sleep(Duration::from_millis(milliseconds));
    }
    user()
}

/// While others have a device open the kernel only marks it, to go when the last of them closes it:
/// a process that opens their node again would find another file behind it. So the mark is taken back,
/// unless it was there before. A process that is killed before that leaves the mark; so does a file
/// that cannot be asked any more.
fn is_still_there(device: &LoopDevice, fd: &OwnedFd, was_going: bool) -> Result<bool> {
    let path = device.path();
    let mut info = match abi::loop_get_status(fd) {
        Err(errno) if is_gone(errno) => return Ok(false),
        Err(errno) => return Err(errno).on("read the status of", &path),
        Ok(info) => info,
    };
    if !was_going {
        info.lo_flags &= !abi::LO_FLAGS_AUTOCLEAR;
        abi::loop_set_status(fd, info).effect_on("keep", &path)?;
    }
    Ok(true)
}

/// Lets the device outlive its last user again, after a detachment that was refused as something has
/// it open. `false`: it is gone, or its label shows that it is used for something else now.
pub fn try_keep(device: &LoopDevice, label: &str) -> Result<bool> {
    keep_if(device, || is_labelled(device, label, Path::new("")))
}

/// As [`try_keep`], but the device is ours if it is on this file.
pub fn try_keep_on(device: &LoopDevice, file: &Path) -> Result<bool> {
    keep_if(device, || Ok(backing(device)?.is_some_and(|there| there.file == file)))
}

fn keep_if(device: &LoopDevice, is_ours: impl Fn() -> Result<bool>) -> Result<bool> {
    let path = device.path();
    // As long as it is open here, it does not go.
    let fd = match device.open(OFlags::RDONLY) {
        Err(errno) if is_gone(errno) => return Ok(false),
        fd => fd.on("open", &path)?,
    };
    if !is_ours()? {
        return Ok(false);
    }
    is_still_there(device, &fd, false)
}

#[cfg(test)]
mod tests;
