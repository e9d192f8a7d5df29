//! Changing a volume that is there.

use std::fs::{self, OpenOptions};
use std::sync::Arc;

use orlop_model::{Provisioning, Result, VolumeId, VolumeRecord};
use orlop_sys::file;

use super::failure::Doing;
use super::layout::Home;
use super::original::check_data;
use super::room::Demand;
use super::shelf::Kept;
use super::store::Store;
use super::volume_draft::is_thick;
use crate::poison::lock;
use crate::recorded::to_text;

impl Store {
    pub(super) fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord> {
        self.check_present()?;
        let mut record = self.volumes.require(id)?;
        change(&mut record)?;
        self.save(&record)?;
        self.volumes.replace(record.clone(), record.charge(0), 0);
        Ok(record)
    }

    /// After a crash the old record is there or the new one, never half of each.
    fn save(&self, record: &VolumeRecord) -> Result<()> {
        let saving = || format!("save the record of volume {}", record.id);
        let text = to_text(record)?;
        let home = self.volumes.home(&record.id);
        self.despite_full(|| file::replace_file(home.directory(), Home::RECORD, &text))
            .doing(saving)
    }

    pub(super) fn ensure_capacity(
        self: &Arc<Self>,
        id: &VolumeId,
        bytes: u64,
    ) -> Result<VolumeRecord> {
        self.check_present()?;
        let mut record = self.volumes.require(id)?;
        let growth = bytes.saturating_sub(record.capacity_bytes);
        if growth == 0 {
            return Ok(record);
        }
        check_data(&self.volumes, &record)?;
        if is_thick(&record) {
            self.check_thick()?;
        }
        let taken = self.taken_by_growth(&record, bytes)?;
        let reservation = self.try_reserve(Demand {
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
        self.save(&record)?;

        let mut ledger = lock(&self.ledger);
        ledger.promise(growth);
        ledger.note_stored(taken);
        self.volumes.replace(record.clone(), record.charge(0), taken);
        drop(ledger);
        drop(reservation);
        Ok(record)
    }

    /// Thick takes it at once, less what a call that a crash interrupted has taken already.
    fn taken_by_growth(&self, record: &VolumeRecord, bytes: u64) -> Result<u64> {
        match record.parameters.provisioning {
            Provisioning::Thin => Ok(0),
            Provisioning::Thick => {
                let data = fs::metadata(self.volumes.home(&record.id).data())
                    .doing(|| format!("look at the data of volume {}", record.id))?;
                Ok(bytes.saturating_sub(data.len()))
            }
        }
    }

    fn grow_data(&self, record: &VolumeRecord, bytes: u64) -> Result<()> {
        let growing = || format!("grow volume {}", record.id);
        let data = OpenOptions::new()
            .write(true)
            .open(self.volumes.home(&record.id).data())
            .doing(growing)?;
        let present = data.metadata().doing(growing)?.len();
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
                    %error,
                    "cannot release space that was allocated for a growth that failed"
                );
            }
            return Err(error).doing(growing);
        }
        file::sync_file(&data).doing(growing)
    }
}

#[cfg(test)]
mod tests;
