//! Messages to a thin pool of device-mapper, by ioctl: a reader of changed blocks sends two for each page that it reads.

use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::abi::TargetMessage;
use crate::error::{Context, Result};

const CONTROL: &str = "/dev/mapper/control";
const DEVICES: &str = "/dev/mapper";

/// From now on, readers of the pool's metadata find it as it is now. There is one such snapshot in a pool: `EBUSY` if
/// there is one already. `EOPNOTSUPP`: the pool is read-only, or has failed; `ENXIO`: there is no such device.
pub fn reserve_metadata_snapshot(pool: &str) -> Result<()> {
    send(pool, "reserve_metadata_snap")
}

/// `EINVAL` if there is none.
pub fn release_metadata_snapshot(pool: &str) -> Result<()> {
    send(pool, "release_metadata_snap")
}

/// A message of the thin-pool target: `pool` is the name of its device.
pub fn send(pool: &str, message: &str) -> Result<()> {
    let control = Path::new(CONTROL);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let opened = open(control, flags, Mode::empty()).on("open", control)?;
    let device = Path::new(DEVICES).join(pool);
    TargetMessage::new(pool, message)
        .and_then(|message| message.send(opened))
        .effect_on("send a message to", &device)
}

#[cfg(test)]
mod tests;
