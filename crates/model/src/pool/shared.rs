//! What only a pool has that several nodes use at the same time.

use crate::error::Result;
use crate::id::{NodeId, VolumeId};

/// Other processes, on other nodes, use the pool too. So nothing that was read of it may be
/// remembered, and a volume is used on a node only while it is published to it.
pub trait Shared: Send + Sync {
    /// Can this node, beside the one that asks, reach the pool?
    fn knows_node(&self, node: &NodeId) -> Result<bool>;

    /// The node that an inline volume belongs to, if that is another than the one that asks.
    fn inline_elsewhere(&self, id: &VolumeId) -> Result<Option<NodeId>>;

    /// Once this returns, the node writes no more to the volume, even if it is up and cannot be
    /// reached. The caller has made sure that it does not attach the volume again.
    fn ensure_fenced(&self, id: &VolumeId, node: &NodeId) -> Result<()>;

    /// Is there no reason to believe that what is written to a volume would wait without end?
    fn check_takes_writes(&self) -> Result<()>;

    /// Why the device of an attached volume no longer reaches it, if it does not.
    fn device_trouble(&self, id: &VolumeId) -> Result<Option<String>>;
}
