//! What a caller wants to do with a volume, and what a volume was made for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

mod mount_flags;

pub use mount_flags::MountFlags;

/// The filesystems that Orlop makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FsType {
    Ext4,
    Xfs,
    Btrfs,
}

impl FsType {
    pub const ALL: [Self; 3] = [Self::Xfs, Self::Ext4, Self::Btrfs];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The smallest volume on which today's mkfs makes this filesystem with a useful journal.
    pub fn smallest_volume(self) -> u64 {
        const MIB: u64 = 1 << 20;
        match self {
            Self::Ext4 => 16 * MIB,
            Self::Xfs => 300 * MIB,
            // mkfs would take less, but the kernel grows no btrfs to less than this.
            Self::Btrfs => 256 * MIB,
        }
    }
}

impl fmt::Display for FsType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FsType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|fs| fs.as_str() == text).ok_or_else(|| {
            Error::invalid("fs_type", "is not one of xfs, ext4, btrfs (empty takes the default)")
        })
    }
}

/// How many may use a volume at once, and whether they may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    SingleNodeWriter,
    SingleNodeReaderOnly,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
}

impl AccessMode {
    pub fn is_multi_node(self) -> bool {
        match self {
            Self::MultiNodeReaderOnly
            | Self::MultiNodeSingleWriter
            | Self::MultiNodeMultiWriter => true,
            Self::SingleNodeWriter
            | Self::SingleNodeReaderOnly
            | Self::SingleNodeSingleWriter
            | Self::SingleNodeMultiWriter => false,
        }
    }

    pub fn is_read_only(self) -> bool {
        matches!(self, Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly)
    }

    /// May one node publish the volume at a second path? The NP table: MULTI_NODE modes and
    /// SINGLE_NODE_MULTI_WRITER may, all others may not.
    pub fn allows_second_target(self) -> bool {
        self.is_multi_node() || self == Self::SingleNodeMultiWriter
    }

    /// May a volume made for `self` be used in the mode `wanted`? Older callers say
    /// SINGLE_NODE_WRITER for all three single-node writing modes (AM-16), so these stand for
    /// each other; reading on one node is always less than what was granted.
    pub fn grants(self, wanted: Self) -> bool {
        match wanted {
            Self::SingleNodeReaderOnly => true,
            Self::SingleNodeWriter | Self::SingleNodeSingleWriter | Self::SingleNodeMultiWriter => {
                !self.is_read_only()
            }
            Self::MultiNodeReaderOnly => self.is_multi_node(),
            Self::MultiNodeSingleWriter => self.is_multi_node() && !self.is_read_only(),
            Self::MultiNodeMultiWriter => self == Self::MultiNodeMultiWriter,
        }
    }
}

/// As the protocol calls it.
impl fmt::Display for AccessMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SingleNodeWriter => "SINGLE_NODE_WRITER",
            Self::SingleNodeReaderOnly => "SINGLE_NODE_READER_ONLY",
            Self::MultiNodeReaderOnly => "MULTI_NODE_READER_ONLY",
            Self::MultiNodeSingleWriter => "MULTI_NODE_SINGLE_WRITER",
            Self::MultiNodeMultiWriter => "MULTI_NODE_MULTI_WRITER",
            Self::SingleNodeSingleWriter => "SINGLE_NODE_SINGLE_WRITER",
            Self::SingleNodeMultiWriter => "SINGLE_NODE_MULTI_WRITER",
        })
    }
}

/// A filesystem mount as asked for. `fs` is absent when the caller takes the default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountAccess {
    pub fs: Option<FsType>,
    pub flags: MountFlags,
    pub group: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessType {
    Block,
    Mount(MountAccess),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeCapability {
    pub access: AccessType,
    pub mode: AccessMode,
}

impl VolumeCapability {
    pub fn is_block(&self) -> bool {
        matches!(self.access, AccessType::Block)
    }

    pub fn fs(&self) -> Option<FsType> {
        match &self.access {
            AccessType::Block => None,
            AccessType::Mount(mount) => mount.fs,
        }
    }

    /// The same way of using a volume, whatever the mount flags and the group (which differ
    /// between workloads that share it).
    pub fn same_use(&self, other: &Self) -> bool {
        self.is_block() == other.is_block() && self.fs() == other.fs() && self.mode == other.mode
    }
}

/// Without mount flags, which are never shown.
impl fmt::Display for VolumeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.access, self.fs()) {
            (AccessType::Block, _) => write!(f, "block {}", self.mode),
            (AccessType::Mount(_), Some(fs)) => write!(f, "mount of {fs} {}", self.mode),
            (AccessType::Mount(_), None) => write!(f, "mount {}", self.mode),
        }
    }
}

/// At least one capability; a volume satisfies each of them (CV-09).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<VolumeCapability>", into = "Vec<VolumeCapability>")]
pub struct CapabilitySet(Vec<VolumeCapability>);

impl fmt::Display for CapabilitySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join(" and "))
    }
}

impl CapabilitySet {
    pub fn new(capabilities: Vec<VolumeCapability>) -> Result<Self> {
        if capabilities.is_empty() {
            return Err(Error::invalid("volume_capabilities", "is empty"));
        }
        let mut named = capabilities.iter().filter_map(VolumeCapability::fs);
        if let Some(first) = named.next()
            && named.any(|other| other != first)
        {
            return Err(Error::invalid(
                "volume_capabilities",
                "names two filesystems; a volume has one",
            ));
        }
        Ok(Self(capabilities))
    }

    pub fn iter(&self) -> impl Iterator<Item = &VolumeCapability> {
        self.0.iter()
    }

    pub fn wants_block(&self) -> bool {
        self.0.iter().any(VolumeCapability::is_block)
    }

    pub fn wants_mount(&self) -> bool {
        !self.0.iter().all(VolumeCapability::is_block)
    }

    /// The filesystem that was named, if any was.
    pub fn fs(&self) -> Option<FsType> {
        self.0.iter().find_map(VolumeCapability::fs)
    }

    /// Names the filesystem where the caller left it open, so that a later change of the
    /// default does not change what this volume is.
    pub fn with_default_fs(mut self, default: FsType) -> Self {
        let chosen = self.fs().unwrap_or(default);
        for capability in &mut self.0 {
            if let AccessType::Mount(mount) = &mut capability.access {
                mount.fs.get_or_insert(chosen);
            }
        }
        self
    }

    /// Do both sets ask for the same uses, in any order?
    pub fn same_uses(&self, other: &Self) -> bool {
        let covers = |a: &Self, b: &Self| a.0.iter().all(|x| b.0.iter().any(|y| x.same_use(y)));
        covers(self, other) && covers(other, self)
    }

    /// Was the volume made for this? The text says what it lacks.
    pub fn check_grants(&self, wanted: &VolumeCapability) -> std::result::Result<(), String> {
        let same_type = |c: &&VolumeCapability| c.is_block() == wanted.is_block();
        let mut of_type = self.0.iter().filter(same_type).peekable();
        let Some(first) = of_type.peek() else {
            let (has, wants) = if wanted.is_block() {
                ("filesystem mounts", "a raw block device")
            } else {
                ("raw block access", "a filesystem mount")
            };
            return Err(format!("the volume was made for {has}, not for {wants}"));
        };
        if let (Some(made), Some(asked)) = (first.fs(), wanted.fs())
            && made != asked
        {
            return Err(format!("the volume's filesystem is {made}, not {asked}"));
        }
        if of_type.any(|c| c.mode.grants(wanted.mode)) {
            return Ok(());
        }
        Err("the volume was not made for this access mode".to_owned())
    }
}

impl TryFrom<Vec<VolumeCapability>> for CapabilitySet {
    type Error = Error;

    fn try_from(capabilities: Vec<VolumeCapability>) -> Result<Self> {
        Self::new(capabilities)
    }
}

impl From<CapabilitySet> for Vec<VolumeCapability> {
    fn from(set: CapabilitySet) -> Self {
        set.0
    }
}

#[cfg(test)]
mod tests;
