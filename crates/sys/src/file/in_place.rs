//! Files that btrfs overwrites where they are.
//!
//! Usually it writes everything to a new place, with a checksum, and needs free space for it, even
//! to overwrite. A file that is marked with `FS_NOCOW_FL` while it is empty has neither checksums nor
//! that need, except where it shares its data with another file.

use std::fs::File;

use rustix::fs::{IFlags, fstatfs, ioctl_getflags, ioctl_setflags};

use super::{BackingKind, kind_of};
use crate::error::{Context, Result};

/// For an empty file on btrfs. Other filesystems that share extents overwrite in place anyway.
pub fn overwrite_in_place(file: &File) -> Result<()> {
    set(file, true)
}

/// On btrfs; other filesystems overwrite in place anyway, and do not tell.
pub fn is_overwritten_in_place(file: &File) -> Result<bool> {
    Ok(flags(file)?.contains(IFlags::NOCOW))
}

/// `false`: not on this filesystem, or no more, as the file is not empty.
pub(super) fn try_set(file: &File, in_place: bool) -> Result<bool> {
    let filesystem = fstatfs(file).map_err(std::io::Error::from);
    let is_btrfs =
        kind_of(&filesystem.on_fd("read the filesystem type of", file)?) == BackingKind::Btrfs;
    if !is_btrfs || super::copy::length_of(file)? > 0 {
        return Ok(false);
    }
    set(file, in_place).map(|()| true)
}

/// Set again, a flag has an effect, too: without `FS_NOCOW_FL` btrfs gives an empty file the checksums
/// that the mount option `nodatasum` had taken from it.
fn set(file: &File, in_place: bool) -> Result<()> {
    let mut flags = flags(file)?;
    // A directory can hand this down, and btrfs refuses the one beside the other, also where the same
    // call takes it off.
    if flags.contains(IFlags::COMPRESSED) {
        flags.remove(IFlags::COMPRESSED);
        ioctl_setflags(file, flags).effect_on_fd("set the flags of", file)?;
    }
    flags.set(IFlags::NOCOW, in_place);
    ioctl_setflags(file, flags).effect_on_fd("set the flags of", file)
}

fn flags(file: &File) -> Result<IFlags> {
    ioctl_getflags(file).on_fd("read the flags of", file)
}

#[cfg(test)]
mod tests;
