//! Changing a volume that is there.

use std::fs::OpenOptions;
use std::sync::Arc;

use orlop_model::{Provisioning, Result, VolumeId, VolumeRecord};
use orlop_sys::file;

use super::failure::Doing;
use super::layout::Home;
use super::original::check_data;
use super::recorded::to_text;
use super::room::Demand;
use super::shelf::Kept;
use super::store::Store;
use crate::poison::lock;

impl Store {
    pub(super) fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord),
    ) -> Result<VolumeRecord> {
        let mut record = self.volumes.require(id)?;
        change(&mut record);
        self.save(&record)?;
        self.volumes.put(record.clone(), record.charge(0));
        Ok(record)
    }

    /// After a crash the old record is there or the new one, never half of each.
    fn save(&self, record: &VolumeRecord) -> Result<()> {
        let saving = || format!("save the record of volume {}", record.id);
        let text = to_text(record)?;
        let home = self.volumes.home(&record.id);
        file::replace_file(home.directory(), Home::RECORD, &text).doing(saving)
    }

    pub(super) fn ensure_capacity(
        self: &Arc<Self>,
        id: &VolumeId,
        bytes: u64,
    ) -> Result<VolumeRecord> {
        let mut record = self.volumes.require(id)?;
        let growth = bytes.saturating_sub(record.capacity_bytes);
        if growth == 0 {
            return Ok(record);
        }
        check_data(&self.volumes, &record)?;
        let thick = record.parameters.provisioning == Provisioning::Thick;
        let taken = if thick { growth } else { 0 };
        let reservation = self.try_reserve(Demand {
            length: bytes,
            promise: growth,
            physical: taken,
            must_fit: true,
        })?;

        // A crash between both leaves data that is longer than the record says. That is a
        // smaller volume than asked for, and the repeated call goes through here again; the
        // other way round, the record would promise data that is not there.
        self.grow_data(&record, bytes)?;
        record.capacity_bytes = bytes;
        self.save(&record)?;

        let mut ledger = lock(&self.ledger);
        ledger.promise(growth);
        ledger.note_stored(taken, 0);
        self.volumes.put(record.clone(), record.charge(0));
        drop(ledger);
        drop(reservation);
        Ok(record)
    }

    fn grow_data(&self, record: &VolumeRecord, bytes: u64) -> Result<()> {
        let growing = || format!("grow volume {}", record.id);
        let data = OpenOptions::new()
            .write(true)
            .open(self.volumes.home(&record.id).data())
            .doing(growing)?;
        let present = record.capacity_bytes;
        let grown = match record.parameters.provisioning {
            Provisioning::Thin => file::set_length(&data, bytes),
            Provisioning::Thick => file::preallocate(&data, present, bytes - present),
        };
        if let Err(error) = grown {
            // Give back what was reserved before space ran out; no device has seen it yet.
            if let Err(error) = file::set_length(&data, present) {
                tracing::warn!(%error, "space reserved in vain stays taken");
            }
            return Err(error).doing(growing);
        }
        data.sync_all().doing(growing)
    }
}

#[cfg(test)]
mod tests;
