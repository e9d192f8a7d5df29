//! The shared side of a pool that only pretends, once a test gives it to other nodes.

use orlop_model::{NodeId, Result, Shared, VolumeId};

use super::MemoryPool;
use crate::poison::lock;

impl Shared for MemoryPool {
    fn knows_node(&self, node: &NodeId) -> Result<bool> {
        let mut state = lock(&self.state);
        state.fault("knows_node")?;
        Ok(state.sharers.as_ref().is_some_and(|nodes| nodes.contains(node)))
    }

    fn inline_elsewhere(&self, _id: &VolumeId) -> Result<Option<NodeId>> {
        Ok(None)
    }

    fn writers(&self, id: &VolumeId) -> Result<Vec<NodeId>> {
        let mut state = lock(&self.state);
        state.fault("writers")?;
        let of_volume = |(volume, node): &(VolumeId, NodeId)| (volume == id).then(|| node.clone());
        Ok(state.writers.iter().filter_map(of_volume).collect())
    }

    fn ensure_fenced(&self, id: &VolumeId, node: &NodeId) -> Result<()> {
        let mut state = lock(&self.state);
        state.fault("ensure_fenced")?;
        state.writers.retain(|writer| *writer != (id.clone(), node.clone()));
        state.fenced.push((id.clone(), node.clone()));
        Ok(())
    }

    fn check_takes_writes(&self) -> Result<()> {
        Ok(())
    }

    fn device_problem(&self, id: &VolumeId) -> Result<Option<String>> {
        Ok(lock(&self.state).volumes.get(id).and_then(|volume| volume.device_problem.clone()))
    }
}
