//! What callers ask of the engine and what it answers, as values that are valid by
//! construction.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use orlop_model::parameters::is_foreign_key;
use orlop_model::{
    CapabilitySet, CapacityRange, Condition, ContentSource, Error, GroupSnapshotRecord,
    IoLimitsChange, NameDigest, NodeId, ObjectName, PoolId, Problem, Ranges, Result, Secret,
    SnapshotId, SnapshotRecord, TargetPath, Topology, TopologyRequirement, Usage, VolumeCapability,
    VolumeGroupRecord, VolumeId, VolumeKeys, VolumeParameters, VolumeRecord,
};

use crate::engine::PoolRef;

/// The opaque map that goes with a volume through every call.
pub type VolumeContext = BTreeMap<String, String>;

#[derive(Debug, Clone)]
pub struct CreateVolume {
    pub name: ObjectName,
    pub range: Option<CapacityRange>,
    pub capabilities: CapabilitySet,
    pub parameters: VolumeParameters,
    pub limits: IoLimitsChange,
    pub source: Option<ContentSource>,
    pub topology: Option<TopologyRequirement>,
}

/// A volume with what only the engine knows about it.
#[derive(Debug, Clone)]
pub struct Volume {
    pub record: VolumeRecord,
    pub topology: Topology,
    pub context: VolumeContext,
}

impl Volume {
    pub(crate) fn of(pool: &PoolRef, record: VolumeRecord) -> Self {
        let context = context_of(pool, &record);
        Self { record, topology: pool.topology().clone(), context }
    }
}

/// Fixed for the volume's life (VO-05): nothing in it can be modified or configured.
fn context_of(pool: &PoolRef, record: &VolumeRecord) -> VolumeContext {
    BTreeMap::from([
        ("pool".to_owned(), pool.id().to_string()),
        ("provisioning".to_owned(), record.parameters.provisioning.as_str().to_owned()),
    ])
}

/// VO-09, VO-10: a context is not needed, but a wrong one is an error. Orchestrators add
/// their own keys.
pub(crate) fn context_fits(pool: &PoolRef, record: &VolumeRecord, given: &VolumeContext) -> bool {
    let own: BTreeMap<_, _> = given.iter().filter(|(key, _)| !is_foreign_key(key)).collect();
    own.is_empty() || own == context_of(pool, record).iter().collect()
}

pub(crate) fn check_context(
    pool: &PoolRef,
    record: &VolumeRecord,
    given: &VolumeContext,
) -> Result<()> {
    if context_fits(pool, record, given) {
        return Ok(());
    }
    Err(Error::invalid("volume_context", "is not the one this volume was created with"))
}

#[derive(Debug, Clone)]
pub struct VolumeStatus {
    pub id: VolumeId,
    /// Absent where the record cannot be read; the condition says why.
    pub volume: Option<Volume>,
    pub condition: Condition,
}

/// A volume with at least one problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbnormalVolume {
    pub id: VolumeId,
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone)]
pub struct Page<Entry, Id> {
    pub entries: Vec<Entry>,
    /// Where the next page starts; absent on the last one.
    pub next: Option<Id>,
}

#[derive(Debug, Clone)]
pub struct ControllerPublish {
    pub volume: VolumeId,
    pub node: NodeId,
    pub capability: VolumeCapability,
    pub read_only: bool,
    pub context: VolumeContext,
}

impl ControllerPublish {
    pub(crate) fn writes(&self) -> bool {
        !self.read_only && !self.capability.mode.is_read_only()
    }
}

/// What ControllerPublishVolume hands to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PublishContext {
    pub read_only: bool,
}

#[derive(Debug, Clone)]
pub struct Validate {
    pub volume: VolumeId,
    pub capabilities: CapabilitySet,
    pub context: VolumeContext,
    /// Absent: not given, so not checked.
    pub parameters: Option<VolumeParameters>,
}

#[derive(Debug, Clone)]
pub struct CapacityQuery {
    pub capabilities: Option<CapabilitySet>,
    pub parameters: VolumeParameters,
    pub topology: Option<Topology>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityAnswer {
    pub available: u64,
    pub maximum_volume: u64,
    pub minimum_volume: u64,
}

#[derive(Debug, Clone)]
pub struct CreateSnapshot {
    pub name: ObjectName,
    pub source: VolumeId,
    /// From where it has to be usable.
    pub topology: Option<TopologyRequirement>,
}

#[derive(Debug, Clone, Default)]
pub struct SnapshotFilter {
    pub snapshot: Option<SnapshotId>,
    pub source: Option<VolumeId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expanded {
    pub capacity_bytes: u64,
    pub node_expansion_required: bool,
}

/// A volume as a node call names it. Inline volumes have ids of the orchestrator's making.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeRef {
    Issued(VolumeId),
    Foreign(String),
}

impl VolumeRef {
    pub fn parse(text: &str) -> Self {
        match text.parse() {
            Ok(id) => Self::Issued(id),
            Err(_) => Self::Foreign(text.to_owned()),
        }
    }

    /// Where it is; of an inline volume only the pools know.
    pub fn pool(&self) -> Option<&PoolId> {
        match self {
            Self::Issued(id) => Some(id.pool()),
            Self::Foreign(_) => None,
        }
    }

    /// What its lock goes by.
    pub(crate) fn digest(&self) -> NameDigest {
        match self {
            Self::Issued(id) => id.digest().clone(),
            Self::Foreign(text) => NameDigest::of_text(text),
        }
    }
}

impl fmt::Display for VolumeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Issued(id) => id.fmt(f),
            Self::Foreign(text) => f.write_str(&orlop_model::id::shown(text)),
        }
    }
}

#[derive(Debug, Clone)]
pub struct StageVolume {
    pub volume: VolumeId,
    pub path: TargetPath,
    pub capability: VolumeCapability,
    pub publish: PublishContext,
    pub context: VolumeContext,
    pub keys: Arc<VolumeKeys>,
}

#[derive(Debug, Clone)]
pub struct PublishVolume {
    pub volume: VolumeRef,
    pub way: PublishWay,
    pub target: TargetPath,
    pub capability: VolumeCapability,
    pub read_only: bool,
    pub publish: PublishContext,
    pub context: VolumeContext,
    /// Of an inline volume; and of one that is published read-only from a stage that writes, which takes a second mapping.
    pub keys: Arc<VolumeKeys>,
}

/// How a volume comes to the path of a workload (NP-07).
#[derive(Debug, Clone)]
pub enum PublishWay {
    /// From the path at which NodeStageVolume has put it.
    Staged { staging: TargetPath },
    /// It is made for this one publication.
    Inline { spec: InlineVolume },
}

/// What an inline volume is to be.
#[derive(Debug, Clone)]
pub struct InlineVolume {
    pub range: Option<CapacityRange>,
    pub parameters: VolumeParameters,
    pub limits: IoLimitsChange,
}

#[derive(Debug, Clone)]
pub struct VolumeStats {
    pub usage: VolumeUsage,
    pub condition: Condition,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeUsage {
    Filesystem(Usage),
    Block {
        total_bytes: u64,
    },
    /// The path is there, but what was mounted is gone or cannot be asked; see the condition.
    Unknown,
}

#[derive(Debug, Clone)]
pub struct NodeExpand {
    pub volume: VolumeRef,
    pub path: TargetPath,
    pub range: Option<CapacityRange>,
    pub capability: Option<VolumeCapability>,
}

/// The key of a volume that is staged here is to be another one.
pub struct RotateKey {
    pub volume: VolumeId,
    pub path: TargetPath,
    /// Absent: the present one of `keys`.
    pub new: Option<Secret>,
    /// That the volume may have until then.
    pub keys: VolumeKeys,
}

#[derive(Debug, Clone)]
pub struct NodeInfo {
    pub id: NodeId,
    pub topology: Topology,
    pub max_volumes: u32,
}

#[derive(Debug, Clone)]
pub struct CreateGroupSnapshot {
    pub name: ObjectName,
    /// At least one; the order and repetitions mean nothing.
    pub sources: BTreeSet<VolumeId>,
}

/// How far the creation of a group snapshot has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupStage {
    /// Space is reserved and locks are taken; no writer is frozen yet.
    Begun,
    /// All writers are frozen.
    Quiesced,
    /// The data of every member is captured.
    Captured,
    /// All writers are thawed, none of them before every member was captured.
    Thawed,
}

/// A group snapshot with what its members are.
#[derive(Debug, Clone)]
pub struct GroupSnapshot {
    pub record: GroupSnapshotRecord,
    pub members: Vec<SnapshotRecord>,
}

/// The answer to a question about a snapshot's blocks.
pub struct BlockRanges {
    pub capacity_bytes: u64,
    pub ranges: Ranges,
}

#[derive(Debug, Clone)]
pub struct CreateVolumeGroup {
    pub name: ObjectName,
    pub members: BTreeSet<VolumeId>,
    pub max_members: u32,
}

/// A volume group with what its members are.
#[derive(Debug, Clone)]
pub struct VolumeGroup {
    pub record: VolumeGroupRecord,
    pub volumes: Vec<Volume>,
}

/// What a volume took of the pool before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reclaimed {
    pub before_bytes: u64,
    pub after_bytes: u64,
}
