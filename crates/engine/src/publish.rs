//! ControllerPublishVolume and ControllerUnpublishVolume: which nodes may use a volume.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_model::{
    AccessMode, ControllerPublication, Error, NodeId, Result, VolumeId, VolumeRecord,
};

use crate::engine::{Engine, PoolRef, check_context};
use crate::request::{ControllerPublish, PublishContext};

/// Which volumes each node has, so that a full node is noticed without reading all records.
/// Rebuilt from the pools at start.
#[derive(Debug, Default)]
pub(crate) struct NodeLoad(Mutex<HashMap<NodeId, HashSet<VolumeId>>>);

impl NodeLoad {
    pub(crate) fn of<'a>(pools: impl Iterator<Item = &'a PoolRef>) -> Self {
        let load = Self::default();
        for (id, record) in pools.flat_map(|pool| pool.volumes(None, 0)) {
            for node in record.iter().flat_map(|record| record.published.keys()) {
                load.add(node, &id);
            }
        }
        load
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<NodeId, HashSet<VolumeId>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, node: &NodeId, volume: &VolumeId) {
        self.entries().entry(node.clone()).or_default().insert(volume.clone());
    }

    /// Counts the volume in, unless that would be one too many (CP-17).
    fn try_add(&self, node: &NodeId, volume: &VolumeId, most: u32) -> Result<()> {
        let mut entries = self.entries();
        let volumes = entries.entry(node.clone()).or_default();
        let full = u32::try_from(volumes.len()).is_ok_and(|count| most != 0 && count >= most);
        if full && !volumes.contains(volume) {
            return Err(Error::Exhausted(format!("node {node} has {most} volumes, its limit")));
        }
        volumes.insert(volume.clone());
        Ok(())
    }

    fn remove(&self, node: &NodeId, volume: &VolumeId) {
        if let Some(volumes) = self.entries().get_mut(node) {
            volumes.remove(volume);
        }
    }
}

impl Engine {
    pub fn controller_publish(&self, request: &ControllerPublish) -> Result<PublishContext> {
        let _lock = self.lock_volume(request.volume.digest())?;
        let (pool, record) = self.require_volume(&request.volume)?;
        self.check_node(pool, &request.node)?;
        check_context(pool, &record, &request.context)?;
        record.capabilities.check_grants(&request.capability).map_err(Error::Precondition)?;
        let answer = PublishContext { read_only: request.read_only };
        if let Some(existing) = record.published.get(&request.node) {
            return check_same_publication(request, existing).map(|()| answer);
        }
        check_other_nodes(&record, request)?;
        self.load.try_add(&request.node, &record.id, self.settings.max_volumes)?;
        let publication = ControllerPublication {
            read_only: request.read_only,
            capability: request.capability.clone(),
        };
        let written = pool.update_volume(&record.id, &mut |record| {
            record.published.insert(request.node.clone(), publication.clone());
        });
        if written.is_err() {
            self.load.remove(&request.node, &record.id);
        }
        written.map(|_| answer)
    }

    /// Without a node: from all of them (CU-04). A volume that is gone is not published (CU-06).
    pub fn controller_unpublish(&self, volume: &VolumeId, node: Option<&NodeId>) -> Result<()> {
        let _lock = self.lock_volume(volume.digest())?;
        let Some(pool) = self.pool_of(volume) else {
            return Ok(());
        };
        let Some(record) = pool.volume(volume)? else {
            return Ok(());
        };
        let leaves = |other: &NodeId| node.is_none_or(|node| node == other);
        let leaving: Vec<_> = record.published.into_keys().filter(leaves).collect();
        if leaving.is_empty() {
            return Ok(());
        }
        pool.update_volume(volume, &mut |record| {
            record.published.retain(|other, _| !leaves(other));
        })?;
        for node in &leaving {
            self.load.remove(node, volume);
        }
        Ok(())
    }

    /// CP-13. A pool that is bound to a place is that of this node; one without is everyone's.
    fn check_node(&self, pool: &PoolRef, node: &NodeId) -> Result<()> {
        if pool.place().is_empty() || *node == self.settings.node_id {
            return Ok(());
        }
        Err(Error::NoSuchNode(node.to_string()))
    }
}

/// CP-04, CP-14.
fn check_same_publication(
    request: &ControllerPublish,
    existing: &ControllerPublication,
) -> Result<()> {
    let what = format!("the publication of volume {} to node {}", request.volume, request.node);
    if existing.read_only != request.read_only {
        return Err(Error::conflict(what, "readonly is not the same"));
    }
    if !existing.capability.same_use(&request.capability) {
        return Err(Error::conflict(what, "volume_capability is not the same"));
    }
    Ok(())
}

/// A mode for readers is read-only whatever `readonly` says (NP-35).
fn writes(mode: AccessMode, read_only: bool) -> bool {
    !read_only && !mode.is_read_only()
}

/// AM-09 to AM-13, CP-15, CP-16.
fn check_other_nodes(record: &VolumeRecord, request: &ControllerPublish) -> Result<()> {
    let refuse = |node: &NodeId, why: &str| {
        Err(Error::precondition(format!("volume {} is published to node {node}, {why}", record.id)))
    };
    let mode = request.capability.mode;
    for (node, other) in &record.published {
        if !mode.is_multi_node() || !other.capability.mode.is_multi_node() {
            return refuse(node, "and its access mode allows one node only");
        }
        let single_writer =
            [mode, other.capability.mode].contains(&AccessMode::MultiNodeSingleWriter);
        let both_write =
            writes(other.capability.mode, other.read_only) && writes(mode, request.read_only);
        if single_writer && both_write {
            return refuse(node, "which writes, and its access mode allows one writer only");
        }
    }
    Ok(())
}
