//! Where a pool that several nodes share differs from one that this node has for itself.

use orlop_model::{
    ControllerPublication, Error, FsType, NodeId, NodeRecord, Result, Shared, Stage, VolumeGroupId,
    VolumeId, VolumeRecord,
};

use crate::engine::{Engine, PoolRef};

impl Engine {
    /// Only this node changes a local pool, so much can be remembered of it, and what an interrupted
    /// call left behind is known to be of no further use.
    pub(crate) fn take_over_local(&self, pool: &PoolRef) -> Result<()> {
        if pool.shared().is_some() {
            return Ok(());
        }
        self.node_volumes().add_all_of(pool)?;
        self.membership().add_all_of(pool)?;
        self.discard_unpublished_inline(pool)
    }

    /// Publishes a volume to a node, unless that has its limit already (CP-17). What several
    /// controllers count is an estimate, and stays as it is if publishing fails.
    pub(crate) fn count_in(
        &self,
        pool: &PoolRef,
        node: &NodeId,
        volume: &VolumeId,
        publish: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let max = self.settings().max_volumes;
        if pool.shared().is_some() {
            self.shared_node_volumes().try_add(node, max, self.pools().values())?;
            return publish();
        }
        self.node_volumes().try_add(node, volume, max)?;
        publish().inspect_err(|_| self.node_volumes().remove(node, volume))
    }

    /// The entry of a node that may still write stays until it cannot: it keeps others out. Marked
    /// first, or the node could attach the volume between the look for its clients and the end.
    pub(crate) fn ensure_left(
        &self,
        pool: &PoolRef,
        volume: &VolumeId,
        nodes: &[NodeId],
    ) -> Result<()> {
        if let Some(shared) = pool.shared() {
            pool.catalogue().update_volume(volume, &mut |record| {
                let leaving = record.published.iter_mut().filter(|(node, _)| nodes.contains(node));
                leaving.for_each(|(_, publication)| publication.leaving = true);
                Ok(())
            })?;
            nodes.iter().try_for_each(|node| shared.ensure_fenced(volume, node))?;
        }
        let others_publish = pool.shared().is_some();
        pool.catalogue().update_volume(volume, &mut |record| {
            // Published again by another controller: that entry is not this call's.
            record.published.retain(|node, publication| {
                !nodes.contains(node) || (others_publish && !publication.leaving)
            });
            Ok(())
        })?;
        Ok(())
    }

    /// CP-13. A pool that is bound to a topology is that of this node; in one that others share, they
    /// have made themselves known.
    pub(crate) fn check_node(&self, pool: &PoolRef, node: &NodeId) -> Result<()> {
        let is_known = *node == self.settings().node_id
            || match pool.shared() {
                Some(shared) => shared.knows_node(node)?,
                None => pool.topology().is_empty(),
            };
        if is_known { Ok(()) } else { Err(Error::NoSuchNode(node.to_string())) }
    }

    /// Nothing is cached for a shared pool: other nodes change it.
    pub(crate) fn group_of(&self, volume: &VolumeId) -> Result<Option<VolumeGroupId>> {
        match self.pool_of(volume)?.filter(|pool| pool.shared().is_some()) {
            Some(pool) => {
                let mut groups = pool.catalogue().volume_groups(None, 0)?.into_iter();
                Ok(groups.find(|group| group.members.contains(volume)).map(|group| group.id))
            }
            None => Ok(self.membership().group_of(volume)),
        }
    }

    /// May a workload on another node write to it?
    pub(crate) fn is_written_elsewhere(&self, pool: &PoolRef, volume: &VolumeRecord) -> bool {
        let here = &self.settings().node_id;
        let mut others = volume.published.iter().filter(|(node, _)| *node != here);
        pool.shared().is_some() && others.any(|(_, other)| other.writes())
    }

    /// May this node write to it through another daemon? A controller of the node's name does not
    /// see what the node has.
    pub(crate) fn is_written_by_twin(
        &self,
        pool: &PoolRef,
        volume: &VolumeRecord,
        node: &NodeRecord,
    ) -> bool {
        let own = volume.published.get(&self.settings().node_id);
        pool.shared().is_some() && node.is_empty() && own.is_some_and(ControllerPublication::writes)
    }
}

/// What is asked of a pool that nodes share before a volume of it is used here.
pub(crate) struct SharedPool<'a> {
    engine: &'a Engine,
    side: &'a dyn Shared,
}

impl<'a> SharedPool<'a> {
    pub(crate) fn new(engine: &'a Engine, side: &'a dyn Shared) -> Self {
        Self { engine, side }
    }

    /// Before a volume is staged here. A shared pool cannot tell from the outside who uses a volume; being
    /// published to a node is what gives it the right, and what others are kept away by.
    pub(crate) fn check_published_here(&self, record: &VolumeRecord, wanted: &Stage) -> Result<()> {
        if record.ephemeral {
            return Ok(());
        }
        let (volume, node) = (record.label(), &self.engine.settings().node_id);
        match record.published.get(node) {
            None => Err(Error::precondition(format!(
                "cannot stage {volume}: it is not published to node {node}; call \
                 ControllerPublishVolume first"
            ))),
            Some(publication) if publication.leaving => Err(Error::precondition(format!(
                "cannot stage {volume}: it is being unpublished from node {node}; publish it \
                 again first"
            ))),
            Some(publication) => check_as_published(publication, wanted).map_err(|what| {
                Error::precondition(format!(
                    "cannot stage {volume}: it is published to node {node} {what}"
                ))
            }),
        }
    }

    /// Several controllers cannot count exactly what a node has (CP-17), so it does itself.
    pub(crate) fn check_room_for(&self, id: &VolumeId) -> Result<()> {
        let max = self.engine.settings().max_volumes;
        if max == 0 {
            return Ok(());
        }
        let others = self.engine.host().node_records()?.iter().filter(|other| *other != id).count();
        if u32::try_from(others).is_ok_and(|count| count < max) {
            return Ok(());
        }
        Err(Error::exhausted(format!(
            "cannot stage another volume on node {}: it has {max} volumes, which is its limit; \
             unstage one, or raise ORLOP_MAX_VOLUMES_PER_NODE",
            self.engine.settings().node_id
        )))
    }

    pub(crate) fn check_reachable(&self, id: &VolumeId) -> Result<()> {
        match self.side.device_trouble(id)? {
            None => Ok(()),
            Some(trouble) => Err(Error::precondition(format!(
                "cannot use volume {id}: {trouble}; unpublish and unstage it here, then stage it again"
            ))),
        }
    }
}

/// Other nodes were let in, or kept out, for what this one was to do with the volume. The text says
/// what that was.
fn check_as_published(
    publication: &ControllerPublication,
    wanted: &Stage,
) -> std::result::Result<(), &'static str> {
    let (granted, asked) = (&publication.capability, &wanted.capability);
    match (granted.is_block(), asked.is_block()) {
        (true, false) => return Err("as a raw block device, not as a filesystem mount"),
        (false, true) => return Err("as a filesystem mount, not as a raw block device"),
        (true, true) | (false, false) => {}
    }
    if !wanted.read_only && !publication.writes() {
        return Err("for reading only");
    }
    // A node that is alone replays the journal when it mounts, even to read.
    if !asked.is_block() && granted.mode.is_multi_node() && !asked.mode.is_multi_node() {
        return Err("as one of several, not for an access mode of a single node");
    }
    Ok(())
}

/// A filesystem that two nodes mount at once, one of them to write, is destroyed by it. Where a
/// volume stays on one node that cannot happen.
pub(crate) fn may_be_mounted_by_many_writers(pool: &PoolRef) -> bool {
    pool.shared().is_none()
}

/// A node to which the volume is published may use it at any time.
pub(crate) fn check_unpublished_anywhere(pool: &PoolRef, record: &VolumeRecord) -> Result<()> {
    match record.published.keys().next() {
        Some(node) if pool.shared().is_some() => Err(Error::precondition(format!(
            "cannot reclaim space of {}: it is published to node {node}; reclaim its space there",
            record.label()
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Do other nodes read the volume at the same time as this stage, which only reads?
pub(crate) fn is_read_with_others(pool: &PoolRef, stage: &Stage) -> bool {
    pool.shared().is_some() && stage.capability.mode.is_multi_node()
}

/// Unmounting a filesystem and detaching a device write to the pool. A thread that waits in the kernel for an
/// absent pool cannot be interrupted, so neither is begun.
pub(crate) fn check_answers(pool: &PoolRef, id: &VolumeId) -> Result<()> {
    if pool.shared().is_none() {
        return Ok(());
    }
    match pool.catalogue().volume(id) {
        Err(error @ Error::Unreachable { .. }) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// ext4 writes when it is unmounted, also if nothing was changed; others may have nothing to write.
pub(crate) fn check_can_be_unmounted(
    pool: &PoolRef,
    id: &VolumeId,
    stage: Option<&Stage>,
) -> Result<()> {
    let Some(shared) = pool.shared() else { return Ok(()) };
    let writes = stage.is_some_and(|stage| !stage.read_only)
        && pool.catalogue().volume(id).is_ok_and(|record| {
            record.is_some_and(|record| record.format.fs() == Some(FsType::Ext4))
        });
    if !writes {
        return Ok(());
    }
    match shared.check_takes_writes() {
        Err(why @ (Error::Exhausted(_) | Error::Unreachable { .. })) => Err(why),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Why the device of an attached volume does not reach it, if it does not.
pub(crate) fn device_trouble(pool: &PoolRef, id: &VolumeId) -> Result<Option<String>> {
    pool.shared().map_or(Ok(None), |shared| shared.device_trouble(id))
}

/// The node that an inline volume belongs to, if that is another one.
pub(crate) fn inline_elsewhere(pool: &PoolRef, id: &VolumeId) -> Result<Option<NodeId>> {
    pool.shared().map_or(Ok(None), |shared| shared.inline_elsewhere(id))
}
