//! A pool that only this node changes: much can be remembered of it, and no other node has to be asked.

use orlop_model::{
    ControllerPublication, NodeId, NodeRecord, Result, Stage, VolumeGroupId, VolumeId, VolumeRecord,
};

use crate::engine::{Engine, PoolRef};
use crate::request::ControllerPublish;
use crate::sharing::Sharing;

pub(super) struct LocalPool<'a> {
    pool: &'a PoolRef,
}

impl<'a> LocalPool<'a> {
    pub(super) fn new(pool: &'a PoolRef) -> Self {
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
