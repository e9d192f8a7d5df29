//! ControllerPublishVolume and ControllerUnpublishVolume: which nodes may use a volume.

use std::collections::BTreeSet;

use orlop_model::{
    AccessMode, ControllerPublication, Error, NodeId, ReaderState, Result, VolumeId, VolumeRecord,
};

use crate::difference::{capability_differs, readonly_differs};
use crate::engine::{Engine, PoolRef, note_volume_name};
use crate::request::{ControllerPublish, PublishContext, check_context};
use crate::sharing::{Sharing, sharing};

impl Engine {
    pub fn controller_publish(&self, request: &ControllerPublish) -> Result<PublishContext> {
        let _lock = self.locks().volume(request.volume.digest())?;
        let (pool, record) = self.require_subject(&request.volume)?;
        let sharing = sharing(pool);
        let existing = record.published.get(&request.node);
        // What holds is answered, also while the pool does not know the node.
        if existing.is_none_or(|existing| existing.leaving) {
            self.check_node(pool, &request.node)?;
        }
        check_context(pool, &record, &request.context)?;
        record.capabilities.check_grants(&request.capability).map_err(Error::precondition)?;
        check_no_unrecorded_writer(&*sharing, request)?;
        let answer = PublishContext { read_only: request.read_only };
        match existing {
            // A controller was killed while it took the volume from this node.
            Some(existing) if existing.leaving => {
                sharing.ensure_unpublished(&record.id, std::slice::from_ref(&request.node))?;
            }
            Some(existing) => return check_same_publication(request, existing).map(|()| answer),
            None => {}
        }
        check_other_nodes(&*sharing, &record, request)?;
        let published = sharing.publish_counted(self, &request.node, &record.id, &|| {
            publish(pool, &*sharing, request)
        });
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
        let sharing = sharing(pool);
        let unrecorded = sharing.unrecorded_writers(volume)?;
        let leaves = |other: &NodeId| node.is_none_or(|node| node == other);
        let leaving = record.published.into_keys().chain(unrecorded).filter(leaves);
        let leaving: Vec<_> = leaving.collect::<BTreeSet<_>>().into_iter().collect();
        if leaving.is_empty() {
            return Ok(());
        }
        sharing.ensure_unpublished(volume, &leaving)?;
        for node in &leaving {
            self.node_volumes().remove(node, volume);
        }
        Ok(())
    }

    /// Could this node have the volume? A volume that is gone is not asked about.
    pub fn check_node_of(&self, volume: &VolumeId, node: &NodeId) -> Result<()> {
        self.pool_of(volume)?.map_or(Ok(()), |pool| self.check_node(pool, node))
    }

    fn check_node(&self, pool: &PoolRef, node: &NodeId) -> Result<()> {
        if sharing(pool).knows_node(self, node)? {
            return Ok(());
        }
        Err(Error::NoSuchNode(node.to_string()))
    }
}

/// Where several controllers work, another one may have published the volume since it was looked
/// at; so the look is repeated in the change, which is written only if nothing came in between.
fn publish(pool: &PoolRef, sharing: &dyn Sharing, request: &ControllerPublish) -> Result<()> {
    pool.catalogue().update_volume(&request.volume, &mut |record| {
        if let Some(existing) = record.published.get(&request.node) {
            return check_same_publication(request, existing);
        }
        check_other_nodes(sharing, record, request)?;
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

/// For a writer that no publication tells of, the access modes cannot be compared.
fn check_no_unrecorded_writer(sharing: &dyn Sharing, request: &ControllerPublish) -> Result<()> {
    let writers = sharing.unrecorded_writers(&request.volume)?;
    match writers.iter().find(|node| **node != request.node) {
        None => Ok(()),
        Some(node) => Err(Error::precondition(format!(
            "cannot publish volume {} to node {}: node {node} may still write to it, although its record does \
             not say that it is published there, as after an older record was restored; unpublish it from node \
             {node} first",
            request.volume, request.node
        ))),
    }
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
    sharing: &dyn Sharing,
    record: &VolumeRecord,
    request: &ControllerPublish,
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
        if single_writer && other.writes() && request.writes() {
            return refuse(node, "which writes, and its access mode allows one writer only");
        }
        if let Some(why) = sharing.conflict(other, request) {
            return refuse(node, why);
        }
    }
    Ok(())
}
