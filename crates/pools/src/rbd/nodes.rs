//! The nodes that reach the pool. Each makes itself known when it starts, and again when it is no
//! longer known, so that a controller can tell a node it has not met from one that is not there
//! (CP-13).

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

    /// The object may be lost: then no controller would publish anything to this node.
    pub(super) fn keep_node_known(&self) {
        let node = &self.attachments.node;
        let looking = || format!("look for node {node}");
        let known = self.connection.ask_anyway(looking, |io| io.omap_get(NODES, node.as_str()));
        let kept = match known {
            Ok(Some(_)) => return,
            Ok(None) => {
                tracing::warn!(
                    %node,
                    pool = self.info.name,
                    "this node was missing from the pool's list of nodes; added it again"
                );
                self.ensure_node_known(node)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = kept {
            tracing::warn!(
                %error,
                "cannot register this node in the pool; controllers refuse to publish to it \
                 until a retry succeeds"
            );
        }
    }

    pub(super) fn knows_node(&self, node: &NodeId) -> Result<bool> {
        let found =
            self.ask(|| format!("look for node {node}"), |io| io.omap_get(NODES, node.as_str()))?;
        Ok(found.is_some())
    }
}
