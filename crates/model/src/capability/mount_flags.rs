//! Mount options from callers, checked against a list: an option that is not known to be
//! harmless never reaches the kernel.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::FsType;
use crate::error::{Error, Result};

/// Vetted mount options. They may hold what a caller thinks of as secret (GEN-38), so neither
/// Debug nor any error shows them.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct MountFlags(Vec<String>);

/// AM-05: all entries together.
const LONGEST: usize = 4096;

const ANY: &[&str] = &[
    "ro",
    "rw",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "sync",
    "async",
    "dirsync",
    "discard",
    "nodiscard",
    "defaults",
    "_netdev",
    "context=",
    "fscontext=",
    "defcontext=",
    "rootcontext=",
];
const EXT4: &[&str] = &[
    "acl",
    "noacl",
    "user_xattr",
    "nouser_xattr",
    "barrier",
    "barrier=",
    "commit=",
    "data=",
    "delalloc",
    "nodelalloc",
    "errors=remount-ro",
    "errors=continue",
    "init_itable",
    "init_itable=",
    "noinit_itable",
    "journal_checksum",
    "journal_async_commit",
    "max_batch_time=",
    "min_batch_time=",
    "stripe=",
    "usrquota",
    "grpquota",
    "prjquota",
    "noquota",
    "quota",
    "i_version",
];
const XFS: &[&str] = &[
    "allocsize=",
    "attr2",
    "inode32",
    "inode64",
    "largeio",
    "nolargeio",
    "logbsize=",
    "logbufs=",
    "noalign",
    "noquota",
    "nouuid",
    "pqnoenforce",
    "pquota",
    "prjquota",
    "quota",
    "grpquota",
    "gquota",
    "uquota",
    "usrquota",
    "swalloc",
    "sunit=",
    "swidth=",
    "wsync",
];
const BTRFS: &[&str] = &[
    "acl",
    "noacl",
    "autodefrag",
    "noautodefrag",
    "barrier",
    "commit=",
    "compress",
    "compress=",
    "compress-force",
    "compress-force=",
    "datacow",
    "nodatacow",
    "datasum",
    "nodatasum",
    "discard=async",
    "discard=sync",
    "flushoncommit",
    "noflushoncommit",
    "max_inline=",
    "space_cache=v2",
    "ssd",
    "nossd",
    "ssd_spread",
    "nossd_spread",
    "thread_pool=",
];

impl MountFlags {
    pub fn parse(flags: Vec<String>) -> Result<Self> {
        const FIELD: &str = "mount_flags";
        if flags.iter().map(String::len).sum::<usize>() > LONGEST {
            return Err(Error::invalid(FIELD, "hold more than 4 KiB in all"));
        }
        let known = |flag: &String| [ANY, EXT4, XFS, BTRFS].iter().any(|list| listed(list, flag));
        if let Some(bad) = flags.iter().position(|flag| !known(flag)) {
            return Err(Error::invalid(
                FIELD,
                format!("entry {} is not on the list of allowed mount options", bad + 1),
            ));
        }
        Ok(Self(flags))
    }

    /// Refuses options of another filesystem before the kernel does, with a better text.
    pub fn check_fit(&self, fs: FsType) -> Result<()> {
        let own = match fs {
            FsType::Ext4 => EXT4,
            FsType::Xfs => XFS,
            FsType::Btrfs => BTRFS,
        };
        match self.0.iter().position(|flag| !listed(ANY, flag) && !listed(own, flag)) {
            None => Ok(()),
            Some(bad) => Err(Error::invalid(
                "mount_flags",
                format!("entry {} is not an option of {fs}", bad + 1),
            )),
        }
    }

    /// What goes to the kernel: entries that only fstab readers know are left out.
    pub fn options(&self) -> Vec<String> {
        let not_for_kernel = |flag: &str| matches!(flag, "defaults" | "_netdev" | "ro" | "rw");
        self.0.iter().filter(|flag| !not_for_kernel(flag)).cloned().collect()
    }

    /// The last of `ro` and `rw` counts, as in mount(8).
    pub fn read_only(&self) -> bool {
        let last = self.0.iter().rev().find(|flag| matches!(flag.as_str(), "ro" | "rw"));
        last.is_some_and(|flag| flag == "ro")
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn listed(list: &[&str], flag: &str) -> bool {
    list.iter().any(|entry| match entry.strip_suffix("context=") {
        Some(_) => flag.strip_prefix(entry).is_some_and(is_security_label),
        None if entry.ends_with('=') => flag.strip_prefix(entry).is_some_and(is_plain_value),
        None => *entry == flag,
    })
}

fn is_plain_value(value: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.:".contains(&b);
    !value.is_empty() && value.bytes().all(plain)
}

/// `"user:role:type:s0:c1,c2"`: the one kind of value with commas in it, hence its quotes.
fn is_security_label(value: &str) -> bool {
    let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.:,".contains(&b);
    !bare.is_empty() && bare.bytes().all(plain)
}

impl fmt::Debug for MountFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} mount flags]", self.0.len())
    }
}

impl TryFrom<Vec<String>> for MountFlags {
    type Error = Error;

    fn try_from(flags: Vec<String>) -> Result<Self> {
        Self::parse(flags)
    }
}

impl From<MountFlags> for Vec<String> {
    fn from(flags: MountFlags) -> Self {
        flags.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(flags: &[&str]) -> Result<MountFlags> {
        MountFlags::parse(flags.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn unknown_options_are_refused_without_being_shown() {
        for flag in ["password=hunter2", "subvol=/etc", "norecovery", "errors=panic", "bind", ""] {
            let error = parse(&["noatime", flag]).unwrap_err().to_string();
            assert!(error.contains("entry 2"), "{error}");
            assert!(flag.is_empty() || !error.contains(flag), "{error}");
        }
    }

    #[test]
    fn debug_hides_the_flags() {
        assert_eq!(format!("{:?}", parse(&["commit=77"]).unwrap()), "[1 mount flags]");
    }

    #[test]
    fn options_belong_to_their_filesystem() {
        let flags = parse(&["noatime", "compress=zstd"]).unwrap();
        assert!(flags.check_fit(FsType::Btrfs).is_ok());
        assert!(flags.check_fit(FsType::Xfs).is_err());
    }

    #[test]
    fn read_only_is_removed_from_the_options() {
        let flags = parse(&["rw", "noatime", "ro", "_netdev"]).unwrap();
        assert!(flags.read_only());
        assert_eq!(flags.options(), ["noatime"]);
    }

    #[test]
    fn more_than_four_kibibytes_is_refused() {
        assert!(MountFlags::parse(vec!["noatime".to_owned(); 700]).is_err());
    }
}
