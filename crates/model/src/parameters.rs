//! StorageClass parameters and the limits that can be changed while a volume is in use.

mod lvm_layout;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::capability::FsType;
use crate::encryption::{Encryption, EncryptionKind};
use crate::error::{Error, Result};
pub use lvm_layout::{LvmLayout, RaidLevel};

/// When space is taken from the pool: as data is written, or all at once at creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provisioning {
    #[default]
    Thin,
    Thick,
}

impl Provisioning {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Thin => "thin",
            Self::Thick => "thick",
        }
    }
}

/// What a volume is made with; fixed for its life.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VolumeParameters {
    /// The name of the pool to use; absent leaves the choice to placement.
    pub pool: Option<String>,
    pub provisioning: Provisioning,
    /// Arguments for mkfs, from [`MKFS_OPTIONS`].
    pub mkfs_options: Vec<String>,
    /// Of a thick volume in an lvm pool.
    #[serde(default, skip_serializing_if = "LvmLayout::is_default")]
    pub lvm: LvmLayout,
    /// Absent: not encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
}

/// Orchestrators put what they know of the claim under these prefixes, into parameters as well
/// as into a volume's context. It is theirs: accepted and not looked at.
const FOREIGN_PREFIXES: [&str; 2] = ["csi.storage.k8s.io/", "storage.kubernetes.io/"];

pub fn is_foreign_key(key: &str) -> bool {
    FOREIGN_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// mkfs arguments that change how a filesystem is laid out and nothing else, and whose they are.
const MKFS_OPTIONS: [(&str, &[FsType]); 6] = [
    ("-i", &[FsType::Ext4, FsType::Xfs]), // bytes per inode; inode options
    ("-N", &[FsType::Ext4]),              // number of inodes
    ("-m", &[FsType::Ext4, FsType::Xfs]), // reserved percentage; metadata options
    ("-O", &[FsType::Ext4, FsType::Btrfs]), // features
    ("-L", &FsType::ALL),                 // label
    ("-n", &[FsType::Xfs, FsType::Btrfs]), // directory options; node size
];

/// Those that can be given for a filesystem.
fn mkfs_options_of(fs: FsType) -> Vec<&'static str> {
    MKFS_OPTIONS.into_iter().filter(|(_, of)| of.contains(&fs)).map(|(option, _)| option).collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_word(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.,=^".contains(&b);
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(plain)
}

impl VolumeParameters {
    /// Also returns the I/O limits that stand among the parameters (CV-19 lets
    /// `mutable_parameters` override them).
    pub fn parse(parameters: &BTreeMap<String, String>) -> Result<(Self, IoLimitsChange)> {
        let mut parsed = Self::default();
        let mut limits = IoLimitsChange::default();
        for (key, value) in parameters {
            parsed.set(&mut limits, key, value)?;
        }
        parsed.check_layout()?;
        Ok((parsed, limits))
    }

    /// What of them is meaningful, and why the rest is not. For a question that is asked before
    /// CreateVolume gets to refuse them.
    pub fn parse_leniently(parameters: &BTreeMap<String, String>) -> (Self, Vec<Error>) {
        let mut parsed = Self::default();
        let set = |(key, value): (&String, &String)| {
            parsed.set(&mut IoLimitsChange::default(), key, value).err()
        };
        let mut refused: Vec<Error> = parameters.iter().filter_map(set).collect();
        refused.extend(parsed.check_layout().err());
        (parsed, refused)
    }

    fn set(&mut self, limits: &mut IoLimitsChange, key: &str, value: &str) -> Result<()> {
        match key {
            "pool" => self.pool = Some(parse_pool(value)?),
            "provisioning" => self.provisioning = parse_provisioning(value)?,
            "mkfsOptions" => self.mkfs_options = parse_mkfs_options(value)?,
            other if lvm_layout::KEYS.contains(&other) => self.lvm.set(other, value)?,
            "encryption" => {
                self.encryption =
                    Some(Encryption { kind: parse_encryption(value)?, discard: true });
            }
            // Keys come in order, so what it belongs to was there before.
            "encryptionDiscard" => match &mut self.encryption {
                Some(encryption) => encryption.discard = parse_flag(key, value)?,
                None => {
                    return Err(Error::invalid(
                        "parameters",
                        "encryptionDiscard is given without encryption",
                    ));
                }
            },
            other if is_foreign_key(other) => {}
            other if LIMITS.contains(&other) => limits.set(other, value)?,
            other => {
                return Err(unknown(other, &[&FIXED[..], &lvm_layout::KEYS, &LIMITS].concat()));
            }
        }
        Ok(())
    }

    /// Thin volumes lie as their thin pool does.
    fn check_layout(&self) -> Result<()> {
        self.lvm.check()?;
        match (self.lvm.given(), self.provisioning) {
            (Some(key), Provisioning::Thin) => Err(Error::invalid(
                "parameters",
                format!(
                    "{key} is for thick volumes: thin ones lie as the thin pool of their lvm pool does; add \
                     provisioning: thick, or set it for the thin pool in the daemon's configuration"
                ),
            )),
            (Some(_) | None, Provisioning::Thin | Provisioning::Thick) => Ok(()),
        }
    }

    /// For a pool of another kind than lvm.
    pub fn check_no_layout(&self, pool: &str, kind: &str) -> Result<()> {
        let refused = |key| {
            let reason = format!("{key} is for lvm pools, and pool {pool} is of kind {kind}");
            Error::invalid("parameters", reason)
        };
        self.lvm.given().map_or(Ok(()), |key| Err(refused(key)))
    }

    /// Refuses mkfs arguments of another filesystem at creation, not at the first mount.
    pub fn check_fit(&self, fs: FsType) -> Result<()> {
        let fitting = mkfs_options_of(fs);
        match self.mkfs_options.iter().step_by(2).find(|it| !fitting.contains(&it.as_str())) {
            None => Ok(()),
            Some(option) => Err(Error::invalid(
                "parameters",
                format!(
                    "mkfsOptions: {option} is not for {fs}, which takes {}",
                    fitting.join(", ")
                ),
            )),
        }
    }
}

/// What may be given at creation only, and what can be changed later as well.
const FIXED: [&str; 5] = ["pool", "provisioning", "mkfsOptions", "encryption", "encryptionDiscard"];
const LIMITS: [&str; 4] = ["readIops", "writeIops", "readBytesPerSecond", "writeBytesPerSecond"];

fn unknown(key: &str, known: &[&str]) -> Error {
    let names_filesystem = ["fstype", "fs", "filesystem"].contains(&key.to_lowercase().as_str());
    let instead = if names_filesystem {
        "; the filesystem is the capability's fs_type, which a StorageClass sets by \
         csi.storage.k8s.io/fstype"
    } else {
        ""
    };
    let (key, known) = (crate::id::shown(key), known.join(", "));
    Error::invalid(
        "parameters",
        format!("{key} is not a parameter of this plugin, which takes {known}{instead}"),
    )
}

fn parse_pool(value: &str) -> Result<String> {
    if is_word(value) && value.len() <= 63 {
        return Ok(value.to_owned());
    }
    Err(Error::invalid(
        "parameters",
        "pool is not a name of at most 63 letters, digits, '-', '_', '.'",
    ))
}

fn parse_provisioning(value: &str) -> Result<Provisioning> {
    match value {
        "thin" => Ok(Provisioning::Thin),
        "thick" => Ok(Provisioning::Thick),
        _ => Err(Error::invalid("parameters", "provisioning is neither thin nor thick")),
    }
}

fn parse_encryption(value: &str) -> Result<EncryptionKind> {
    match value {
        "luks2" => Ok(EncryptionKind::Luks2),
        _ => Err(Error::invalid(
            "parameters",
            "encryption is not luks2, which is all that is offered; leave it out for none",
        )),
    }
}

fn parse_flag(key: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| {
        let reason = format!("{key} is neither true nor false");
        Error::invalid("parameters", reason)
    })
}

/// Pairs of an allowed option and its value, separated by blanks: `-i 16384 -O ^has_journal`.
fn parse_mkfs_options(value: &str) -> Result<Vec<String>> {
    let words: Vec<&str> = value.split_ascii_whitespace().collect();
    for pair in words.chunks(2) {
        let allowed = match pair {
            [option, value] => {
                let known = MKFS_OPTIONS.iter().any(|(known, _)| known == option);
                // The UUID is Orlop's to choose.
                known && is_word(value) && !value.contains("uuid")
            }
            _ => false,
        };
        if !allowed {
            return Err(Error::invalid(
                "parameters",
                "mkfsOptions takes pairs of -i, -N, -m, -O, -L, -n and a plain value",
            ));
        }
    }
    Ok(words.into_iter().map(str::to_owned).collect())
}

/// What a staged volume may do at most; absent means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IoLimits {
    pub read_iops: Option<u64>,
    pub write_iops: Option<u64>,
    pub read_bytes_per_second: Option<u64>,
    pub write_bytes_per_second: Option<u64>,
}

impl IoLimits {
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// Those that are set, with the keys of the parameters.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("readIops", self.read_iops),
            ("writeIops", self.write_iops),
            ("readBytesPerSecond", self.read_bytes_per_second),
            ("writeBytesPerSecond", self.write_bytes_per_second),
        ];
        all.into_iter().filter_map(|(key, limit)| Some((key, limit?)))
    }
}

/// A change of limits: keys that are absent stay as they are (MV-09); 0 or `max` lifts one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IoLimitsChange {
    read_iops: Option<Option<u64>>,
    write_iops: Option<Option<u64>>,
    read_bytes_per_second: Option<Option<u64>>,
    write_bytes_per_second: Option<Option<u64>>,
}

impl IoLimitsChange {
    pub fn parse(parameters: &BTreeMap<String, String>) -> Result<Self> {
        let mut change = Self::default();
        for (key, value) in parameters {
            change.set(key, value)?;
        }
        Ok(change)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let field = match key {
            "readIops" => &mut self.read_iops,
            "writeIops" => &mut self.write_iops,
            "readBytesPerSecond" => &mut self.read_bytes_per_second,
            "writeBytesPerSecond" => &mut self.write_bytes_per_second,
            _ => return Err(unknown(key, &LIMITS)),
        };
        *field = Some(parse_limit(key, value)?);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// `self` first, then `later` on top of it.
    pub fn then(self, later: Self) -> Self {
        Self {
            read_iops: later.read_iops.or(self.read_iops),
            write_iops: later.write_iops.or(self.write_iops),
            read_bytes_per_second: later.read_bytes_per_second.or(self.read_bytes_per_second),
            write_bytes_per_second: later.write_bytes_per_second.or(self.write_bytes_per_second),
        }
    }

    pub fn applied_to(&self, limits: IoLimits) -> IoLimits {
        IoLimits {
            read_iops: self.read_iops.unwrap_or(limits.read_iops),
            write_iops: self.write_iops.unwrap_or(limits.write_iops),
            read_bytes_per_second: self
                .read_bytes_per_second
                .unwrap_or(limits.read_bytes_per_second),
            write_bytes_per_second: self
                .write_bytes_per_second
                .unwrap_or(limits.write_bytes_per_second),
        }
    }
}

/// The kernel takes rates up to 32 bits for operations and 64 for bytes; nothing real is above
/// this, and a typo is.
const HIGHEST_RATE: u64 = 1 << 40;

fn parse_limit(key: &str, value: &str) -> Result<Option<u64>> {
    if value == "max" {
        return Ok(None);
    }
    let highest = if key.ends_with("Iops") { u64::from(u32::MAX) } else { HIGHEST_RATE };
    match value.parse::<u64>() {
        Ok(0) if is_number(value) => Ok(None),
        Ok(rate) if is_number(value) && rate <= highest => Ok(Some(rate)),
        Ok(_) | Err(_) => Err(Error::invalid(
            "parameters",
            format!("{key} is not a whole number up to {highest}, or max"),
        )),
    }
}

#[cfg(test)]
mod tests;
