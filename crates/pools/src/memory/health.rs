//! What a test says about the health of a pool that only pretends.

use orlop_model::{Condition, Error, Health, Problem, Result, SnapshotId, StorageProbe, VolumeId};

use super::MemoryPool;
use crate::poison::lock;

impl Health for MemoryPool {
    fn check(&self) -> Result<()> {
        lock(&self.state).fault("check_health")
    }

    /// As real pools: one that nodes share notices itself that its storage does not answer.
    fn storage_probe(&self) -> Option<&dyn StorageProbe> {
        lock(&self.state).sharers.is_none().then_some(self)
    }

    fn shortage(&self) -> Result<Option<String>> {
        lock(&self.state).fault("shortage").map(|()| None)
    }

    fn condition(&self, id: &VolumeId) -> Result<Condition> {
        let mut state = lock(&self.state);
        state.fault("condition")?;
        let volume = state.volumes.get(id).ok_or_else(|| Error::NoSuchVolume(id.to_string()))?;
        Ok(match (volume.checked(), &volume.condition) {
            (Err(damaged), _) => Condition::of_error(&damaged),
            (Ok(_), Some(condition)) => condition.clone(),
            (Ok(_), None) => Condition::healthy("in memory"),
        })
    }

    fn abnormal_snapshots(&self) -> Result<Vec<(SnapshotId, Problem)>> {
        let state = lock(&self.state);
        let abnormal = state.abnormal_snapshots.iter();
        Ok(abnormal.map(|(id, problem)| (id.clone(), problem.clone())).collect())
    }

    fn problems(&self) -> Vec<Problem> {
        let mut state = lock(&self.state);
        let failed = state.fault("check_health").err();
        failed.iter().map(Problem::of).chain(state.problems.clone()).collect()
    }
}

impl StorageProbe for MemoryPool {
    fn try_storage(&self) -> Result<()> {
        Ok(())
    }
}
