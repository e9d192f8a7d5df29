//! Files: their space, durability, and copies that share or keep sparse.

mod copy;
mod discard_zeroes;
mod durable;
mod in_place;
mod lock;
mod lock_owner;
mod lost_writes;
mod openers;
mod presence;
mod punch;
mod regular;
mod remove;
mod restore;
mod small;
mod unused;
mod zero;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{
    FallocateFlags, StatFs, StatVfsMountFlags, XattrFlags, fallocate, fsetxattr, ftruncate,
    lgetxattr, major, minor, statfs, statvfs,
};
use rustix::io::{Errno, retry_on_intr};

pub use copy::{
    CloneOutcome, can_share_extents, copy_apart, copy_sparse, extent_count, has_data,
    has_data_from, preclone_chunks, try_clone_file, try_write,
};
pub use discard_zeroes::{discard_zeroes, read_uncached};
pub(crate) use durable::ensure_directories;
pub use durable::{
    RenameOutcome, close_to_others, create_directory, create_file, create_file_durable,
    create_file_written_out, ensure_file, ensure_no_file, ensure_private_directory, rename_new,
    replace_file, replace_file_until_reboot, replaced_name, sync_device, sync_dir, sync_file,
    sync_filesystem, write_out,
};
pub use in_place::{is_overwritten_in_place, overwrite_in_place};
pub use lock::{Lock, try_lock};
pub use lock_owner::{LockAttempt, LockOwner, lock_after_brief_owners, lock_owner};
pub use lost_writes::{is_lost_write, lost_writes_at, lost_writes_on};
pub use openers::{Openers, openers, reports_openers, writer};
pub use presence::Presence;
pub use punch::punch_zeroes;
pub use regular::{FileAccess, open_regular};
pub use remove::remove_tree;
pub use restore::{EmptyEntry, EntryKind, is_still_at, restore_empty};
pub use small::{read_at_most, read_private, read_small, read_small_no_link};
pub use unused::try_truncate_unused;
pub use zero::zero_range;

use crate::error::{Context, Result};

/// `stat` counts in units of 512 bytes whatever the filesystem's block size.
const STAT_BLOCK: u64 = 512;

/// The space a file takes, as opposed to its length.
pub fn allocated_bytes(path: &Path) -> Result<u64> {
    let metadata = std::fs::symlink_metadata(path).on("stat", path)?;
    Ok(metadata.blocks() * STAT_BLOCK)
}

pub fn set_length(file: &File, bytes: u64) -> Result<()> {
    retry_on_intr(|| ftruncate(file, bytes)).effect_on_fd("set the length of", file)
}

/// Reserves space for a range; the file becomes longer if the range ends past its end.
pub fn preallocate(file: &File, from: u64, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    retry_on_intr(|| fallocate(file, FallocateFlags::empty(), from, bytes))
        .effect_on_fd("reserve space for", file)
}

/// Keeps a number with the file, as a user's extended attribute; durable when the file is.
pub fn set_number(file: &File, name: &str, number: u64) -> Result<()> {
    fsetxattr(file, format!("user.{name}"), &number.to_le_bytes(), XattrFlags::empty())
        .effect_on_fd("set an attribute of", file)
}

/// What [`set_number`] kept there; `None` if nothing did.
pub fn number(path: &Path, name: &str) -> Result<Option<u64>> {
    let mut bytes = [0; 8];
    match lgetxattr(path, format!("user.{name}"), &mut bytes) {
        Ok(length) if length == bytes.len() => Ok(Some(u64::from_le_bytes(bytes))),
        Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(None),
        Err(errno) => Err(errno).on("read an attribute of", path),
    }
}

/// What a filesystem has, in bytes and inodes. `free` is what an ordinary writer can still use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    pub free: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub read_only: bool,
}

impl Space {
    /// No further file can be made. Some filesystems do not count inodes, and say 0 of 0.
    pub fn is_out_of_inodes(&self) -> bool {
        self.inodes > 0 && self.inodes_free == 0
    }
}

/// Has an ext4 stopped writing after an error? Linux 6.15 and later do not call it read-only then.
pub fn has_given_up(path: &Path) -> Result<bool> {
    let device = std::fs::metadata(path).on("stat", path)?.dev();
    let numbers = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    // No such link, or no such file: it is another filesystem.
    let Ok(name) = std::fs::read_link(numbers) else { return Ok(false) };
    let name = name.file_name().unwrap_or_default();
    let options = Path::new("/proc/fs/ext4").join(name).join("options");
    let options = std::fs::read_to_string(options).unwrap_or_default();
    Ok(options.lines().any(|option| matches!(option, "emergency_ro" | "shutdown")))
}

pub fn space(path: &Path) -> Result<Space> {
    let state = statvfs(path).on("read the space of", path)?;
    Ok(Space {
        total: state.f_blocks.saturating_mul(state.f_frsize),
        free: state.f_bavail.saturating_mul(state.f_frsize),
        inodes: state.f_files,
        inodes_free: state.f_ffree,
        read_only: state.f_flag.contains(StatVfsMountFlags::RDONLY) || has_given_up(path)?,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackingKind {
    Xfs,
    Btrfs,
    /// ext2 and ext3 have the same number and are served by the same driver.
    Ext4,
    Tmpfs,
    Overlay,
    Other,
}

/// The filesystem that holds `path`.
pub fn backing_kind(path: &Path) -> Result<BackingKind> {
    let state = statfs(path).on("read the filesystem type of", path)?;
    Ok(kind_of(&state))
}

pub(crate) fn kind_of(state: &StatFs) -> BackingKind {
    match i128::from(state.f_type) {
        0x5846_5342 => BackingKind::Xfs,
        0x9123_683E => BackingKind::Btrfs,
        0xEF53 => BackingKind::Ext4,
        0x0102_1994 => BackingKind::Tmpfs,
        0x794C_7630 => BackingKind::Overlay,
        _ => BackingKind::Other,
    }
}

#[cfg(test)]
mod tests;
