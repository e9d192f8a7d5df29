//! The nodes that reach the pool. Each registers itself when it starts, and again when it is no
//! longer registered, so that a controller can tell a node it has not met from one that is not there
//! (CP-13).

use std::sync::Arc;

use orlop_model::{NodeId, PoolInfo, Result};
use orlop_sys::ceph::Update;

use super::layout::NODES;
use super::session::Session;

#[derive(Debug)]
pub(super) struct Nodes {
    session: Arc<Session>,
    info: Arc<PoolInfo>,
    /// This one.
    own: NodeId,
}

impl Nodes {
    pub(super) fn new(session: &Arc<Session>, info: &Arc<PoolInfo>, own: NodeId) -> Self {
        Self { session: Arc::clone(session), info: Arc::clone(info), own }
    }

    pub(super) fn ensure_registered(&self) -> Result<()> {
        let node = &self.own;
        let update = Update::default().set(node.as_str(), b"known");
        self.session.ask(
            || format!("register node {node}"),
            |io| {
                io.ensure_object(NODES)?;
                io.update(NODES, &update).map(drop)
            },
        )
    }

    /// The object may be lost: then no controller would publish anything to this node.
    pub(super) fn keep_registered(&self) {
        let node = &self.own;
        let looking = || format!("find node {node}");
        let known = self.session.ask_unguarded(looking, |io| io.omap_get(NODES, node.as_str()));
        let kept = match known {
            Ok(Some(_)) => return,
            Ok(None) => {
                tracing::warn!(
                    %node,
                    pool = self.info.name,
                    "this node was missing from the pool's list of nodes; added it again"
                );
                self.ensure_registered()
            }
            Err(error) => Err(error),
        };
        if let Err(error) = kept {
            tracing::warn!(
                %error,
                %node,
                pool = self.info.name,
                "cannot register this node in the pool; controllers refuse to publish to it \
                 until a retry succeeds"
            );
        }
    }

    pub(super) fn knows(&self, node: &NodeId) -> Result<bool> {
        let looking = || format!("find node {node}");
        Ok(self.session.ask(looking, |io| io.omap_get(NODES, node.as_str()))?.is_some())
    }
}
