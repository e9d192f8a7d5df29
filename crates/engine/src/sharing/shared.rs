//! A pool that several nodes change: nothing of it is remembered, and others are asked or kept away first.

use orlop_model::{
    ControllerPublication, Error, FsType, NodeId, NodeRecord, ReaderState, Result, Shared, Stage,
    VolumeGroupId, VolumeId, VolumeRecord,
};

use crate::engine::{Engine, PoolRef};
use crate::request::ControllerPublish;
use crate::sharing::Sharing;

pub(super) struct SharedPool<'a> {
    pool: &'a PoolRef,
    side: &'a dyn Shared,
}

impl<'a> SharedPool<'a> {
    pub(super) fn new(pool: &'a PoolRef, side: &'a dyn Shared) -> Self {
        Self { pool, side }
    }
}

impl Sharing for SharedPool<'_> {
    /// What looks left behind may be what another node does now.
    fn take_over(&self, _: &Engine) -> Result<()> {
        Ok(())
    }

    /// A filesystem that two nodes mount at once, one of them to write, is destroyed by it.
    fn allows_many_mounted_writers(&self) -> bool {
        false
    }

    /// Nodes make themselves known in the pool.
    fn knows_node(&self, engine: &Engine, node: &NodeId) -> Result<bool> {
        Ok(*node == engine.settings().node_id || self.side.knows_node(node)?)
    }

    /// A node that has a filesystem mounted does not notice what others write beneath it.
    fn conflict(
        &self,
        other: &ControllerPublication,
        request: &ControllerPublish,
    ) -> Option<&'static str> {
        if !other.capability.is_block() && request.writes() {
            return Some("which mounts its filesystem, and no other node may write then");
        }
        if !request.capability.is_block() && other.writes() {
            return Some("which writes to it, and it cannot be mounted beside that");
        }
        None
    }

    /// What several controllers count is an estimate, and stays as it is if publishing fails.
    fn publish_counted(
        &self,
        engine: &Engine,
        node: &NodeId,
        _: &VolumeId,
        publish: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let max = engine.settings().max_volumes;
        engine.shared_node_volumes().try_add(node, max, engine.pools().values())?;
        publish()
    }

    /// The entry of a node that may still write stays until it cannot: it keeps others out. Marked
    /// first, or the node could attach the volume between the look for its clients and the end.
    fn ensure_unpublished(&self, volume: &VolumeId, nodes: &[NodeId]) -> Result<()> {
        self.pool.catalogue().update_volume(volume, &mut |record| {
            let leaving = record.published.iter_mut().filter(|(node, _)| nodes.contains(node));
            leaving.for_each(|(_, publication)| publication.leaving = true);
            Ok(())
        })?;
        nodes.iter().try_for_each(|node| self.side.ensure_fenced(volume, node))?;
        self.pool.catalogue().update_volume(volume, &mut |record| {
            // Published again by another controller: that entry is not this call's.
            record
                .published
                .retain(|node, publication| !nodes.contains(node) || !publication.leaving);
            Ok(())
        })?;
        Ok(())
    }

    fn group_of(&self, _: &Engine, volume: &VolumeId) -> Result<Option<VolumeGroupId>> {
        let mut groups = self.pool.catalogue().volume_groups(None, 0)?.into_iter();
        Ok(groups.find(|group| group.members.contains(volume)).map(|group| group.id))
    }

    /// A node to which the volume is published may use it at any time.
    fn check_unpublished(&self, record: &VolumeRecord) -> Result<()> {
        let unrecorded = self.unrecorded_writers(&record.id)?;
        match record.published.keys().chain(&unrecorded).next() {
            Some(node) => Err(Error::precondition(format!(
                "cannot reclaim space of {}: it is published to node {node}; reclaim its space \
                 there",
                record.label()
            ))),
            None => Ok(()),
        }
    }

    fn is_written_elsewhere(&self, engine: &Engine, volume: &VolumeRecord) -> Result<bool> {
        let here = &engine.settings().node_id;
        let mut others = volume.published.iter().filter(|(node, _)| *node != here);
        Ok(others.any(|(_, other)| other.writes())
            || self.unrecorded_writers(&volume.id)?.iter().any(|node| node != here))
    }

    /// An inline volume is published to no node.
    fn unrecorded_writers(&self, volume: &VolumeId) -> Result<Vec<NodeId>> {
        let mut writers = self.side.writers(volume)?;
        if writers.is_empty() {
            return Ok(writers);
        }
        // Read after that: a node is published to before it may write.
        match self.pool.catalogue().volume(volume)? {
            Some(record) if !record.ephemeral => {
                writers.retain(|node| !record.published.contains_key(node));
                Ok(writers)
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// A controller of the node's name does not see what the node has.
    fn is_written_by_twin(
        &self,
        engine: &Engine,
        volume: &VolumeRecord,
        node: &NodeRecord,
    ) -> bool {
        let own = volume.published.get(&engine.settings().node_id);
        node.is_empty() && own.is_some_and(ControllerPublication::writes)
    }

    fn check_stage(&self, engine: &Engine, record: &VolumeRecord, wanted: &Stage) -> Result<()> {
        self.check_published_here(engine, record, wanted)?;
        check_room_for(engine, &record.id)
    }

    fn check_staged(&self, engine: &Engine, record: &VolumeRecord, wanted: &Stage) -> Result<()> {
        self.check_published_here(engine, record, wanted)?;
        self.check_reachable(&record.id)
    }

    /// The pool cannot tell from the outside who uses a volume; being published to a node is what gives it
    /// the right, and what others are kept away by.
    fn check_published_here(
        &self,
        engine: &Engine,
        record: &VolumeRecord,
        wanted: &Stage,
    ) -> Result<()> {
        if record.ephemeral {
            return Ok(());
        }
        let (volume, node) = (record.label(), &engine.settings().node_id);
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

    fn is_used_by_this_node(&self, engine: &Engine, record: &VolumeRecord) -> bool {
        let own = record.published.get(&engine.settings().node_id);
        record.ephemeral || own.is_some_and(|own| !own.leaving)
    }

    fn check_reachable(&self, id: &VolumeId) -> Result<()> {
        match self.side.device_problem(id)? {
            None => Ok(()),
            Some(problem) => Err(Error::precondition(format!(
                "cannot use volume {id}: {problem}; unpublish and unstage it here, then stage it again"
            ))),
        }
    }

    fn is_read_with_others(&self, stage: &Stage) -> bool {
        stage.capability.mode.is_multi_node()
    }

    fn leave_readers(&self, engine: &Engine, id: &VolumeId) -> Result<()> {
        let left = self.pool.catalogue().update_volume(id, &mut |record| {
            if let Some(own) = record.published.get_mut(&engine.settings().node_id) {
                own.reader = ReaderState::Away;
            }
            Ok(())
        });
        match left {
            // Then no process is left to notify.
            Err(Error::NoSuchVolume(_) | Error::Damaged { .. }) => Ok(()),
            left => left.map(drop),
        }
    }

    /// A thread that waits in the kernel for an absent pool cannot be interrupted, so nothing that would wait
    /// is begun.
    fn check_answers(&self, id: &VolumeId) -> Result<()> {
        match self.pool.catalogue().volume(id) {
            Err(error @ Error::Unreachable { .. }) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// ext4 writes when it is unmounted, also if nothing was changed; others may have nothing to write.
    fn check_can_be_unmounted(&self, id: &VolumeId, stage: Option<&Stage>) -> Result<()> {
        let writes = stage.is_some_and(|stage| !stage.read_only)
            && self.pool.catalogue().volume(id).is_ok_and(|record| {
                record.is_some_and(|record| record.format.fs() == Some(FsType::Ext4))
            });
        if !writes {
            return Ok(());
        }
        match self.side.check_takes_writes() {
            Err(why @ (Error::Exhausted(_) | Error::Unreachable { .. })) => Err(why),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn device_problem(&self, id: &VolumeId) -> Result<Option<String>> {
        self.side.device_problem(id)
    }

    fn inline_elsewhere(&self, id: &VolumeId) -> Result<Option<NodeId>> {
        self.side.inline_elsewhere(id)
    }
}

/// Several controllers cannot count exactly what a node has (CP-17), so it does itself.
fn check_room_for(engine: &Engine, id: &VolumeId) -> Result<()> {
    let max = engine.settings().max_volumes;
    if max == 0 {
        return Ok(());
    }
    let others = engine.host().node_records()?.iter().filter(|other| *other != id).count();
    if u32::try_from(others).is_ok_and(|count| count < max) {
        return Ok(());
    }
    Err(Error::exhausted(format!(
        "cannot stage another volume on node {}: it has {max} volumes, which is its limit; \
         unstage one, or raise ORLOP_MAX_VOLUMES_PER_NODE",
        engine.settings().node_id
    )))
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
