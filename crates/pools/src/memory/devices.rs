//! Devices that are numbers and paths, and lead nowhere.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use orlop_model::{Device, DeviceAccess, Devices, Error, Result, VolumeId};

use super::MemoryPool;
use super::state::{Interlude, MemoryVolume};
use crate::poison::lock;

/// Of the range that the kernel leaves to experiments.
const MAJOR: u32 = 240;

/// Shared by all pools of the process, as device numbers are on a machine.
static MINORS: AtomicU32 = AtomicU32::new(1);

impl Devices for MemoryPool {
    fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device> {
        let interlude = lock(&self.state).attach_interlude.take();
        if let Some(Interlude(happen)) = interlude {
            happen();
        }
        let mut state = lock(&self.state);
        state.fault("ensure_attached")?;
        let path = match access {
            DeviceAccess::ReadWrite => format!("/memory/{id}"),
            DeviceAccess::ReadOnly => format!("/memory/{id}/ro"),
        };
        let port = state.volume(id)?.port(access);
        port.attached = true;
        let device = port.device.get_or_insert_with(|| Device {
            path: PathBuf::from(path),
            major: MAJOR,
            minor: MINORS.fetch_add(1, Ordering::Relaxed),
        });
        Ok(device.clone())
    }

    fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        let mut state = lock(&self.state);
        state.fault("attached")?;
        let volume = state.volumes.get_mut(id);
        Ok(volume.and_then(|volume| volume.port(access).attached().cloned()))
    }

    fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        let mut state = lock(&self.state);
        state.fault("ensure_detached")?;
        if let Some(volume) = state.volumes.get_mut(id) {
            volume.port(access).attached = false;
        }
        Ok(())
    }

    fn check_detachable(&self, _: &VolumeId) -> Result<()> {
        lock(&self.state).fault("check_detachable")
    }

    /// What uses a device is the host's to know.
    fn try_detach_unused(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        self.ensure_detached(id, access)
    }

    fn refresh_device(&self, id: &VolumeId) -> Result<u64> {
        let mut state = lock(&self.state);
        state.fault("refresh_device")?;
        let volume = state.volume(id)?;
        if !volume.read_write.attached && !volume.read_only.attached {
            return Err(Error::precondition(format!("volume {id} is not attached")));
        }
        Ok(volume.record.capacity_bytes)
    }

    fn attached_volumes(&self) -> Result<Vec<VolumeId>> {
        let mut state = lock(&self.state);
        state.fault("attached_volumes")?;
        let attached =
            |volume: &MemoryVolume| volume.read_write.attached || volume.read_only.attached;
        let entries = state.volumes.iter().filter(|(_, volume)| attached(volume));
        Ok(entries.map(|(id, _)| id.clone()).collect())
    }
}
