//! For routers: what this daemon serves, and names that stay as they are while a router decides which
//! daemon creates a volume.

use orlop_model::{NameDigest, ObjectName, PoolId, Result, Topology, VolumeId};

use crate::engine::Engine;
use crate::locks::LockGuard;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSummary {
    pub id: PoolId,
    pub name: String,
    /// Where its volumes can be reached. Empty: everywhere.
    pub topology: Topology,
}

/// The lock of a volume's name. While it is held, only the call that it is given to creates or deletes a
/// volume of this name here.
pub struct NameHold {
    pub(crate) digest: NameDigest,
    pub(crate) lock: LockGuard,
}

impl Engine {
    pub fn pool_summaries(&self) -> Vec<PoolSummary> {
        let summary = |pool: &crate::engine::PoolRef| PoolSummary {
            id: pool.id().clone(),
            name: pool.name().to_owned(),
            topology: pool.topology().clone(),
        };
        self.pools().values().map(summary).collect()
    }

    /// False while a configured pool is absent, whose id is not known.
    pub fn knows_all_pools(&self) -> bool {
        self.absent().is_empty()
    }

    /// Holds the name, and returns the volume that has it. An error if a pool is absent, which may have it.
    pub fn hold_name(&self, name: &ObjectName) -> Result<(NameHold, Option<VolumeId>)> {
        let digest = NameDigest::of(name);
        let lock = self.locks().volume(&digest)?;
        let found = self.find_volume(&digest, None)?.map(|(_, record)| record.id);
        Ok((NameHold { digest, lock }, found))
    }
}
