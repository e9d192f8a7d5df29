//! What the engine needs of a place where volumes are stored, divided by what its callers do with it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::capability::{CapabilitySet, FsType};
use crate::condition::{Condition, Problem};
use crate::device::{Device, DeviceAccess};
use crate::encryption::EncryptionState;
use crate::error::Result;
use crate::id::{GroupSnapshotId, NodeId, PoolId, SnapshotId, VolumeGroupId, VolumeId};
use crate::name::ObjectName;
use crate::parameters::{IoLimits, Provisioning, VolumeParameters};
use crate::record::{
    Consistency, ContentSource, FormatState, FsUuid, GroupSnapshotRecord, SnapshotRecord,
    VolumeGroupRecord, VolumeRecord,
};
use crate::topology::Topology;

/// What does not change while a pool is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolInfo {
    pub id: PoolId,
    /// The operator's name for it, as the parameter `pool` has it.
    pub name: String,
    /// Where its volumes can be used; empty means everywhere.
    pub topology: Topology,
}

/// A place where volumes are kept. It is the truth about them: what it does not hold does not
/// exist. Callers serialise operations on one object within their process; a pool copes with
/// anything else at once, and a shared one with other processes on the same object.
///
/// Each part is a component that owns its state. What a kind of pool cannot do is a part that it
/// does not have.
pub trait Pool: Send + Sync {
    fn info(&self) -> &PoolInfo;

    fn catalogue(&self) -> &dyn Catalogue;

    fn provisioner(&self) -> &dyn Provisioner;

    fn devices(&self) -> &dyn Devices;

    fn changed_blocks(&self) -> &dyn ChangedBlocks;

    fn health(&self) -> &dyn Health;

    /// Only of a pool that other nodes use at the same time.
    fn shared(&self) -> Option<&dyn Shared>;

    fn id(&self) -> &PoolId {
        &self.info().id
    }

    fn name(&self) -> &str {
        &self.info().name
    }

    fn topology(&self) -> &Topology {
        &self.info().topology
    }
}

/// The records of what exists in a pool. Data is made and removed by its [`Provisioner`]; a volume
/// group is a record alone.
pub trait Catalogue: Send + Sync {
    /// Are its records in memory, so that to ask for one costs nothing? Else an answer may take long, or
    /// not come at all while the pool is away.
    fn is_in_memory(&self) -> bool;

    /// `Ok(None)`: no such volume. A damaged record is an error, not an absence.
    fn volume(&self, id: &VolumeId) -> Result<Option<VolumeRecord>>;

    /// In the order of ids, after `after`, at most `limit` (0: all). A volume whose record
    /// cannot be read is in the list too, with the reason.
    fn volumes(
        &self,
        after: Option<&VolumeId>,
        limit: usize,
    ) -> Result<Vec<(VolumeId, Result<VolumeRecord>)>>;

    /// Durable once it returns. What `change` refuses is not written; where another process was
    /// faster it is called again, with what that one wrote.
    fn update_volume(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord>;

    fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>>;

    /// As [`Catalogue::volumes`]; damaged snapshots are left out: nothing can be made from them.
    fn snapshots(&self, after: Option<&SnapshotId>, limit: usize) -> Result<Vec<SnapshotRecord>>;

    fn group_snapshot(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshotRecord>>;

    fn volume_group(&self, id: &VolumeGroupId) -> Result<Option<VolumeGroupRecord>>;

    /// As [`Catalogue::snapshots`].
    fn volume_groups(
        &self,
        after: Option<&VolumeGroupId>,
        limit: usize,
    ) -> Result<Vec<VolumeGroupRecord>>;

    /// Makes the group, or replaces the record that it `was`; durable once it returns. `Busy` if it
    /// is another one by now.
    fn save_volume_group(
        &self,
        record: &VolumeGroupRecord,
        was: Option<&VolumeGroupRecord>,
    ) -> Result<()>;

    /// The group alone; its volumes are not touched.
    fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()>;
}

/// Makes, grows and removes what a pool holds, and knows the space for it.
///
/// Every `ensure_*` may be repeated, also after a crash at any instruction in it.
pub trait Provisioner: Send + Sync {
    /// What can still be made with this way of taking space.
    fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity>;

    /// The same of volumes with these parameters, also if it would refuse them: why is for CreateVolume to say. A pool
    /// overrides this if volumes can lie on its disks in several ways.
    fn capacity_for(&self, parameters: &VolumeParameters) -> Result<PoolCapacity> {
        self.capacity(parameters.provisioning)
    }

    /// The pool's space and what it is used for, for metrics. Costs no more than the capacity does.
    fn space(&self) -> Result<PoolSpace>;

    /// What the volume's data takes of the pool now.
    fn used_bytes(&self, id: &VolumeId) -> Result<u64>;

    /// The same of many volumes, in the order of their ids here. A pool overrides this where it has to ask only once for
    /// all of them; what it answers may be some seconds old.
    fn used_bytes_of(&self, ids: &[VolumeId]) -> Vec<Result<u64>> {
        ids.iter().map(|id| self.used_bytes(id)).collect()
    }

    /// `Exhausted` if the storage cannot take so many bytes more of this volume's data now.
    fn check_takes(&self, _: &VolumeId, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Refuses with `Exhausted` what does not fit.
    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>>;

    fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>>;

    /// All members or none, also after a crash: a member is not visible before its group is.
    fn begin_group_snapshot(
        &self,
        new: &NewGroupSnapshot,
    ) -> Result<Box<dyn Draft<GroupSnapshotRecord>>>;

    /// Is a copy one instant of its source even while something writes to it?
    fn has_atomic_copies(&self) -> bool;

    /// Are all members of a group snapshot of one instant even while something writes to them?
    fn has_atomic_groups(&self) -> bool;

    /// Grows the data and then the record; never shrinks either.
    fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord>;

    /// Gives back blocks of zeroes of a volume that is not in use. A thick volume keeps its space.
    fn ensure_reclaimed(&self, id: &VolumeId) -> Result<()>;

    fn ensure_no_volume(&self, id: &VolumeId) -> Result<()>;

    fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()>;

    /// The group and all its members. [`Provisioner::ensure_no_snapshot`] is for others.
    fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCapacity {
    /// What can still be promised, in bytes.
    pub available_bytes: u64,
    /// The largest volume that can be made now.
    pub largest_volume: u64,
}

/// In bytes. What a kind of pool does not know is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolSpace {
    /// Of all that it is on, also of what others have there.
    pub size: Option<u64>,
    pub free: Option<u64>,
    /// What the files of the pool take, each shared extent once.
    pub stored: Option<u64>,
    /// What copies have in common with what they were made from, and is stored once; what was written over since
    /// counts too, so it is at most so much.
    pub shared: Option<u64>,
    pub floor: Option<u64>,
    /// The sizes of volumes, and what snapshots may need.
    pub promised: Option<u64>,
    /// What calls that are under way will promise.
    pub reserved: Option<u64>,
    pub overcommit_percent: Option<u32>,
    /// Of the metadata that says where data is, where that has a size of its own and can fill up before the data does.
    pub metadata_size: Option<u64>,
    pub metadata_used: Option<u64>,
    /// What can still be promised to thin volumes.
    pub available: u64,
}

/// Something half-made. [`Draft::capture`] takes the point-in-time copy that it holds, so that a
/// caller can hold the source's writers still for just that long; it becomes visible in
/// [`Draft::commit`], whole and durable. Dropped before that, it leaves nothing behind.
pub trait Draft<Record>: Send {
    fn capture(&mut self) -> Result<()>;

    /// Does the commit still read the source, which then has to stay? If so, the commit is quick.
    fn needs_source_until_commit(&self) -> bool {
        false
    }

    fn commit(self: Box<Self>) -> Result<Record>;
}

/// A volume to be made.
#[derive(Debug, Clone)]
pub struct NewVolume {
    pub id: VolumeId,
    pub name: ObjectName,
    pub capacity_bytes: u64,
    pub capabilities: CapabilitySet,
    pub parameters: VolumeParameters,
    pub limits: IoLimits,
    /// On the same pool; its data comes first, zeroes follow up to the capacity.
    pub source: Option<ContentSource>,
    pub format: FormatState,
    pub encryption: Option<EncryptionState>,
    /// What a blank volume will hold as soon as it is used. A pool that has it ready puts it in at
    /// once, and records that.
    pub filesystem: Option<NewFilesystem>,
    pub ephemeral: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewFilesystem {
    pub fs: FsType,
    pub uuid: FsUuid,
}

/// A snapshot to be made of a volume of the same pool.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    pub id: SnapshotId,
    pub name: ObjectName,
    pub source: VolumeRecord,
    pub format: FormatState,
    pub consistency: Consistency,
}

/// Snapshots of several volumes of one pool, to be taken together.
#[derive(Debug, Clone)]
pub struct NewGroupSnapshot {
    pub id: GroupSnapshotId,
    pub name: ObjectName,
    /// At least one.
    pub members: Vec<NewSnapshot>,
    /// See [`GroupSnapshotRecord::pools`].
    pub pools: BTreeSet<PoolId>,
}

/// Volumes as block devices of this machine.
pub trait Devices: Send + Sync {
    /// Makes the volume a block device of this machine; the same one if it is already.
    fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device>;

    /// The device, if the volume is attached that way now.
    fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>>;

    fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()>;

    /// Before the volume is unmounted and detached: `Precondition` if its device is the only way to
    /// what was written, which then also [`Devices::ensure_detached`] refuses.
    fn check_detachable(&self, _: &VolumeId) -> Result<()> {
        Ok(())
    }

    /// As [`Devices::ensure_detached`], where no record says who may still use the device. `Precondition`
    /// if anything on this machine does; the device is then left as it was.
    fn try_detach_unused(&self, id: &VolumeId, access: DeviceAccess) -> Result<()>;

    /// Lets an attached device see that the volume has grown; returns its size.
    fn refresh_device(&self, id: &VolumeId) -> Result<u64>;

    /// All volumes of this pool that are attached in any way; asked for at start.
    fn attached_volumes(&self) -> Result<Vec<VolumeId>>;

    /// Devices with labels of this pool that are on other files than its data: of a copy of the pool, or of
    /// data that was moved while a workload used it. The pool cannot tell which; asked for at start.
    fn on_other_files(&self) -> Result<Vec<DeviceOnOtherFile>> {
        Ok(Vec::new())
    }

    /// Such a device is this machine's use of the volume, and counts as its device from now on.
    fn take_over(&self, _: &DeviceOnOtherFile) {}
}

/// A device that has the label of a volume, and shows another file than the volume's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceOnOtherFile {
    pub volume: VolumeId,
    pub access: DeviceAccess,
    pub device: Device,
    /// As the kernel names it.
    pub file: PathBuf,
}

/// A part of a volume, in bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    pub start: u64,
    pub length: u64,
}

impl ByteRange {
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}

/// Ranges in rising order, none empty, none overlapping; read from the pool as they are asked
/// for, so that memory does not grow with the volume. `None` is neither a range nor the end: much was
/// read without a result yet, and the caller may check whether it is still wanted.
pub type Ranges = Box<dyn Iterator<Item = Result<Option<ByteRange>>> + Send>;

/// Which blocks hold data, and which changed.
pub trait ChangedBlocks: Send + Sync {
    /// What was ever written before the snapshot, from `start` on: perhaps more, never less. The
    /// first range may begin before `start`, but ends after it.
    fn allocated_ranges(&self, id: &SnapshotId, start: u64) -> Result<Ranges>;

    /// Where `target` may differ from `base`, an earlier snapshot of the same volume: perhaps
    /// more, never less. Beyond the end of a smaller base all that was written counts.
    fn changed_ranges(&self, base: &SnapshotId, target: &SnapshotId, start: u64) -> Result<Ranges>;

    /// Is anything but zeroes known to be in the volume, wherever in it? Asked before mkfs.
    fn holds_data(&self, id: &VolumeId) -> Result<bool>;

    /// What a volume or snapshot takes in the pool. `None`: to find out would cost too much, because it is in too
    /// many pieces or on a cluster.
    fn footprint(&self, of: &ContentSource) -> Result<Option<Footprint>>;
}

/// What a volume or snapshot takes in its pool, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// All its blocks, also those that it shares.
    pub taken: u64,
    /// Those that nothing else in the pool has: deleting it gives that much back.
    pub exclusive: u64,
}

impl Footprint {
    pub fn shared(&self) -> u64 {
        self.taken.saturating_sub(self.exclusive)
    }
}

/// Whether a pool and its volumes can be used.
pub trait Health: Send + Sync {
    /// Is it there and usable? For Probe: quick, and true now, not at start.
    fn check(&self) -> Result<()>;

    /// For pools whose storage can stop answering without any call to it returning. `None`: the pool
    /// notices that itself, and refuses calls for as long.
    fn storage_probe(&self) -> Option<&dyn StorageProbe>;

    /// Why nothing can be made on it now, and writes to its volumes may soon fail, if that is so. The pool
    /// logs when it begins and when it is over.
    fn shortage(&self) -> Result<Option<String>>;

    /// From the pool's point of view: is the data there, whole, with room to write?
    fn condition(&self, id: &VolumeId) -> Result<Condition>;

    /// The conditions of many volumes, in the order of their ids here. A pool overrides this where it has to check
    /// itself only once for all of them.
    fn conditions(&self, ids: &[VolumeId]) -> Vec<Result<Condition>> {
        ids.iter().map(|id| self.condition(id)).collect()
    }

    /// Snapshots whose record cannot be read, or whose data is missing or too short; of a pool whose records are in
    /// memory.
    fn abnormal_snapshots(&self) -> Result<Vec<(SnapshotId, Problem)>>;

    /// What is wrong with the pool as a whole, and so with all volumes in it.
    fn problems(&self) -> Vec<Problem>;
}

pub trait StorageProbe: Send + Sync {
    /// Writes a little to the pool's storage, which leaves nothing, and waits until it is there: as
    /// long as that takes.
    fn try_storage(&self) -> Result<()>;
}

/// What only a pool has that several nodes use at the same time.
///
/// Other processes, on other nodes, use it too. So nothing that was read of it may be
/// remembered, and a volume is used on a node only while it is published to it.
pub trait Shared: Send + Sync {
    /// Can this node, beside the one that asks, reach the pool?
    fn knows_node(&self, node: &NodeId) -> Result<bool>;

    /// The node that an inline volume belongs to, if that is another than the one that asks.
    fn inline_elsewhere(&self, id: &VolumeId) -> Result<Option<NodeId>>;

    /// The nodes that may write to the volume as far as the pool knows, whatever its record says.
    fn writers(&self, id: &VolumeId) -> Result<Vec<NodeId>>;

    /// Once this returns, the node writes no more to the volume, even if it is up and cannot be
    /// reached. The caller has made sure that it does not attach the volume again.
    fn ensure_fenced(&self, id: &VolumeId, node: &NodeId) -> Result<()>;

    /// Is there no reason to believe that what is written to a volume would wait without end?
    fn check_takes_writes(&self) -> Result<()>;

    /// Why the device of an attached volume no longer reaches it, if it does not.
    fn device_problem(&self, id: &VolumeId) -> Result<Option<String>>;
}
