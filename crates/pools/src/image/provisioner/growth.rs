//! Growing a volume.

use std::fs;

use orlop_model::{Provisioning, Result, VolumeId, VolumeRecord};
use orlop_sys::file::{self, FileAccess};

use super::{ImageProvisioner, is_thick};
use crate::image::capacity::Demand;
use crate::image::catalogue::check_data;
use crate::image::failure::cannot;

impl ImageProvisioner {
    pub(super) fn grow_volume(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord> {
        self.directory.check_present()?;
        let record = self.catalogue.volume_index().require(id)?;
        if bytes <= record.capacity_bytes {
            return Ok(record);
        }
        self.directory.check_takes_data()?;
        check_data(self.catalogue.volume_index(), &record)?;
        self.devices.check_shows_data(id)?;
        if is_thick(&record) {
            self.directory.check_thick()?;
        }
        self.grow(record, bytes)
    }

    fn grow(&self, mut record: VolumeRecord, bytes: u64) -> Result<VolumeRecord> {
        let growth = bytes.saturating_sub(record.capacity_bytes);
        let taken = self.taken_by_growth(&record, bytes)?;
        let reservation = self.capacity.try_reserve(Demand {
            length: bytes,
            promise: growth,
            physical: taken,
            must_fit: true,
        })?;

        // A crash between both leaves data that is longer than the record says. That is a
        // smaller volume than asked for: devices show what the record says, and the repeated call
        // goes through here again. The other way round, the record would promise data that is
        // not there.
        self.grow_data(&record, bytes)?;
        record.capacity_bytes = bytes;
        self.catalogue.save_volume(&record)?;

        self.capacity.note_grown(record.clone(), growth, taken);
        drop(reservation);
        Ok(record)
    }

    /// Thick takes it at once, less what a call that a crash interrupted has taken already.
    fn taken_by_growth(&self, record: &VolumeRecord, bytes: u64) -> Result<u64> {
        match record.parameters.provisioning {
            Provisioning::Thin => Ok(0),
            Provisioning::Thick => {
                let data =
                    fs::metadata(self.catalogue.volume_index().directory_of(&record.id).data())
                        .map_err(cannot(|| format!("inspect the data of volume {}", record.id)))?;
                Ok(bytes.saturating_sub(data.len()))
            }
        }
    }

    fn grow_data(&self, record: &VolumeRecord, bytes: u64) -> Result<()> {
        let growing = || format!("grow {}", record.label());
        let data = self.catalogue.volume_index().directory_of(&record.id).data();
        let data = file::open_regular(&data, FileAccess::ReadWrite).map_err(cannot(growing))?;
        let present = data.metadata().map_err(cannot(growing))?.len();
        // Never shorter: after a crash it may be longer than is asked for now. Nor preallocated
        // twice, for which XFS would want the space twice.
        let missing = bytes.saturating_sub(present);
        let grown = match record.parameters.provisioning {
            Provisioning::Thin => file::set_length(&data, present + missing),
            Provisioning::Thick => file::preallocate(&data, present, missing),
        };
        if let Err(error) = grown {
            // Give back what was reserved before space ran out. It begins after what was there
            // before this call, of which alone a device can show anything.
            if let Err(error) = file::set_length(&data, present) {
                tracing::warn!(
                    volume = %record.id,
                    %error,
                    "cannot release the space that was allocated for a growth that failed"
                );
            }
            return Err(cannot(growing)(error));
        }
        file::sync_file(&data).map_err(cannot(growing))
    }
}

#[cfg(test)]
mod tests;
