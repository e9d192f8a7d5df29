//! Block devices of volumes, and the names by which they are found again.

use std::path::PathBuf;

use crate::id::VolumeId;

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
}

/// A block device on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub path: PathBuf,
    pub major: u32,
    pub minor: u32,
}
