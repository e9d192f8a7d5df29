//! How much a volume takes, and giving back what it does not need.

use std::fs::{File, OpenOptions};

use orlop_model::{DeviceAccess, Error, Provisioning, Result, VolumeId};
use orlop_sys::file::{self, BackingKind};

use super::failure::Doing;
use super::original::check_data;
use super::store::Store;

impl Store {
    pub(super) fn used_bytes(&self, id: &VolumeId) -> Result<u64> {
        let record = self.volumes.require(id)?;
        check_data(&self.volumes, &record)?;
        file::allocated_bytes(&self.volumes.home(id).data())
            .doing(|| format!("look at volume {id}"))
    }

    /// Told by the filesystem's map of the file, not by reading it. One that keeps no such map
    /// would call everything data, so its word does not count.
    pub(super) fn holds_data(&self, id: &VolumeId) -> Result<bool> {
        let looking = || format!("look at volume {id}");
        if matches!(self.backing, BackingKind::Other) || self.used_bytes(id)? == 0 {
            return Ok(false);
        }
        let data = File::open(self.volumes.home(id).data()).doing(looking)?;
        file::has_data(&data).doing(looking)
    }

    pub(super) fn ensure_reclaimed(&self, id: &VolumeId) -> Result<()> {
        let record = self.volumes.require(id)?;
        check_data(&self.volumes, &record)?;
        match record.parameters.provisioning {
            Provisioning::Thick => return Ok(()),
            Provisioning::Thin => {}
        }
        // What is written between the look and the punch would be lost.
        if let Some(device) = self.attached(id, DeviceAccess::ReadWrite)? {
            return Err(Error::precondition(format!(
                "volume {id} is attached at {}; unstage it first",
                device.path.display()
            )));
        }
        self.check_still("reclaim space of", id)?;
        let reclaiming = || format!("reclaim space of volume {id}");
        let data = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.volumes.home(id).data())
            .doing(reclaiming)?;
        let bytes = file::punch_zeroes(&data).doing(reclaiming)?;
        tracing::info!(%id, bytes, "reclaimed blocks that held only zeroes");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
