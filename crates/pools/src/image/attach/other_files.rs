//! Devices with a volume's label on a file that is not the volume's data in this pool, and never was while
//! this process runs. A copy of the pool that another daemon serves has such devices, and they are not this
//! pool's. But so has data that was moved, or a pool that was replaced by a copy, between two starts. The
//! engine tells them apart by its node records (decision 0031).

use orlop_model::{DeviceOnOtherFile, Result};
use orlop_sys::loopdev::{self, LoopDevice};

use super::{LoopDevices, all_attached, backs, described, is_deleted, parse_label};
use crate::image::failure::cannot;
use crate::poison::lock;

impl LoopDevices {
    pub(super) fn labelled_on_other_files(&self) -> Result<Vec<DeviceOnOtherFile>> {
        let (pool, layout) = (self.directory.id(), self.directory.layout());
        let mut found = Vec::new();
        for status in all_attached(pool, layout.root())? {
            let Some((volume, access)) = parse_label(&status.label) else { continue };
            let is_known = |slots: &super::Slots| slots.get(access) == Some(&status.device);
            if volume.pool() != pool
                || backs(&self.data_of(&volume), &status)
                || is_deleted(layout, &status)?
                || self.known(&volume).is_some_and(|slots| is_known(&lock(&slots)))
            {
                continue;
            }
            let looking = || format!("inspect {}", status.device.path().display());
            let there = loopdev::backing(&status.device).map_err(cannot(looking))?;
            let file = there.map(|there| there.file).unwrap_or_default();
            let device = described(&status.device)?;
            found.push(DeviceOnOtherFile { volume, access, device, file });
        }
        Ok(found)
    }

    /// A known device that is attached to the volume's data is kept instead.
    pub(super) fn take_over_labelled(&self, other: &DeviceOnOtherFile) {
        let slots = self.slots(&other.volume);
        if let Some(device) = LoopDevice::from_path(&other.device.path) {
            lock(&slots).of(other.access).get_or_insert(device);
        }
    }
}
