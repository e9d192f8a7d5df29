//! Devices on files that a process shows, which may be slow to answer or dead.
//!
//! LOOP_GET_STATUS asks the file for its inode, so it fails or waits with the process. What sysfs
//! has, and detaching, ask no filesystem.

use std::path::{Path, PathBuf};

use super::{LoopDevice, all_devices, detach_while};
use crate::error::{Context, Result};

/// As sysfs shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackedDevice {
    pub device: LoopDevice,
    /// Where the file is, or was when it was last seen.
    pub file: PathBuf,
    pub read_only: bool,
    /// The device goes away when its last user closes it.
    pub detaching: bool,
}

/// `None`: not attached, or no such device.
pub fn backing(device: &LoopDevice) -> Result<Option<BackedDevice>> {
    let Some(file) = read(&device.sysfs().join("loop/backing_file"))? else {
        return Ok(None);
    };
    let is_set = |name: &str| Ok(read(&device.sysfs().join(name))?.is_some_and(|it| it == "1"));
    Ok(Some(BackedDevice {
        device: device.clone(),
        file: PathBuf::from(file),
        read_only: is_set("ro")?,
        detaching: is_set("loop/autoclear")?,
    }))
}

/// All devices that are attached to something, ours or not.
pub fn all_backed() -> Result<Vec<BackedDevice>> {
    let found = all_devices()?.into_iter().map(|device| backing(&device));
    Ok(found.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// As [`super::ensure_detached`], but the device is ours if it is on this file.
pub fn ensure_detached_from(device: &LoopDevice, file: &Path) -> Result<()> {
    detach_while(device, |_| Ok(backing(device)?.is_some_and(|there| there.file == file)))
}

/// Attributes of a device that is being detached go away or fail to be read.
fn read(attribute: &Path) -> Result<Option<String>> {
    use std::io::ErrorKind;
    match std::fs::read(attribute) {
        // The name of another program's file need not be text.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
            Ok(None)
        }
        Err(error) => Err(error).on("read", attribute),
    }
}
