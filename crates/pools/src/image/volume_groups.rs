//! Volume groups: records only.

use orlop_model::{Result, VolumeGroupId, VolumeGroupRecord};

use super::failure::Doing;
use super::store::Store;
use crate::recorded::to_text;

impl Store {
    pub(super) fn save_volume_group(&self, record: &VolumeGroupRecord) -> Result<()> {
        self.check_present()?;
        // A damaged group keeps its name until someone has looked at it.
        let is_new = self.volume_groups.get(&record.id)?.is_none();
        match is_new {
            true => self.volume_groups.write_file(record)?,
            // Only an empty group can be deleted, so a full pool has to let one be emptied.
            false => {
                let text = to_text(record)?;
                self.despite_full(|| self.volume_groups.replace_file(&record.id, &text))
                    .doing(|| format!("save the record of volume group {}", record.id))?;
            }
        }
        self.volume_groups.put(record.clone());
        self.ballast.ensure();
        Ok(())
    }

    pub(super) fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()> {
        self.check_present()?;
        self.volume_groups.get(id)?;
        self.despite_full(|| self.volume_groups.remove_file(id))
            .doing(|| format!("delete volume group {id}"))?;
        self.volume_groups.take_out(id);
        self.ballast.ensure();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
