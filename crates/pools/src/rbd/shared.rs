//! What controllers and nodes need of a pool that several of them use.

use std::sync::Arc;

use orlop_model::{Error, NodeId, PoolInfo, Result, Shared, VolumeId};

use super::capacity::RbdCapacity;
use super::exports::Exports;
use super::fencing::Fencing;
use super::images::{Images, KnownImage};
use super::nodes::Nodes;

#[derive(Debug)]
pub(super) struct SharedSide {
    info: Arc<PoolInfo>,
    images: Arc<Images>,
    capacity: Arc<RbdCapacity>,
    nodes: Arc<Nodes>,
    fencing: Arc<Fencing>,
    exports: Arc<Exports>,
}

impl SharedSide {
    pub(super) fn new(
        info: &Arc<PoolInfo>,
        images: &Arc<Images>,
        capacity: &Arc<RbdCapacity>,
        nodes: &Arc<Nodes>,
        fencing: &Arc<Fencing>,
        exports: &Arc<Exports>,
    ) -> Self {
        Self {
            info: Arc::clone(info),
            images: Arc::clone(images),
            capacity: Arc::clone(capacity),
            nodes: Arc::clone(nodes),
            fencing: Arc::clone(fencing),
            exports: Arc::clone(exports),
        }
    }
}

impl Shared for SharedSide {
    fn knows_node(&self, node: &NodeId) -> Result<bool> {
        self.nodes.knows(node)
    }

    fn inline_elsewhere(&self, id: &VolumeId) -> Result<Option<NodeId>> {
        let Some(KnownImage { image_id, .. }) = self.images.known(id)? else { return Ok(None) };
        let Some(owner) = self.fencing.inline_owner(id, &image_id)? else { return Ok(None) };
        let owner: NodeId = String::from_utf8_lossy(&owner).parse()?;
        Ok((owner != *self.fencing.node()).then_some(owner))
    }

    fn writers(&self, id: &VolumeId) -> Result<Vec<NodeId>> {
        self.fencing.writers(id)
    }

    fn ensure_fenced(&self, id: &VolumeId, node: &NodeId) -> Result<()> {
        self.fencing.ensure_fenced(id, node)
    }

    /// The cluster keeps what is written to a full pool waiting until there is space.
    fn check_takes_writes(&self) -> Result<()> {
        if self.capacity.available()? > 0 {
            return Ok(());
        }
        Err(Error::exhausted(format!(
            "cannot use pool {}: it is full, and what is written to it waits; free some of its space, raise its \
             quota or give the cluster more",
            self.info.name
        )))
    }

    fn device_problem(&self, id: &VolumeId) -> Result<Option<String>> {
        self.exports.problem(id)
    }
}
