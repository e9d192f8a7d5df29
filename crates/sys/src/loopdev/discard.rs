//! Whether a device passes discards on to its backing file.
//!
//! The limit of a queue outlives the attachment, and once it was set to nothing the kernel accepts
//! no other value (the granularity that it checks a new one against is gone with it). A device
//! whose discards were disabled can therefore not be used for another file: it is removed, and the
//! kernel makes a new one of the same number when it needs one.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use super::{CONTROL, LoopDevice};
use crate::abi;
use crate::error::{Context, Error, Result};

const LIMIT: &str = "discard_max_bytes";

/// Keeps the blocks of a preallocated file: nothing that is discarded is punched out of it.
/// Lasts until the device is detached.
pub fn disable_discard(device: &LoopDevice) -> Result<()> {
    let path = device.queue().join(LIMIT);
    // Without O_CREAT, which sysfs answers with EACCES where the file is missing.
    let mut file = OpenOptions::new().write(true).open(&path).on("open", &path)?;
    file.write_all(b"0").effect_on("write", &path)
}

/// Makes the kernel forget an unused device whose discards were disabled. True if it did; a
/// device in use is safe, for the kernel refuses to remove it.
pub(super) fn remove_if_disabled(device: &LoopDevice) -> bool {
    match is_disabled(device) {
        Ok(true) => {}
        Ok(false) => return false,
        Err(error) => {
            tracing::debug!(%error, "cannot read whether discards are disabled");
            return false;
        }
    }
    let removed = forget(device);
    if let Err(error) = &removed {
        tracing::debug!(%error, "cannot remove a loop device whose discards are disabled");
    }
    removed.is_ok()
}

/// Makes the kernel forget an unused device; one that is in use is an error that
/// [`Error::is_busy`].
pub fn forget(device: &LoopDevice) -> Result<()> {
    let control = File::open(CONTROL).on("open", Path::new(CONTROL))?;
    abi::loop_control_remove(control, device.number).effect_on("remove", &device.path())
}

/// A device that never supported discards has no limit of the hardware either.
pub(super) fn is_disabled(device: &LoopDevice) -> Result<bool> {
    let queue = device.queue();
    Ok(read_limit(&queue, LIMIT)? == 0 && read_limit(&queue, "discard_max_hw_bytes")? > 0)
}

fn read_limit(queue: &Path, name: &str) -> Result<u64> {
    let path = queue.join(name);
    let text = std::fs::read_to_string(&path).on("read", &path)?;
    text.trim().parse().map_err(|_| Error::refused("read", &path, "it holds no number"))
}
