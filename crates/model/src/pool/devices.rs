//! Volumes as block devices of this machine.

use std::path::PathBuf;

use crate::error::Result;
use crate::id::VolumeId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceAccess {
    ReadWrite,
    ReadOnly,
}

/// A block device on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub path: PathBuf,
    pub major: u32,
    pub minor: u32,
}

/// Attaches and detaches the volumes of a pool, on this machine.
pub trait Devices: Send + Sync {
    /// Makes the volume a block device of this machine; the same one if it is already.
    fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device>;

    /// The device, if the volume is attached that way now.
    fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>>;

    fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()>;

    /// Before the volume is unmounted and detached: `Precondition` if its device is the only way to
    /// what was written, which then also [`Devices::ensure_detached`] refuses.
    fn check_detachable(&self, _: &VolumeId) -> Result<()> {
        Ok(())
    }

    /// As [`Devices::ensure_detached`], where no record says who may still use the device. `Precondition`
    /// if anything on this machine does; the device is then left as it was.
    fn try_detach_unused(&self, id: &VolumeId, access: DeviceAccess) -> Result<()>;

    /// Lets an attached device see that the volume has grown; returns its size.
    fn refresh_device(&self, id: &VolumeId) -> Result<u64>;

    /// All volumes of this pool that are attached in any way; for the look at start.
    fn attached_volumes(&self) -> Result<Vec<VolumeId>>;
}
