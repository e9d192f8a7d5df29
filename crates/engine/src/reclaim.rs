//! Giving space back to the pool: what a filesystem does not use, and blocks of zeroes.

use orlop_model::{Error, Result, TargetPath, VolumeId};

use crate::engine::Engine;
use crate::request::{Reclaimed, VolumeRef};
use crate::sharing::sharing;

impl Engine {
    /// On the node, while the volume is in use. A raw device knows nothing of what is unused on
    /// it, so nothing is done there (RS-10).
    pub fn reclaim_on_node(&self, volume: &VolumeRef, path: &TargetPath) -> Result<Reclaimed> {
        let id = self.resolve(volume)?;
        let _lock = self.locks().volume(id.digest())?;
        let (pool, _) = self.require_subject(&id)?;
        let node = self.host().node_record(&id)?;
        let stage = self.stage_at(pool, &id, &node, path)?;
        let before_bytes = pool.provisioner().used_bytes(&id)?;
        if !stage.capability.is_block() {
            self.host().ensure_trimmed(&stage.path)?;
        }
        Ok(Reclaimed { before_bytes, after_bytes: pool.provisioner().used_bytes(&id)? })
    }

    /// On the pool, while nothing uses the volume.
    pub fn reclaim_on_pool(&self, id: &VolumeId) -> Result<Reclaimed> {
        let _lock = self.locks().volume(id.digest())?;
        let (pool, record) = self.require_subject(id)?;
        sharing(pool).check_unpublished(&record)?;
        if let Some(stage) = self.live_stage(pool, id)? {
            return Err(Error::precondition(format!(
                "cannot reclaim space of {}: it is staged at {}; reclaim its space on the node",
                record.label(),
                stage.path
            )));
        }
        let before_bytes = pool.provisioner().used_bytes(id)?;
        // Encrypted, a block of zeroes is none.
        if !record.is_encrypted() {
            pool.provisioner().ensure_reclaimed(id)?;
        }
        Ok(Reclaimed { before_bytes, after_bytes: pool.provisioner().used_bytes(id)? })
    }
}
