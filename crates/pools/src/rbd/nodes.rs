//! The nodes that reach the pool. Each makes itself known when it starts, so that a controller can
//! tell a node it has not met from one that is not there (CP-13).

use orlop_model::{NodeId, Result};
use orlop_sys::ceph::Update;

use super::layout::NODES;
use super::store::Store;

impl Store {
    pub(super) fn ensure_node_known(&self, node: &NodeId) -> Result<()> {
        let update = Update::default().set(node.as_str(), b"known");
        self.ask(
            || format!("make node {node} known"),
            |io| {
                io.ensure_object(NODES)?;
                io.update(NODES, &update).map(drop)
            },
        )
    }

    pub(super) fn knows_node(&self, node: &NodeId) -> Result<bool> {
        let found =
            self.ask(|| format!("look for node {node}"), |io| io.omap_get(NODES, node.as_str()))?;
        Ok(found.is_some())
    }
}
