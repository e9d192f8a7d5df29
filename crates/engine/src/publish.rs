//! ControllerPublishVolume and ControllerUnpublishVolume: which nodes may use a volume.

use orlop_model::{
    AccessMode, ControllerPublication, Error, NodeId, ReaderState, Result, VolumeId, VolumeRecord,
};

use crate::difference::{capability_differs, readonly_differs};
use crate::engine::{Engine, PoolRef, note_volume_name};
use crate::request::{ControllerPublish, PublishContext, check_context};

impl Engine {
    pub fn controller_publish(&self, request: &ControllerPublish) -> Result<PublishContext> {
        let _lock = self.locks().volume(request.volume.digest())?;
        let (pool, record) = self.require_subject(&request.volume)?;
        let existing = record.published.get(&request.node);
        // What holds is answered, also while the pool does not know the node.
        if existing.is_none_or(|existing| existing.leaving) {
            self.check_node(pool, &request.node)?;
        }
        check_context(pool, &record, &request.context)?;
        record.capabilities.check_grants(&request.capability).map_err(Error::precondition)?;
        let answer = PublishContext { read_only: request.read_only };
        match existing {
            // A controller was killed while it took the volume from this node.
            Some(existing) if existing.leaving => {
                self.ensure_left(pool, &record.id, std::slice::from_ref(&request.node))?;
            }
            Some(existing) => return check_same_publication(request, existing).map(|()| answer),
            None => {}
        }
        check_other_nodes(&record, request, pool.shared().is_some())?;
        let published = self.count_in(pool, &request.node, &record.id, || publish(pool, request));
        published.map(|()| answer)
    }

    /// Without a node: from all of them (CU-04). A volume that is gone is not published (CU-06).
    pub fn controller_unpublish(&self, volume: &VolumeId, node: Option<&NodeId>) -> Result<()> {
        let _lock = self.locks().volume(volume.digest())?;
        let Some(pool) = self.pool_of(volume)? else {
            if node.is_some_and(|node| *node != self.settings().node_id) {
                return Ok(());
            }
            return self.check_unused_without_pool(volume);
        };
        let Some(record) = pool.catalogue().volume(volume)? else {
            return Ok(());
        };
        note_volume_name(&record);
        let leaves = |other: &NodeId| node.is_none_or(|node| node == other);
        let leaving: Vec<_> = record.published.into_keys().filter(leaves).collect();
        if leaving.is_empty() {
            return Ok(());
        }
        self.ensure_left(pool, volume, &leaving)?;
        for node in &leaving {
            self.node_volumes().remove(node, volume);
        }
        Ok(())
    }

    /// Could this node have the volume? A volume that is gone is not asked about.
    pub fn check_node_of(&self, volume: &VolumeId, node: &NodeId) -> Result<()> {
        self.pool_of(volume)?.map_or(Ok(()), |pool| self.check_node(pool, node))
    }
}

/// Where several controllers work, another one may have published the volume since it was looked
/// at; so the look is repeated in the change, which is written only if nothing came in between.
fn publish(pool: &PoolRef, request: &ControllerPublish) -> Result<()> {
    let is_shared = pool.shared().is_some();
    pool.catalogue().update_volume(&request.volume, &mut |record| {
        if let Some(existing) = record.published.get(&request.node) {
            return check_same_publication(request, existing);
        }
        check_other_nodes(record, request, is_shared)?;
        let publication = ControllerPublication {
            read_only: request.read_only,
            capability: request.capability.clone(),
            leaving: false,
            reader: ReaderState::default(),
        };
        record.published.insert(request.node.clone(), publication);
        Ok(())
    })?;
    Ok(())
}

/// CP-04, CP-14.
fn check_same_publication(
    request: &ControllerPublish,
    existing: &ControllerPublication,
) -> Result<()> {
    if existing.leaving {
        return Err(Error::busy(
            format!("volume {}", request.volume),
            format!("it is being unpublished from node {}", request.node),
        ));
    }
    let what = format!("the publication of volume {} to node {}", request.volume, request.node);
    if existing.read_only != request.read_only {
        return Err(Error::conflict(what, readonly_differs(existing.read_only)));
    }
    if !existing.capability.same_use(&request.capability) {
        let reason = capability_differs(&existing.capability, &request.capability);
        return Err(Error::conflict(what, reason));
    }
    Ok(())
}

/// AM-09 to AM-13, CP-15, CP-16.
fn check_other_nodes(
    record: &VolumeRecord,
    request: &ControllerPublish,
    is_shared: bool,
) -> Result<()> {
    let refuse = |node: &NodeId, why: &str| {
        Err(Error::precondition(format!(
            "cannot publish {} to node {}: it is published to node {node}, {why}; unpublish it \
             there first",
            record.label(),
            request.node
        )))
    };
    let mode = request.capability.mode;
    for (node, other) in record.published.iter().filter(|(node, _)| **node != request.node) {
        if !mode.is_multi_node() || !other.capability.mode.is_multi_node() {
            return refuse(node, "and its access mode allows one node only");
        }
        let single_writer =
            [mode, other.capability.mode].contains(&AccessMode::MultiNodeSingleWriter);
        let writes = !request.read_only && !mode.is_read_only();
        if single_writer && other.writes() && writes {
            return refuse(node, "which writes, and its access mode allows one writer only");
        }
        // A node that has a filesystem mounted does not notice what others write beneath it.
        if is_shared && !other.capability.is_block() && writes {
            return refuse(node, "which mounts its filesystem, and no other node may write then");
        }
        if is_shared && !request.capability.is_block() && other.writes() {
            return refuse(node, "which writes to it, and it cannot be mounted beside that");
        }
    }
    Ok(())
}
