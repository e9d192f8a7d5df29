//! What the memory pool holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use orlop_model::{
    Condition, Device, DeviceAccess, Error, GroupSnapshotId, GroupSnapshotRecord, NodeId, Problem,
    Result, SnapshotId, SnapshotRecord, VolumeGroupId, VolumeGroupRecord, VolumeId, VolumeRecord,
};

use super::content::MemoryContent;

#[derive(Debug, Default)]
pub(super) struct MemoryPoolState {
    pub(super) capacity: u64,
    pub(super) reserved: u64,
    pub(super) volumes: BTreeMap<VolumeId, MemoryVolume>,
    pub(super) snapshots: BTreeMap<SnapshotId, MemorySnapshot>,
    pub(super) group_snapshots: BTreeMap<GroupSnapshotId, GroupSnapshotRecord>,
    pub(super) volume_groups: BTreeMap<VolumeGroupId, VolumeGroupRecord>,
    pub(super) captures_piecemeal: bool,
    pub(super) captures_groups_piecemeal: bool,
    /// The nodes that share the pool, if any do.
    pub(super) sharers: Option<BTreeSet<NodeId>>,
    pub(super) fenced: Vec<(VolumeId, NodeId)>,
    /// Which node may write to which volume, as a cluster knows it.
    pub(super) writers: Vec<(VolumeId, NodeId)>,
    pub(super) faults: Vec<Fault>,
    /// What is wrong with snapshots. Normal ones are not in it.
    pub(super) abnormal_snapshots: BTreeMap<SnapshotId, Problem>,
    /// What is wrong with the pool as a whole.
    pub(super) problems: Vec<Problem>,
    /// Why nothing works at all.
    pub(super) broken: Option<String>,
    pub(super) interlude: Option<Interlude>,
    pub(super) commit_interlude: Option<Interlude>,
    pub(super) attach_interlude: Option<Interlude>,
}

#[derive(Debug)]
pub(super) struct Fault {
    pub(super) operation: &'static str,
    /// How many calls succeed before.
    pub(super) successes: usize,
    pub(super) error: Error,
}

/// What a test lets happen in the middle of a call.
pub(super) struct Interlude(pub(super) Box<dyn FnOnce() + Send>);

impl fmt::Debug for Interlude {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interlude")
    }
}

#[derive(Debug)]
pub(super) struct MemoryVolume {
    pub(super) record: VolumeRecord,
    pub(super) content: MemoryContent,
    pub(super) damage: Option<String>,
    pub(super) condition: Option<Condition>,
    /// Why its device does not reach it any more.
    pub(super) device_problem: Option<String>,
    pub(super) read_write: Port,
    pub(super) read_only: Port,
}

/// A volume keeps its device numbers for life, attached or not: a machine of the imagination
/// knows what is on a device by its number.
#[derive(Debug, Default)]
pub(super) struct Port {
    pub(super) device: Option<Device>,
    pub(super) attached: bool,
}

impl Port {
    pub(super) fn attached(&self) -> Option<&Device> {
        self.device.as_ref().filter(|_| self.attached)
    }
}

#[derive(Debug)]
pub(super) struct MemorySnapshot {
    pub(super) record: SnapshotRecord,
    pub(super) content: MemoryContent,
}

impl MemoryVolume {
    pub(super) fn checked(&self) -> Result<&VolumeRecord> {
        match &self.damage {
            None => Ok(&self.record),
            Some(reason) => {
                Err(Error::damaged(format!("volume {}", self.record.id), reason.clone()))
            }
        }
    }

    pub(super) fn port(&mut self, access: DeviceAccess) -> &mut Port {
        match access {
            DeviceAccess::ReadWrite => &mut self.read_write,
            DeviceAccess::ReadOnly => &mut self.read_only,
        }
    }
}

impl MemoryPoolState {
    pub(super) fn fault(&mut self, operation: &'static str) -> Result<()> {
        if let Some(reason) = &self.broken {
            return Err(Error::failed(operation, reason.as_str()));
        }
        let of_operation = |fault: &Fault| fault.operation == operation;
        let Some(index) = self.faults.iter().position(of_operation) else {
            return Ok(());
        };
        match self.faults[index].successes.checked_sub(1) {
            Some(fewer) => {
                self.faults[index].successes = fewer;
                Ok(())
            }
            None => Err(self.faults.remove(index).error),
        }
    }

    pub(super) fn volume(&mut self, id: &VolumeId) -> Result<&mut MemoryVolume> {
        let volume = self.volumes.get_mut(id).ok_or_else(|| Error::NoSuchVolume(id.to_string()))?;
        volume.checked()?;
        Ok(volume)
    }

    pub(super) fn snapshot(&self, id: &SnapshotId) -> Result<&MemorySnapshot> {
        self.snapshots.get(id).ok_or_else(|| Error::NoSuchSnapshot(id.to_string()))
    }

    pub(super) fn available(&self) -> u64 {
        let promised: u64 = self.volumes.values().map(|volume| volume.record.capacity_bytes).sum();
        self.capacity.saturating_sub(promised + self.reserved)
    }

    pub(super) fn try_reserve(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.capacity {
            return Err(Error::OutOfRange(format!(
                "{bytes} bytes is more than the pool could hold if it were empty"
            )));
        }
        if bytes > self.available() {
            return Err(Error::exhausted(format!(
                "{bytes} bytes asked for, {} available",
                self.available()
            )));
        }
        self.reserved += bytes;
        Ok(())
    }
}
