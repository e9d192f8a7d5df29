//! What a test can make happen to the memory pool.

use orlop_model::{ByteRange, Condition, Error, NodeId, Problem, Result, SnapshotId, VolumeId};

use super::MemoryPool;
use super::state::{Fault, Interlude};
use crate::poison::lock;

impl MemoryPool {
    /// Makes the next call of this trait method fail; `capture` and `commit` are those of drafts, `range` is a step of an
    /// iterator over ranges. Several errors for one method are returned one after another.
    pub fn fail_next(&self, operation: &'static str, error: Error) {
        self.fail_after(operation, 0, error);
    }

    /// As [`Self::fail_next`], after so many calls that succeed.
    pub fn fail_after(&self, operation: &'static str, successes: usize, error: Error) {
        lock(&self.state).faults.push(Fault { operation, successes, error });
    }

    /// Makes every call fail until [`Self::mend`], like a disk that was pulled out.
    pub fn break_down(&self, reason: &str) {
        lock(&self.state).broken = Some(reason.to_owned());
    }

    pub fn mend(&self) {
        lock(&self.state).broken = None;
    }

    /// Runs this during the next capture, on its thread.
    pub fn during_next_capture(&self, interlude: impl FnOnce() + Send + 'static) {
        lock(&self.state).interlude = Some(Interlude(Box::new(interlude)));
    }

    /// Runs this while the next volume or group snapshot is committed, on its thread.
    pub fn during_next_commit(&self, interlude: impl FnOnce() + Send + 'static) {
        lock(&self.state).commit_interlude = Some(Interlude(Box::new(interlude)));
    }

    /// Runs this while the next caller waits for its device.
    pub fn during_next_attach(&self, interlude: impl FnOnce() + Send + 'static) {
        lock(&self.state).attach_interlude = Some(Interlude(Box::new(interlude)));
    }

    /// Detaches all devices, and keeps the pool.
    pub fn reboot(&self) {
        for volume in lock(&self.state).volumes.values_mut() {
            volume.read_write.attached = false;
            volume.read_only.attached = false;
        }
    }

    /// Writes to the volume, as a workload would.
    pub fn write_tag(&self, id: &VolumeId, tag: &str) -> Result<()> {
        tag.clone_into(&mut lock(&self.state).volume(id)?.content.tag);
        Ok(())
    }

    /// What was written to the volume, or to its source before it was copied; empty if nothing was.
    pub fn tag(&self, id: &VolumeId) -> Result<String> {
        Ok(lock(&self.state).volume(id)?.content.tag.clone())
    }

    pub fn snapshot_tag(&self, id: &SnapshotId) -> Option<String> {
        let state = lock(&self.state);
        state.snapshots.get(id).map(|snapshot| snapshot.content.tag.clone())
    }

    pub fn damage_volume(&self, id: &VolumeId, reason: &str) {
        if let Some(volume) = lock(&self.state).volumes.get_mut(id) {
            volume.damage = Some(reason.to_owned());
        }
    }

    pub fn set_condition(&self, id: &VolumeId, condition: Condition) {
        if let Some(volume) = lock(&self.state).volumes.get_mut(id) {
            volume.condition = Some(condition);
        }
    }

    pub fn set_snapshot_problem(&self, id: &SnapshotId, problem: Problem) {
        lock(&self.state).abnormal_snapshots.insert(id.clone(), problem);
    }

    /// Its record was damaged and moved aside, as a member of a group may be.
    pub fn lose_snapshot(&self, id: &SnapshotId) {
        lock(&self.state).snapshots.remove(id);
    }

    pub fn set_problems(&self, problems: Vec<Problem>) {
        lock(&self.state).problems = problems;
    }

    /// Makes it a shared pool that these nodes reach.
    pub fn share_with(&self, nodes: &[&NodeId]) {
        lock(&self.state).sharers = Some(nodes.iter().copied().cloned().collect());
    }

    /// The node has attached the volume to write, as a cluster knows it.
    pub fn note_writer(&self, id: &VolumeId, node: &NodeId) {
        lock(&self.state).writers.push((id.clone(), node.clone()));
    }

    /// Which nodes were fenced from which volumes, in that order.
    pub fn fenced(&self) -> Vec<(VolumeId, NodeId)> {
        lock(&self.state).fenced.clone()
    }

    /// The device exists, but I/O to it fails.
    pub fn break_device(&self, id: &VolumeId, reason: &str) {
        if let Some(volume) = lock(&self.state).volumes.get_mut(id) {
            volume.device_problem = Some(reason.to_owned());
        }
    }

    /// Writes as a workload would; whole blocks of 4 KiB change.
    pub fn write_blocks(&self, id: &VolumeId, range: ByteRange) -> Result<()> {
        let mut state = lock(&self.state);
        let volume = state.volume(id)?;
        volume.content.write(range, volume.record.capacity_bytes)
    }

    /// Writes zeroes, which take space until they are reclaimed.
    pub fn write_zeroes(&self, id: &VolumeId, range: ByteRange) -> Result<()> {
        let mut state = lock(&self.state);
        let volume = state.volume(id)?;
        volume.content.write_zeroes(range, volume.record.capacity_bytes)
    }

    /// Makes the pool copy data piece by piece, like one that does not share extents.
    pub fn capture_piecemeal(&self) {
        let mut state = lock(&self.state);
        state.captures_piecemeal = true;
        state.captures_groups_piecemeal = true;
    }

    /// Makes the pool capture the members of a group one after another, each at one instant.
    pub fn capture_groups_piecemeal(&self) {
        lock(&self.state).captures_groups_piecemeal = true;
    }
}
