//! Freeing the blocks of a file that is about to be removed.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use rustix::io::Errno;

use super::set_length;
use crate::abi::{Lease, take_lease};
use crate::error::{Context, Result};
use crate::resolve::{ResolvedPath, descriptor_path};

/// A program that was just started has all files of this process open until its own code begins.
const ATTEMPTS: u32 = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Truncates a file, because XFS frees the blocks of a removed file some time later. `false`: it is as
/// it was, because it has another name, something else has it open or may have, or it is no regular file
/// of this directory. Nothing can open it before it is truncated.
pub fn try_truncate_unused(path: &Path) -> Result<bool> {
    const OPERATION: &str = "truncate";
    let resolved = match ResolvedPath::of(OPERATION, path) {
        Err(error) if error.is_not_found() => return Ok(false),
        resolved => resolved?,
    };
    // Not opened to write before it is known what it is, and not if something is mounted over it.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = openat2(
        &resolved.parent,
        &resolved.name,
        flags,
        Mode::empty(),
        ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS,
    );
    let there = match there {
        Err(Errno::NOENT | Errno::XDEV) => return Ok(false),
        there => there.on(OPERATION, path)?,
    };
    for attempt in 0..ATTEMPTS {
        if !has_one_name(&fstat(&there).on(OPERATION, path)?) {
            return Ok(false);
        }
        if attempt > 0 {
            std::thread::sleep(POLL_INTERVAL);
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match open(descriptor_path(there.as_fd()), flags, Mode::empty()) {
            // Another program has a lease.
            Err(Errno::AGAIN) => continue,
            file => File::from(file.on(OPERATION, path)?),
        };
        // The lease lasts until the file is closed: an open that comes now waits, and finds it empty.
        match take_lease(&file, Lease::Write) {
            Ok(()) if has_one_name(&fstat(&file).on(OPERATION, path)?) => {
                return set_length(&file, 0).map(|()| true);
            }
            Err(Errno::AGAIN) => {}
            // The filesystem does not say who has it open.
            Ok(()) | Err(_) => return Ok(false),
        }
    }
    Ok(false)
}

fn has_one_name(file: &Stat) -> bool {
    FileType::from_raw_mode(file.st_mode) == FileType::RegularFile && file.st_nlink == 1
}

#[cfg(test)]
mod tests;
