//! Whether a pool and its volumes can be used.

use crate::condition::Condition;
use crate::error::{Error, Result};
use crate::id::VolumeId;

pub trait Health: Send + Sync {
    /// Is it there and usable? For Probe: quick, and true now, not at start.
    fn check(&self) -> Result<()>;

    /// For pools whose storage can stop answering without any call to it returning. `None`: the pool
    /// notices that itself, and refuses calls for as long.
    fn storage_probe(&self) -> Option<&dyn StorageProbe>;

    /// From the pool's point of view: is the data there, whole, with room to write?
    fn condition(&self, id: &VolumeId) -> Result<Condition>;

    /// The conditions of many volumes, in the order of their ids here. For a pool that need not
    /// be looked at again for each of them.
    fn conditions(&self, ids: &[VolumeId]) -> Vec<Condition> {
        let abnormal = |error: Error| Condition::abnormal(error.to_string());
        ids.iter().map(|id| self.condition(id).unwrap_or_else(abnormal)).collect()
    }
}

pub trait StorageProbe: Send + Sync {
    /// Writes a little to the pool's storage, which leaves nothing, and waits until it is there: as
    /// long as that takes.
    fn try_storage(&self) -> Result<()>;
}
