//! What a test lets happen to a pool that only pretends.

use orlop_model::{ByteRange, Condition, Error, NodeId, Problem, Result, SnapshotId, VolumeId};

use super::MemoryPool;
use super::state::{Fault, Interlude};
use crate::poison::lock;

impl MemoryPool {
    /// Lets the next call of this method of the trait fail; `capture` and `commit` are those of
    /// drafts, `range` is a step through ranges. Several for one method fail one after another.
    pub fn fail_next(&self, operation: &'static str, error: Error) {
        self.fail_after(operation, 0, error);
    }

    /// As [`Self::fail_next`], but so many calls go well before.
    pub fn fail_after(&self, operation: &'static str, successes: usize, error: Error) {
        lock(&self.state).faults.push(Fault { operation, successes, error });
    }

    /// Lets everything fail until it is mended, as a disk does that was pulled out.
    pub fn break_down(&self, reason: &str) {
        lock(&self.state).broken = Some(reason.to_owned());
    }

    pub fn mend(&self) {
        lock(&self.state).broken = None;
    }

    /// What happens during the next capture, on its thread.
    pub fn during_next_capture(&self, interlude: impl FnOnce() + Send + 'static) {
        lock(&self.state).interlude = Some(Interlude(Box::new(interlude)));
    }

    /// What happens while the next volume is being committed, on its thread.
    pub fn during_next_commit(&self, interlude: impl FnOnce() + Send + 'static) {
        lock(&self.state).commit_interlude = Some(Interlude(Box::new(interlude)));
    }

    /// What happens while the next caller waits for its device.
    pub fn during_next_attach(&self, interlude: impl FnOnce() + Send + 'static) {
        lock(&self.state).attach_interlude = Some(Interlude(Box::new(interlude)));
    }

    /// The pool stays, its devices are gone.
    pub fn reboot(&self) {
        for volume in lock(&self.state).volumes.values_mut() {
            volume.read_write.attached = false;
            volume.read_only.attached = false;
        }
    }

    /// What a workload would do with the device.
    pub fn write_tag(&self, id: &VolumeId, tag: &str) -> Result<()> {
        tag.clone_into(&mut lock(&self.state).volume(id)?.content.tag);
        Ok(())
    }

    /// What was written to the volume, or to what it is a copy of; empty if nothing was.
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

    pub fn set_problems(&self, problems: Vec<Problem>) {
        lock(&self.state).problems = problems;
    }

    /// As one that these nodes reach, each with its own processes.
    pub fn share_with(&self, nodes: &[&NodeId]) {
        lock(&self.state).sharers = Some(nodes.iter().copied().cloned().collect());
    }

    /// Who was kept from writing to what, in that order.
    pub fn fenced(&self) -> Vec<(VolumeId, NodeId)> {
        lock(&self.state).fenced.clone()
    }

    /// The device is there, but leads nowhere.
    pub fn break_device(&self, id: &VolumeId, reason: &str) {
        if let Some(volume) = lock(&self.state).volumes.get_mut(id) {
            volume.trouble = Some(reason.to_owned());
        }
    }

    /// What a workload would write; whole blocks of 4 KiB change.
    pub fn write_blocks(&self, id: &VolumeId, range: ByteRange) -> Result<()> {
        let mut state = lock(&self.state);
        let volume = state.volume(id)?;
        volume.content.write(range, volume.record.capacity_bytes)
    }

    /// Zeroes take space until they are reclaimed.
    pub fn write_zeroes(&self, id: &VolumeId, range: ByteRange) -> Result<()> {
        let mut state = lock(&self.state);
        let volume = state.volume(id)?;
        volume.content.write_zeroes(range, volume.record.capacity_bytes)
    }

    /// A pool that copies piece by piece, as one without shared extents does.
    pub fn capture_piecemeal(&self) {
        let mut state = lock(&self.state);
        state.captures_piecemeal = true;
        state.captures_groups_piecemeal = true;
    }

    /// A pool that captures one member of a group after another, each at once.
    pub fn capture_groups_piecemeal(&self) {
        lock(&self.state).captures_groups_piecemeal = true;
    }
}
