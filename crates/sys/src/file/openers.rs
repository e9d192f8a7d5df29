//! Is a file open elsewhere? By whatever path, in whatever mount namespace, and by the kernel too, as
//! the file of a loop device is.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags, makedev, statfs, statx};
use rustix::io::Errno;

use super::durable::{create_file, ensure_no_file};

use crate::abi::{Lease, take_lease};
use crate::error::{Context, Result};
use crate::loopdev::{first_process, is_below, remote_mounts};
use crate::mounts::filesystem_number;
use crate::resolve;

const TRIAL_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openers {
    None,
    /// It is open, but not for writing.
    Readers,
    /// Or the holder of a lease that lets it write.
    Writers,
    /// The filesystem does not say, or only to the owner of the file.
    Unknown,
}

/// At this instant. It takes the same time however many files, devices and processes there are. Files
/// that this process has open itself count as well.
pub fn openers(path: &Path) -> Result<Openers> {
    let file = match resolve::open_without_waiting("open", path, OFlags::RDONLY) {
        // Only a lease that lets its holder write keeps readers out.
        Err(error) if error.leased_file().is_some() => return Ok(Openers::Writers),
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

/// Does [`openers`] tell anything on the filesystem where `trial` can be made? It is a file that nothing
/// has open, and is removed again. NFS and SMB grant leases only as far as their server does, and refuse
/// all others as if the file were open.
pub fn reports_openers(trial: &Path) -> Result<bool> {
    drop(create_file(trial)?);
    let answer = is_of_a_server(trial).and_then(|is_remote| Ok(!is_remote && is_unopened(trial)?));
    ensure_no_file(trial)?;
    answer
}

/// A program that was just started has all files of this process open until its own code begins.
fn is_unopened(trial: &Path) -> Result<bool> {
    let deadline = Instant::now() + TRIAL_TIMEOUT;
    loop {
        match openers(trial)? {
            Openers::None => return Ok(true),
            Openers::Unknown => return Ok(false),
            Openers::Readers | Openers::Writers if Instant::now() >= deadline => return Ok(false),
            Openers::Readers | Openers::Writers => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

fn is_of_a_server(path: &Path) -> Result<bool> {
    let kind = statfs(path).on("read the filesystem type of", path)?.f_type;
    // NFS; the kernel's SMB client by its three numbers. Whether they grant a lease on a new file says
    // nothing of the next file.
    Ok([0x6969, 0xFF53_4D42, 0xFE53_4D42, 0x517B].contains(&(i128::from(kind) & 0xFFFF_FFFF)))
}

/// A process that has the file open for writing or holds a lease on it, as far as that can be seen from
/// here.
pub fn writer(path: &Path) -> Result<Option<String>> {
    let file = fs::symlink_metadata(path).on("stat", path)?;
    let writing = first_process(|process| {
        writes(process, (file.dev(), file.ino())).then(|| "has it open for writing".to_owned())
    });
    Ok(writing.or_else(|| {
        let filesystem = filesystem_number(path).ok()??;
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let holder = lease_holder(&locks, filesystem, file.ino())?;
        first_process(|process| {
            process.ends_with(&holder).then(|| "holds a lease on it".to_owned())
        })
    }))
}

/// The process that holds a write lease, from `N: LEASE ACTIVE WRITE PID MAJOR:MINOR:INODE 0 EOF`. After an
/// open that the lease kept out it is `BREAKING`, with what is to be left of it.
fn lease_holder(locks: &str, (major, minor): (u32, u32), inode: u64) -> Option<String> {
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "LEASE", "ACTIVE", "WRITE", process, file, ..]
            | [_, "LEASE", "BREAKING", _, process, file, ..]
                if file == wanted =>
            {
                Some(process.to_owned())
            }
            _ => None,
        }
    })
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
