//! Filesystems that are copied instead of made: mkfs runs once, and each copy of what it made gets
//! its own identity.
//!
//! Only for filesystems that were never mounted: no journal holds anything, and the copy is in a
//! file that no other process sees yet. So nothing is synced here, and nothing is ordered.

mod ext4;
mod xfs;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use super::FsKind;
use super::btrfs::rename_btrfs;
use super::format::{Format, format_within};
use crate::error::Result;
use crate::rand::random_bytes;

/// Without the seed, every block's checksum depends on the UUID.
const EXT4_WITH_SEED: [&str; 2] = ["-O", "metadata_csum,metadata_csum_seed"];
/// An empty file is all zero. Else the kernel writes the inode tables after the first mount, and a
/// thin volume takes space for them. From e2fsprogs 1.47 on.
const EXT4_ALL_ZERO: [&str; 2] = ["-E", "assume_storage_prezeroed=1"];

/// CreateVolume waits for a template no longer than this: a volume can be made without one.
const TEMPLATE_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes a filesystem, in an empty image file, that [`renew_identity`] can be used on copies of.
pub fn format_template(image: &Path, kind: FsKind) -> Result<()> {
    match kind {
        FsKind::Ext4 => format_ext4(|options| format_with(image, kind, options)),
        FsKind::Xfs | FsKind::Btrfs => format_with(image, kind, &[]),
    }
}

/// An older mkfs refuses what it does not know. One that hangs would do so again.
fn format_ext4(mut attempt: impl FnMut(&[&str]) -> Result<()>) -> Result<()> {
    match attempt(&[EXT4_WITH_SEED, EXT4_ALL_ZERO].concat()) {
        Err(error) if error.errno() != Some(Errno::TIMEDOUT) => attempt(&EXT4_WITH_SEED),
        outcome => outcome,
    }
}

fn format_with(image: &Path, kind: FsKind, options: &[&str]) -> Result<()> {
    let extra_options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    let format = Format { kind, uuid: random_bytes()?, extra_options: &extra_options };
    format_within(TEMPLATE_TIMEOUT, image, &format)
}

/// Gives a copy of what [`format_template`] made a UUID. The caller syncs the file.
pub fn renew_identity(copy: &File, kind: FsKind, uuid: [u8; 16]) -> Result<()> {
    match kind {
        FsKind::Ext4 => ext4::renew(copy, &ext4::Ext4Identity { uuid, hash_seed: random_bytes()? }),
        FsKind::Xfs => xfs::renew(copy, uuid),
        FsKind::Btrfs => rename_btrfs(copy, uuid),
    }
}

#[cfg(test)]
mod tests;
