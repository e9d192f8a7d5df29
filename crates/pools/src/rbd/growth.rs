//! Growing a volume: its image first, its record last. `size_lock.rs` keeps two from it at once.

use orlop_model::{Result, VolumeId, VolumeRecord};

use super::store::Store;

impl Store {
    pub(super) fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord> {
        let known = self.require(id)?;
        let growth = bytes.saturating_sub(known.record.capacity_bytes);
        if growth == 0 {
            return Ok(known.record);
        }
        self.check_fits(growth)?;
        let lock = self.lock_size(id, &known.image_id)?;
        // A crash after this leaves more than the record says, which the next growth takes over.
        lock.ensure_size(id, bytes)?;
        self.update_volume(id, &mut |record| {
            record.capacity_bytes = record.capacity_bytes.max(bytes);
            Ok(())
        })
    }

    /// An image that is smaller than its record says: someone has shrunk it by hand.
    pub(super) fn ensure_image_size(&self, record: &VolumeRecord) -> Result<()> {
        let id = &record.id;
        let known = self.require(id)?;
        let looking = || format!("look at the size of volume {id}");
        let size = self.ask(looking, |io| io.image_size(&known.image_id))?;
        if size < record.capacity_bytes {
            let lock = self.lock_size(id, &known.image_id)?;
            lock.ensure_size(id, record.capacity_bytes)?;
        }
        Ok(())
    }
}
