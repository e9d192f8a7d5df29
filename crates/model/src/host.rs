//! What the engine needs of the machine on which volumes are used.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::capability::{FsType, VolumeCapability};
use crate::condition::Usage;
use crate::device::{Device, DeviceAccess};
use crate::encryption::EncryptedSignature;
use crate::error::Result;
use crate::id::VolumeId;
use crate::parameters::IoLimits;
use crate::path::TargetPath;
use crate::record::FsUuid;
use crate::secret::{Secret, VolumeKeys};

/// What the CSI calls on one volume said, kept where a reboot clears it together with the
/// mounts. Written before the first effect and removed after the last, so that whatever is
/// attached or mounted has a record; the kernel decides what of it still holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeRecord {
    pub stage: Option<Stage>,
    pub publications: Vec<Publication>,
}

impl NodeRecord {
    pub fn is_empty(&self) -> bool {
        self.stage.is_none() && self.publications.is_empty()
    }

    pub fn publication(&self, target: &TargetPath) -> Option<&Publication> {
        self.publications.iter().find(|publication| publication.target == *target)
    }
}

/// The arguments of NodeStageVolume that a second call is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    pub path: TargetPath,
    pub capability: VolumeCapability,
    pub read_only: bool,
    /// The workload uses a mapping of dm-crypt: the volume's own device alone is no stage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypted: bool,
}

/// The arguments of NodePublishVolume that a second call is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    pub target: TargetPath,
    pub capability: VolumeCapability,
    pub read_only: bool,
    /// Nothing was at the target before, so nothing is to be there afterwards (NN-03).
    pub target_made: bool,
}

/// What stands on a device, from its first and last blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceSignature {
    /// Nothing but zeroes.
    Blank,
    Filesystem {
        fs: FsType,
        uuid: FsUuid,
        needs_check: bool,
    },
    /// Something, but no filesystem that Orlop makes.
    Foreign,
}

/// What is mounted at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountState {
    /// Device number of the filesystem's device, or of the device node bound there.
    pub major: u32,
    pub minor: u32,
    pub is_device_node: bool,
    /// This mount refuses writes.
    pub read_only: bool,
    /// The filesystem itself refuses writes, for all its mounts.
    pub filesystem_read_only: bool,
}

impl MountState {
    pub fn is_of(&self, device: &Device) -> bool {
        (self.major, self.minor) == (device.major, device.minor)
    }
}

/// A mount of a device's filesystem or of its node, wherever on this machine it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMount {
    pub mount_point: PathBuf,
    pub is_device_node: bool,
    /// Another mount covers it. It is in use all the same, and there again when that is unmounted.
    pub is_hidden: bool,
}

impl DeviceMount {
    /// The path by which a call can reach it, if there is one.
    pub fn path(&self) -> Option<TargetPath> {
        let path = TargetPath::parse("mount point", self.mount_point.to_str()?).ok()?;
        (!self.is_hidden).then_some(path)
    }
}

/// For a message that says where a device is in use.
impl fmt::Display for DeviceMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mount_point.to_str().filter(|text| !text.contains(char::is_control)) {
            Some(text) => f.write_str(text)?,
            None => write!(f, "{:?}", self.mount_point)?,
        }
        match self.is_hidden {
            true => f.write_str(", where another mount hides it (unmount what covers it first)"),
            false => Ok(()),
        }
    }
}

/// A device of a volume whose pool is absent or not configured, as the kernel knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnservedDevice {
    pub device: Device,
    pub access: DeviceAccess,
    /// The file behind it has no name any more: what was written is gone with the device.
    pub is_only_copy: bool,
}

/// What a block device has done, as the kernel counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceIo {
    pub reads: u64,
    pub bytes_read: u64,
    /// All reads together, each from its begin to its end.
    pub read_time: Duration,
    pub writes: u64,
    pub bytes_written: u64,
    pub write_time: Duration,
    /// For how long there was anything under way.
    pub busy_time: Duration,
    pub in_flight: u64,
}

#[derive(Debug, Clone)]
pub struct MountRequest<'a> {
    pub device: &'a Device,
    pub fs: FsType,
    pub options: Vec<String>,
    pub read_only: bool,
}

/// The machine, divided by what callers do with it. Every `ensure_*` may be repeated.
pub trait Host:
    HostFilesystems
    + HostMounts
    + HostDevices
    + HostEncryption
    + HostFreezing
    + HostLimits
    + HostRecords
{
}

impl<Machine> Host for Machine where
    Machine: HostFilesystems
        + HostMounts
        + HostDevices
        + HostEncryption
        + HostFreezing
        + HostLimits
        + HostRecords
{
}

/// Filesystems: which there can be, and what is on a device.
pub trait HostFilesystems: Send + Sync {
    /// Filesystems that can be made and mounted here, the default first.
    fn filesystems(&self) -> &[FsType];

    /// Is every tool still there that was there at start?
    fn check_health(&self) -> Result<()>;

    fn random_uuid(&self) -> Result<FsUuid>;

    fn signature(&self, device: &Device) -> Result<DeviceSignature>;

    /// mkfs. The caller has made sure that this is a volume that was never formatted.
    fn format(&self, device: &Device, fs: FsType, uuid: FsUuid, options: &[String]) -> Result<()>;

    /// Mends what an unmounted filesystem says is wrong with it.
    fn check_filesystem(&self, device: &Device, fs: FsType) -> Result<()>;

    /// Gives an unmounted copy its own identity.
    fn renew_uuid(&self, device: &Device, fs: FsType, uuid: FsUuid) -> Result<()>;

    /// Where a filesystem is grown before it is mounted (ext4): the most bytes that this writes, with the repair if
    /// an earlier growth was interrupted. `None` where there is nothing to do.
    fn unmounted_growth(
        &self,
        device: &Device,
        fs: FsType,
        was_interrupted: bool,
    ) -> Result<Option<u64>>;

    /// Before [`HostFilesystems::ensure_grown_unmounted`]: a filesystem with errors is not grown.
    fn check_before_growth(&self, device: &Device, fs: FsType) -> Result<()>;

    /// Repairs whatever is wrong with the filesystem, without asking. The caller knows that it was sound before its
    /// growth began, and was not mounted since.
    fn repair_interrupted_growth(&self, device: &Device, fs: FsType) -> Result<()>;

    /// Where a filesystem can grow before it is mounted (ext4), do it. Interrupted, it leaves a filesystem that has
    /// to be repaired.
    fn ensure_grown_unmounted(&self, device: &Device, fs: FsType) -> Result<()>;

    /// Grows a mounted filesystem to its device's size. `Precondition` where the kernel refuses.
    fn ensure_grown_mounted(&self, device: &Device, fs: FsType, at: &TargetPath) -> Result<()>;

    fn usage(&self, path: &TargetPath) -> Result<Usage>;

    /// Errors that the filesystem on the device has counted, where it counts them.
    fn filesystem_errors(&self, device: &Device) -> Result<u64>;

    /// Writes back what is waiting, so that a freeze that follows is short. `Some`: writes that the kernel
    /// had accepted were lost in that, or have been since it was last asked; the reason.
    fn sync_filesystem(&self, mount: &TargetPath) -> Result<Option<String>>;

    /// As [`Self::sync_filesystem`], for a check that changes nothing and holds no lock: `None` also if the
    /// device's filesystem is not mounted there any more.
    fn lost_writes_at(&self, mount: &TargetPath, device: &Device) -> Result<Option<String>>;

    /// Tells the device which blocks the mounted filesystem does not use.
    fn ensure_trimmed(&self, mount: &TargetPath) -> Result<()>;
}

/// What is mounted where.
pub trait HostMounts: Send + Sync {
    fn mount_at(&self, path: &TargetPath) -> Result<Option<MountState>>;

    /// Major and minor number of the block device that a path leads to, also by a link.
    fn device_node_at(&self, path: &TargetPath) -> Result<Option<(u32, u32)>>;

    /// All mounts of the device's filesystem and of its node, the newest first, also those that no path
    /// leads to. Other mount namespaces may have more.
    fn mounts_of(&self, device: &Device) -> Result<Vec<DeviceMount>>;

    /// The path without the links in it, as far as it exists: as the kernel names mount points.
    fn resolved(&self, path: &TargetPath) -> PathBuf;

    /// Is anything at the path, mounted or not?
    fn target_exists(&self, path: &TargetPath) -> Result<bool>;

    /// May a caller stage there? `Invalid` where the plugin itself lives, which
    /// [`HostMounts::private_stage`] is part of.
    fn check_stage_path(&self, path: &TargetPath) -> Result<()>;

    fn ensure_mounted(&self, request: &MountRequest<'_>, target: &TargetPath) -> Result<()>;

    /// Binds a directory to another path, made if missing. A read-only bind is never visible as a
    /// writable one, not even for an instant.
    fn ensure_bound_directory(
        &self,
        source: &TargetPath,
        target: &TargetPath,
        read_only: bool,
    ) -> Result<()>;

    /// Binds a device node to a file, made if missing.
    fn ensure_bound_device(&self, device: &Device, target: &TargetPath) -> Result<()>;

    /// Missing or not mounted is fine; a busy mount is `Precondition`.
    fn ensure_unmounted(&self, path: &TargetPath) -> Result<()>;

    /// Other mount namespaces have copies of mounts, which keep a volume's device in use. Those at a
    /// path where nothing is mounted any more are dropped, and the path stays. Best effort: a path
    /// that holds something, or cannot be changed, is left alone, and the device tells who uses it.
    fn ensure_unmounted_elsewhere(&self, path: &TargetPath) -> Result<()>;

    /// Removes the empty file or directory that a mount stood on (NN-03), and with it whatever other
    /// mount namespaces have mounted there. `Precondition` if it holds something, or is something else.
    fn ensure_target_removed(&self, path: &TargetPath) -> Result<()>;

    /// A directory of Orlop's own where a volume without a staging path is mounted.
    fn private_stage(&self, id: &VolumeId) -> Result<TargetPath>;

    /// AM-07, AM-08: what is and what will be below `root` is the group's to read and write.
    fn ensure_group(&self, root: &TargetPath, group: u32) -> Result<()>;
}

/// Block devices, whatever is on them.
pub trait HostDevices: Send + Sync {
    fn device_size(&self, device: &Device) -> Result<u64>;

    /// Grows with every write to the device, by whomever. `None` while one is under way: when
    /// that will land is unknown.
    fn device_writes(&self, device: &Device) -> Result<Option<u64>>;

    /// What the device has done since it was attached to its volume.
    fn device_io(&self, device: &Device) -> Result<DeviceIo>;

    /// The device has just been attached to the volume, or was before: what it did until then was for others.
    fn note_attached(&self, id: &VolumeId, device: &Device) -> Result<()>;

    /// Writes back what is only in memory.
    fn sync_device(&self, device: &Device) -> Result<()>;

    /// As [`HostFilesystems::lost_writes_at`], for what was written to the device itself.
    fn lost_writes_on(&self, device: &Device) -> Result<Option<String>>;

    /// The devices of a volume whose pool is absent or not configured. `None`: it is not known whether
    /// there are any, because only a pool of its kind may know its devices. `Unreachable` where
    /// detaching one would wait for the pool.
    fn devices_without_pool(&self, id: &VolumeId) -> Result<Option<Vec<UnservedDevice>>>;

    /// `Precondition` if anything on this machine uses it; the device is then left as it was.
    fn try_detach_without_pool(&self, id: &VolumeId, device: &UnservedDevice) -> Result<()>;
}

/// Encryption at rest: on the device of an encrypted volume stands a LUKS2 header, and on top of the device a mapping of
/// dm-crypt, which is the device that workloads use.
pub trait HostEncryption: Send + Sync {
    /// `Err` with a reason where this machine cannot encrypt.
    fn check_encryption_works(&self) -> Result<()>;

    /// What the operator's key files hold for volumes of the pool of that name; read each time.
    fn keys_of_pool(&self, pool: &str) -> Result<VolumeKeys>;

    fn encrypted_signature(&self, device: &Device) -> Result<EncryptedSignature>;

    /// luksFormat. The caller has made sure that this is a volume that was never written to.
    fn encrypt(&self, device: &Device, uuid: FsUuid, key: &Secret) -> Result<()>;

    /// `Unauthenticated` if the key does not open what is on the device.
    fn check_key(&self, device: &Device, key: &Secret) -> Result<()>;

    /// Opens the mapping. `Unauthenticated` as above. One that is open already is returned, whatever the key is.
    fn ensure_opened(&self, request: &MappingRequest<'_>) -> Result<Device>;

    /// The volume's mapping on its device, as the kernel knows it.
    fn mapping_on(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        device: &Device,
    ) -> Result<Option<Device>>;

    /// Closes the volume's mapping on the device, if there is one. `Precondition` while it is in use.
    fn ensure_closed(&self, id: &VolumeId, access: DeviceAccess, device: &Device) -> Result<()>;

    /// Lets the mapping see that its device has grown.
    fn ensure_mapping_grown(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        device: &Device,
    ) -> Result<()>;

    /// Afterwards the new key opens the volume, and the old ones do not. Whenever it is interrupted, one of them does.
    /// `Unauthenticated` if none of the keys opens it.
    fn ensure_key_rotated(&self, rotation: &KeyRotation<'_>) -> Result<()>;
}

/// A mapping to be opened.
pub struct MappingRequest<'a> {
    pub id: &'a VolumeId,
    pub access: DeviceAccess,
    /// The volume's own device.
    pub device: &'a Device,
    /// Pass discards on to it.
    pub discard: bool,
    pub key: &'a Secret,
}

/// A key to be exchanged for another.
pub struct KeyRotation<'a> {
    /// The volume's own device.
    pub device: &'a Device,
    pub new: &'a Secret,
    /// Keys that may open the volume until then.
    pub old: &'a [&'a Secret],
}

/// Freezes filesystems while volumes are copied.
pub trait HostFreezing: Send + Sync {
    /// Blocks writers. Thaws by itself after a while, and when this process dies, so that
    /// neither a hanging call nor a crash freezes a workload for good.
    fn freeze(&self, mount: &TargetPath) -> Result<()>;

    /// Was it frozen all the time until now? If not, what was copied in that time is not consistent.
    fn ensure_thawed(&self, mount: &TargetPath) -> Result<bool>;
}

/// I/O limits of devices.
pub trait HostLimits: Send + Sync {
    /// `Err` with a reason where this machine cannot limit I/O.
    fn check_limits_work(&self) -> Result<()>;

    fn ensure_limits(&self, device: &Device, limits: &IoLimits) -> Result<()>;
}

/// What was asked of this node, for as long as it is up.
pub trait HostRecords: Send + Sync {
    fn node_record(&self, id: &VolumeId) -> Result<NodeRecord>;

    /// An empty record is removed.
    fn save_node_record(&self, id: &VolumeId, record: &NodeRecord) -> Result<()>;

    fn node_records(&self) -> Result<Vec<VolumeId>>;

    /// Why data is missing that a workload wrote to the volume since it was staged, if any is.
    fn lost_writes(&self, id: &VolumeId) -> Option<String>;

    /// Known until the volume is unstaged: the kernel tells it once. False: it was known already.
    fn note_lost_writes(&self, id: &VolumeId, reason: &str) -> Result<bool>;
}
