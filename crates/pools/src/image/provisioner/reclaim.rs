//! Giving back what a volume does not need.

use orlop_model::{DeviceAccess, Devices, Error, Provisioning, Result, VolumeId};
use orlop_sys::file::{self, FileAccess};

use super::ImageProvisioner;
use crate::image::catalogue::check_data;
use crate::image::failure::cannot;

impl ImageProvisioner {
    pub(super) fn reclaim_volume(&self, id: &VolumeId) -> Result<()> {
        let record = self.catalogue.volume_index().require(id)?;
        check_data(self.catalogue.volume_index(), &record)?;
        match record.parameters.provisioning {
            Provisioning::Thick => Ok(()),
            Provisioning::Thin => self.punch_zeroes(id),
        }
    }

    fn punch_zeroes(&self, id: &VolumeId) -> Result<()> {
        // What is written between the look and the punch would be lost.
        if let Some(device) = self.devices.attached(id, DeviceAccess::ReadWrite)? {
            return Err(Error::precondition(format!(
                "cannot reclaim space of volume {id}: it is attached as {}; unstage it first",
                device.path.display()
            )));
        }
        self.devices.check_still("reclaim space of", id)?;
        let reclaiming = || format!("reclaim space of volume {id}");
        let data = self.catalogue.volume_index().directory_of(id).data();
        let data = file::open_regular(&data, FileAccess::ReadWrite).map_err(cannot(reclaiming))?;
        let bytes = file::punch_zeroes(&data).map_err(cannot(reclaiming))?;
        tracing::info!(%id, bytes, "reclaimed blocks that held only zeroes");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
