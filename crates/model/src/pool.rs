//! What the engine needs of a place where volumes are kept, cut along what its callers do with it.

mod catalogue;
mod changed_blocks;
mod devices;
mod draft;
mod health;
mod provisioner;
mod shared;

pub use catalogue::Catalogue;
pub use changed_blocks::{ByteRange, ChangedBlocks, Ranges};
pub use devices::{Device, DeviceAccess, Devices};
pub use draft::{Draft, NewFilesystem, NewGroupSnapshot, NewSnapshot, NewVolume};
pub use health::{Health, StorageProbe};
pub use provisioner::{PoolCapacity, Provisioner};
pub use shared::Shared;

use crate::id::PoolId;
use crate::topology::Topology;

/// What does not change while a pool is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolInfo {
    pub id: PoolId,
    /// The operator's name for it, as the parameter `pool` has it.
    pub name: String,
    /// Where its volumes can be used; empty means everywhere.
    pub topology: Topology,
}

/// A place where volumes are kept. It is the truth about them: what it does not hold does not
/// exist. Callers serialise operations on one object within their process; a pool copes with
/// anything else at once, and a shared one with other processes on the same object.
///
/// Each part is a component that owns its state. What a kind of pool cannot do is a part that it
/// does not have.
pub trait Pool: Send + Sync {
    fn info(&self) -> &PoolInfo;

    fn catalogue(&self) -> &dyn Catalogue;

    fn provisioner(&self) -> &dyn Provisioner;

    fn devices(&self) -> &dyn Devices;

    fn changed_blocks(&self) -> &dyn ChangedBlocks;

    fn health(&self) -> &dyn Health;

    /// Only of a pool that other nodes use at the same time.
    fn shared(&self) -> Option<&dyn Shared>;

    fn id(&self) -> &PoolId {
        &self.info().id
    }

    fn name(&self) -> &str {
        &self.info().name
    }

    fn topology(&self) -> &Topology {
        &self.info().topology
    }
}
