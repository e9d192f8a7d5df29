//! Block devices of volumes, and the names by which they are found again.

use std::path::PathBuf;

use crate::id::VolumeId;

const MAPPED_PREFIX: &str = "orlop-";
const MAPPED_READER: &str = "-ro";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceAccess {
    ReadWrite,
    ReadOnly,
}

impl DeviceAccess {
    /// The label of a volume's loop device. The kernel keeps it, so it tells whose a device is after a
    /// restart, and while the pool is absent.
    pub fn label(self, id: &VolumeId) -> String {
        match self {
            Self::ReadWrite => id.to_string(),
            Self::ReadOnly => format!("{id}/ro"),
        }
    }

    /// The same of a device of device-mapper: its name. [`Self::of_mapped_name`] reads it.
    pub fn mapped_name(self, id: &VolumeId) -> String {
        match self {
            Self::ReadWrite => format!("{MAPPED_PREFIX}{id}"),
            Self::ReadOnly => format!("{MAPPED_PREFIX}{id}{MAPPED_READER}"),
        }
    }

    /// `None`: the device is not a volume's.
    pub fn of_mapped_name(name: &str) -> Option<(VolumeId, Self)> {
        let rest = name.strip_prefix(MAPPED_PREFIX)?;
        match rest.strip_suffix(MAPPED_READER) {
            Some(id) => Some((id.parse().ok()?, Self::ReadOnly)),
            None => Some((rest.parse().ok()?, Self::ReadWrite)),
        }
    }
}

/// A block device on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub path: PathBuf,
    pub major: u32,
    pub minor: u32,
}

#[cfg(test)]
mod tests;
