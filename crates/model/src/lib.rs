//! The vocabulary of Orlop: what a volume, a snapshot, a capability and a topology are.
//!
//! Nothing here does I/O. Values of these types are valid by construction, so nothing further
//! in has to check them again. The two traits at the end, [`Pool`] and [`Host`], are all that
//! the engine sees of storage and of the machine.

pub mod capability;
pub mod condition;
pub mod device;
pub mod durations;
pub mod encryption;
pub mod error;
pub mod finding;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod health_reason;
pub mod host;
pub mod id;
pub mod name;
pub mod only_copy;
pub mod parameters;
pub mod path;
pub mod pool;
pub mod record;
pub mod secret;
pub mod size;
pub mod topology;

pub use capability::{
    AccessMode, AccessType, CapabilitySet, FsType, MountAccess, MountFlags, VolumeCapability,
};
pub use condition::{Condition, Problem, Usage};
pub use device::{Device, DeviceAccess};
pub use durations::{DurationCounts, DurationHistogram};
pub use encryption::{
    EncryptedSignature, Encryption, EncryptionKind, EncryptionState, HeaderSignature,
};
pub use error::{Error, Reason, Result};
pub use finding::{BehindDevice, Finding, LabelledDevice, Remedy, Repair};
pub use health_reason::{HealthReason, Severity};
pub use host::{
    DeviceIo, DeviceMount, DeviceSignature, Host, HostDevices, HostEncryption, HostFilesystems,
    HostFreezing, HostLimits, HostMounts, HostRecords, KeyRotation, MappingRequest, MountRequest,
    MountState, NodeRecord, Publication, Stage, UnservedDevice,
};
pub use id::{GroupSnapshotId, NameDigest, NodeId, PoolId, SnapshotId, VolumeGroupId, VolumeId};
pub use name::ObjectName;
pub use parameters::{
    IoLimits, IoLimitsChange, LvmLayout, Provisioning, RaidLevel, VolumeParameters,
};
pub use path::TargetPath;
pub use pool::{
    ByteRange, Catalogue, ChangedBlocks, DeviceOnOtherFile, Devices, Draft, Footprint, Health,
    NewFilesystem, NewGroupSnapshot, NewSnapshot, NewVolume, Pool, PoolCapacity, PoolInfo,
    PoolSpace, Provisioner, Ranges, Shared, StorageProbe,
};
pub use record::{
    Consistency, ContentSource, ControllerPublication, FormatState, FsUuid, GroupSnapshotRecord,
    ReaderState, SnapshotRecord, Timestamp, VolumeGroupRecord, VolumeRecord,
};
pub use secret::{Secret, VolumeKeys};
pub use size::{
    ALLOCATION_UNIT, Bytes, CapacityRange, parse_exact_size, parse_quantity, parse_size,
};
pub use topology::{Topology, TopologyRequirement};
