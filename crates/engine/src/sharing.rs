//! What depends on whether a pool is this node's alone, or shared by several nodes.

mod shared;

use orlop_model::{
    ControllerPublication, NodeId, NodeRecord, Result, Stage, VolumeGroupId, VolumeId, VolumeRecord,
};

use crate::engine::{Engine, PoolRef};
use crate::request::ControllerPublish;

use shared::SharedPool;

/// The rules for a pool, by its shared side or the lack of one.
pub(crate) fn sharing(pool: &PoolRef) -> Box<dyn Sharing + '_> {
    match pool.shared() {
        None => Box::new(LocalPool::new(pool)),
        Some(side) => Box::new(SharedPool::new(pool, side)),
    }
}

/// Questions of the controller come first, then those of the node.
pub(crate) trait Sharing {
    /// When the pool is taken into service: remembers what only this node changes, and discards what an
    /// interrupted call left behind.
    fn take_over(&self, engine: &Engine) -> Result<()>;

    /// May several nodes mount a filesystem of the pool while one of them writes to it?
    fn allows_many_mounted_writers(&self) -> bool;

    /// CP-13.
    fn knows_node(&self, engine: &Engine, node: &NodeId) -> Result<bool>;

    /// Why a volume that another node has as `other` cannot be published as `request` asks, beyond what
    /// the access modes say.
    fn conflict(
        &self,
        other: &ControllerPublication,
        request: &ControllerPublish,
    ) -> Option<&'static str>;

    /// Publishes a volume to a node, unless that has its limit already (CP-17).
    fn publish_counted(
        &self,
        engine: &Engine,
        node: &NodeId,
        volume: &VolumeId,
        publish: &dyn Fn() -> Result<()>,
    ) -> Result<()>;

    /// When this returns, the nodes cannot write to the volume any more, and it is not published to them.
    fn ensure_unpublished(&self, volume: &VolumeId, nodes: &[NodeId]) -> Result<()>;

    fn group_of(&self, engine: &Engine, volume: &VolumeId) -> Result<Option<VolumeGroupId>>;

    /// Before the pool gives space of the volume back, while no node may use it.
    fn check_unpublished(&self, record: &VolumeRecord) -> Result<()>;

    /// May a workload on another node write to the volume?
    fn is_written_elsewhere(&self, engine: &Engine, volume: &VolumeRecord) -> Result<bool>;

    /// Nodes that may write to the volume although its record does not say that it is published there: an older
    /// copy of the record was restored.
    fn unrecorded_writers(&self, volume: &VolumeId) -> Result<Vec<NodeId>>;

    /// May this node write to it through another daemon, of which only `node` would know?
    fn is_written_by_twin(&self, engine: &Engine, volume: &VolumeRecord, node: &NodeRecord)
    -> bool;

    /// Before a volume is staged here.
    fn check_stage(&self, engine: &Engine, record: &VolumeRecord, wanted: &Stage) -> Result<()>;

    /// Before a stage that exists is confirmed.
    fn check_staged(&self, engine: &Engine, record: &VolumeRecord, wanted: &Stage) -> Result<()>;

    /// Is the volume still published to this node as the stage needs it?
    fn check_published_here(
        &self,
        engine: &Engine,
        record: &VolumeRecord,
        wanted: &Stage,
    ) -> Result<()>;

    /// May this node write to the volume and its record? By `record` as it is now.
    fn is_used_by_this_node(&self, engine: &Engine, record: &VolumeRecord) -> bool;

    /// Does the device of a staged volume still reach it?
    fn check_reachable(&self, id: &VolumeId) -> Result<()>;

    /// Do other nodes read the volume at the same time as this stage, which only reads?
    fn is_read_with_others(&self, stage: &Stage) -> bool;

    /// Nothing of the volume is attached here any more: others need not wait for what this node had
    /// begun, nor leave out what no node has mounted.
    fn leave_readers(&self, engine: &Engine, id: &VolumeId) -> Result<()>;

    /// Before an unmount or a detachment, which write to the pool.
    fn check_answers(&self, id: &VolumeId) -> Result<()>;

    /// Before the filesystem of a stage is unmounted.
    fn check_can_be_unmounted(&self, id: &VolumeId, stage: Option<&Stage>) -> Result<()>;

    /// Why the device of an attached volume does not reach it, if it does not.
    fn device_problem(&self, id: &VolumeId) -> Result<Option<String>>;

    /// The node that an inline volume belongs to, if that is another one.
    fn inline_elsewhere(&self, id: &VolumeId) -> Result<Option<NodeId>>;
}

/// A pool that only this node changes: much can be remembered of it, and no other node has to be asked.
struct LocalPool<'a> {
    pool: &'a PoolRef,
}

impl<'a> LocalPool<'a> {
    fn new(pool: &'a PoolRef) -> Self {
        Self { pool }
    }
}

impl Sharing for LocalPool<'_> {
    fn take_over(&self, engine: &Engine) -> Result<()> {
        engine.node_volumes().add_all_of(self.pool)?;
        engine.membership().add_all_of(self.pool)?;
        engine.discard_unpublished_inline(self.pool)
    }

    /// A volume stays on one node, however many its access mode allows.
    fn allows_many_mounted_writers(&self) -> bool {
        true
    }

    /// A pool that is bound to a topology is that of this node.
    fn knows_node(&self, engine: &Engine, node: &NodeId) -> Result<bool> {
        Ok(*node == engine.settings().node_id || self.pool.topology().is_empty())
    }

    fn conflict(&self, _: &ControllerPublication, _: &ControllerPublish) -> Option<&'static str> {
        None
    }

    fn publish_counted(
        &self,
        engine: &Engine,
        node: &NodeId,
        volume: &VolumeId,
        publish: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        engine.node_volumes().try_add(node, volume, engine.settings().max_volumes)?;
        publish().inspect_err(|_| engine.node_volumes().remove(node, volume))
    }

    fn ensure_unpublished(&self, volume: &VolumeId, nodes: &[NodeId]) -> Result<()> {
        self.pool.catalogue().update_volume(volume, &mut |record| {
            record.published.retain(|node, _| !nodes.contains(node));
            Ok(())
        })?;
        Ok(())
    }

    fn group_of(&self, engine: &Engine, volume: &VolumeId) -> Result<Option<VolumeGroupId>> {
        Ok(engine.membership().group_of(volume))
    }

    /// What uses the volume on this node is asked of the kernel.
    fn check_unpublished(&self, _: &VolumeRecord) -> Result<()> {
        Ok(())
    }

    fn is_written_elsewhere(&self, _: &Engine, _: &VolumeRecord) -> Result<bool> {
        Ok(false)
    }

    fn unrecorded_writers(&self, _: &VolumeId) -> Result<Vec<NodeId>> {
        Ok(Vec::new())
    }

    fn is_written_by_twin(&self, _: &Engine, _: &VolumeRecord, _: &NodeRecord) -> bool {
        false
    }

    fn check_stage(&self, _: &Engine, _: &VolumeRecord, _: &Stage) -> Result<()> {
        Ok(())
    }

    fn check_staged(&self, _: &Engine, _: &VolumeRecord, _: &Stage) -> Result<()> {
        Ok(())
    }

    fn check_published_here(&self, _: &Engine, _: &VolumeRecord, _: &Stage) -> Result<()> {
        Ok(())
    }

    fn is_used_by_this_node(&self, _: &Engine, _: &VolumeRecord) -> bool {
        true
    }

    fn check_reachable(&self, _: &VolumeId) -> Result<()> {
        Ok(())
    }

    fn is_read_with_others(&self, _: &Stage) -> bool {
        false
    }

    fn leave_readers(&self, _: &Engine, _: &VolumeId) -> Result<()> {
        Ok(())
    }

    fn check_answers(&self, _: &VolumeId) -> Result<()> {
        Ok(())
    }

    fn check_can_be_unmounted(&self, _: &VolumeId, _: Option<&Stage>) -> Result<()> {
        Ok(())
    }

    fn device_problem(&self, _: &VolumeId) -> Result<Option<String>> {
        Ok(None)
    }

    fn inline_elsewhere(&self, _: &VolumeId) -> Result<Option<NodeId>> {
        Ok(None)
    }
}
