//! Volume groups: records only.

use orlop_model::{Result, VolumeGroupId, VolumeGroupRecord};

use super::store::Store;

impl Store {
    pub(super) fn save_volume_group(&self, record: &VolumeGroupRecord) -> Result<()> {
        self.check_present()?;
        // A damaged group keeps its name until someone has looked at it.
        self.volume_groups.get(&record.id)?;
        self.volume_groups.write_file(record)?;
        self.volume_groups.put(record.clone());
        Ok(())
    }

    pub(super) fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()> {
        self.check_present()?;
        self.volume_groups.get(id)?;
        self.volume_groups.remove_file(id)?;
        self.volume_groups.take_out(id);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
