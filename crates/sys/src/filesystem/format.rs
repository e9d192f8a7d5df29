use std::ffi::OsString;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::fsync;

use super::FsKind;
use super::btrfs::set_btrfs_uuid;
use super::claim::{claim, wait_until_unclaimed};
use super::signature::{HEAD, Signature, TAIL, probe};
use crate::device_lock::DeviceLock;
use crate::error::{Context, Result};
use crate::file::sync_device;
use crate::{loopdev, tool};

#[derive(Debug, Clone, Copy)]
pub struct Format<'a> {
    pub kind: FsKind,
    pub uuid: [u8; 16],
    /// Further arguments for mkfs, one in each string.
    pub extra_options: &'a [String],
}

/// Makes a filesystem, whatever was there before. It is on the device when this returns.
pub fn format(device: &Path, format: &Format<'_>) -> Result<()> {
    let lock = DeviceLock::take(device)?;
    make(device, format, |mkfs, arguments| lock.run(mkfs, arguments, &[0]).map(drop))
}

/// Where half a filesystem does no harm: mkfs is stopped if it takes longer than that.
pub(super) fn format_within(limit: Duration, device: &Path, format: &Format<'_>) -> Result<()> {
    make(device, format, |mkfs, arguments| tool::run_within(limit, mkfs, arguments).map(drop))
}

fn make(
    device: &Path,
    format: &Format<'_>,
    run: impl FnOnce(&str, Vec<OsString>) -> Result<()>,
) -> Result<()> {
    // A superblock that the new filesystem happens not to overwrite would make it ambiguous.
    if probe(device)? != Signature::Blank {
        erase_signatures(device)?;
    }
    let uuid = hyphenated(format.uuid);
    let mut arguments = match format.kind {
        FsKind::Ext4 => ext4_arguments(&uuid, format.extra_options),
        FsKind::Xfs => xfs_arguments(&uuid, format.extra_options),
        FsKind::Btrfs => btrfs_arguments(format.extra_options),
    };
    arguments.push(device.into());
    wait_until_unclaimed(device)?;
    run(format.kind.mkfs(), arguments)?;
    match format.kind {
        FsKind::Ext4 | FsKind::Xfs => {}
        FsKind::Btrfs => set_btrfs_uuid(device, format.uuid)?,
    }
    sync_device(device)
}

fn erase_signatures(device: &Path) -> Result<()> {
    let claim = claim(device)?;
    let size = loopdev::size(device)?;
    for (offset, length) in [(0, HEAD.min(size)), (size.saturating_sub(TAIL), TAIL.min(size))] {
        let zeros = vec![0; usize::try_from(length).unwrap_or(0)];
        claim.file.write_all_at(&zeros, offset).effect_on("erase", device)?;
    }
    fsync(&claim.file).effect_on("sync", device)
}

// Discarding is left out everywhere: a fresh image has nothing to discard, and a preallocated one
// would lose its blocks. Sectors and blocks have 4096 bytes, as the loop devices have.

/// Tables and journal are not written out: 5 MiB instead of 517 at 100 GiB.
fn ext4_arguments(uuid: &str, extra: &[String]) -> Vec<OsString> {
    let mut extended = "nodiscard,lazy_itable_init=1,lazy_journal_init=1".to_owned();
    let mut others = Vec::new();
    let mut extra = extra.iter();
    // mke2fs forgets all but the last -E.
    while let Some(option) = extra.next() {
        match (option.as_str(), option.strip_prefix("-E")) {
            ("-E", _) => extra.next().into_iter().for_each(|value| push_list(&mut extended, value)),
            (_, Some(value)) => push_list(&mut extended, value),
            (_, None) => others.push(option.as_str()),
        }
    }
    let mut arguments = owned(&["-F", "-q", "-b", "4096", "-m", "0", "-U", uuid, "-E", &extended]);
    arguments.extend(owned(&others));
    arguments
}

fn push_list(list: &mut String, value: &str) {
    list.push(',');
    list.push_str(value);
}

fn xfs_arguments(uuid: &str, extra: &[String]) -> Vec<OsString> {
    let uuid = format!("uuid={uuid}");
    let mut arguments = owned(&["-f", "-q", "-K", "-s", "size=4096", "-m", &uuid]);
    arguments.extend(extra.iter().map(OsString::from));
    arguments
}

/// Without -U, for which mkfs.btrfs reads every block device of the machine to see that the UUID
/// is new: it would wait for the slowest of them, and hold those that others want to detach.
fn btrfs_arguments(extra: &[String]) -> Vec<OsString> {
    let mut arguments = owned(&["-f", "-q", "-K"]);
    arguments.extend(extra.iter().map(OsString::from));
    arguments
}

fn owned(arguments: &[&str]) -> Vec<OsString> {
    arguments.iter().map(OsString::from).collect()
}

fn hyphenated(uuid: [u8; 16]) -> String {
    let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let groups = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]];
    groups.map(digits).join("-")
}

#[cfg(test)]
mod tests;
