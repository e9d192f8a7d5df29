//! What a test says about the health of a pool that only pretends.

use orlop_model::{Condition, Error, Health, Result, StorageProbe, VolumeId};

use super::MemoryPool;
use crate::poison::lock;

impl Health for MemoryPool {
    fn check(&self) -> Result<()> {
        lock(&self.state).fault("check_health")
    }

    /// As real pools: one that nodes share notices itself that its storage does not answer.
    fn storage_probe(&self) -> Option<&dyn StorageProbe> {
        lock(&self.state).sharers.is_none().then_some(self)
    }

    fn condition(&self, id: &VolumeId) -> Result<Condition> {
        let mut state = lock(&self.state);
        state.fault("condition")?;
        let volume = state.volumes.get(id).ok_or_else(|| Error::NoSuchVolume(id.to_string()))?;
        Ok(match (volume.checked(), &volume.condition) {
            (Err(damaged), _) => Condition::abnormal(damaged.to_string()),
            (Ok(_), Some(condition)) => condition.clone(),
            (Ok(_), None) => Condition::healthy("in memory"),
        })
    }
}

impl StorageProbe for MemoryPool {
    fn try_storage(&self) -> Result<()> {
        Ok(())
    }
}
