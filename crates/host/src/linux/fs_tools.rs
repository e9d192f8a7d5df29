//! Which filesystems this machine can make.

use orlop_model::{Error, FsType, Result};
use orlop_sys::filesystem::{self as fs, FsKind};

use super::filesystem::kind_of;

/// The filesystems that were usable at start, the default first.
pub(super) struct FsTools {
    filesystems: Vec<FsType>,
}

impl FsTools {
    pub(super) fn choose(configured: Option<Vec<FsType>>, default: Option<FsType>) -> Result<Self> {
        let usable = match configured {
            Some(wanted) => {
                wanted.iter().try_for_each(|fs| check_installed(*fs))?;
                wanted
            }
            None => FsType::ALL.into_iter().filter(|fs| is_installed(*fs)).collect(),
        };
        if usable.is_empty() {
            tracing::warn!(
                "no filesystem can be made here, so only raw block volumes are offered; install \
                 xfsprogs, e2fsprogs or btrfs-progs, or name filesystems in ORLOP_FILESYSTEMS"
            );
        }
        let filesystems = default_first(&usable, default)?;
        Ok(Self { filesystems })
    }

    pub(super) fn filesystems(&self) -> &[FsType] {
        &self.filesystems
    }

    pub(super) fn check_tools(&self) -> Result<()> {
        let kinds: Vec<FsKind> = self.filesystems.iter().copied().map(kind_of).collect();
        match fs::missing_tool(&kinds) {
            None => Ok(()),
            Some(tool) => Err(Error::precondition(format!(
                "cannot find {tool}, which was installed when the daemon started; install it again"
            ))),
        }
    }
}

/// With every tool that a volume needs over its life: mkfs alone would let ext4 be made and never
/// grow.
fn is_installed(fs: FsType) -> bool {
    fs::missing_tool(&[kind_of(fs)]).is_none()
}

fn check_installed(fs: FsType) -> Result<()> {
    match fs::missing_tool(&[kind_of(fs)]) {
        None => Ok(()),
        Some(tool) => Err(Error::invalid(
            "ORLOP_FILESYSTEMS",
            format!(
                "names {fs}, but {tool} is not installed; install {} or take {fs} out of it",
                package_of(fs)
            ),
        )),
    }
}

fn package_of(fs: FsType) -> &'static str {
    match fs {
        FsType::Ext4 => "e2fsprogs",
        FsType::Xfs => "xfsprogs",
        FsType::Btrfs => "btrfs-progs",
    }
}

/// In the order of preference, each once, with the default in front.
fn default_first(usable: &[FsType], default: Option<FsType>) -> Result<Vec<FsType>> {
    if let Some(default) = default
        && !usable.contains(&default)
    {
        return Err(Error::invalid(
            "ORLOP_DEFAULT_FS",
            format!(
                "{default} is not among the filesystems that can be made here; install {}, add it \
                 to ORLOP_FILESYSTEMS, or choose another default",
                package_of(default)
            ),
        ));
    }
    let mut ordered: Vec<FsType> =
        FsType::ALL.into_iter().filter(|fs| usable.contains(fs)).collect();
    // Stable: the others keep their order.
    ordered.sort_by_key(|fs| Some(*fs) != default);
    Ok(ordered)
}

#[cfg(test)]
mod tests;
