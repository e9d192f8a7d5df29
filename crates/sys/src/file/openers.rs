//! Is a file open elsewhere? By whatever path, in whatever mount namespace, and by the kernel too, as
//! the file of a loop device is.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags, makedev, statx};
use rustix::io::Errno;

use crate::abi::{Lease, take_lease};
use crate::error::{Context, Result};
use crate::loopdev::{first_process, is_below, remote_mounts};
use crate::resolve;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openers {
    None,
    /// It is open, but not for writing.
    Readers,
    Writers,
    /// The filesystem does not say, or only to the owner of the file.
    Unknown,
}

/// At this instant. It takes the same time however many files, devices and processes there are. Files
/// that this process has open itself count as well.
pub fn openers(path: &Path) -> Result<Openers> {
    // Not waiting: another program may have a lease.
    let opened = resolve::open_existing("open", path, OFlags::RDONLY | OFlags::NONBLOCK);
    let file = match opened {
        Err(error) if error.errno() == Some(Errno::AGAIN) => return Ok(Openers::Unknown),
        file => file?,
    };
    Ok(match take_lease(&file, Lease::Write) {
        Ok(()) => Openers::None,
        Err(Errno::AGAIN) => match take_lease(&file, Lease::Read) {
            Ok(()) => Openers::Readers,
            Err(_) => Openers::Writers,
        },
        Err(_) => Openers::Unknown,
    })
}

/// A process that has the file open for writing, as far as that can be seen from here.
pub fn writer(path: &Path) -> Result<Option<String>> {
    let file = fs::symlink_metadata(path).on("stat", path)?;
    Ok(first_process(|process| {
        writes(process, (file.dev(), file.ino())).then(|| "has it open for writing".to_owned())
    }))
}

fn writes(process: &Path, wanted: (u64, u64)) -> bool {
    let Ok(opened) = fs::read_dir(process.join("fd")) else { return false };
    let remote = remote_mounts(process);
    opened.flatten().any(|entry| {
        let Ok(target) = fs::read_link(entry.path()) else { return false };
        target.is_absolute()
            && !is_below(&target, &remote)
            && inode_of(&entry.path()) == Some(wanted)
            && is_for_writing(process, &entry.file_name())
    })
}

/// As far as the kernel has it in memory: a server that shows the file may be dead.
fn inode_of(path: &Path) -> Option<(u64, u64)> {
    let there = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    Some((makedev(there.stx_dev_major, there.stx_dev_minor), there.stx_ino))
}

fn is_for_writing(process: &Path, descriptor: &std::ffi::OsStr) -> bool {
    let info = fs::read_to_string(process.join("fdinfo").join(descriptor)).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let access = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    access.is_some_and(|flags| {
        OFlags::from_bits_retain(flags).intersects(OFlags::WRONLY | OFlags::RDWR)
    })
}

#[cfg(test)]
mod tests;
