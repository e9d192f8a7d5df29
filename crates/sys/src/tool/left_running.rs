//! Programs that outlive the process which started them, found again by the next one: each holds a shared lock on a file
//! until it ends.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

use super::own_session::{Ended, run_to_end_with};
use crate::error::{Context, Result};

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// As [`super::run_to_end`], for [`all_ended_within`]: the program has the lock on `file` instead of an input. This process
/// keeps no copy of it, as a thread of it that waits in the kernel would keep the lock after the program's end.
pub fn run_to_end_locking<I, S>(file: &Path, name: &str, arguments: I) -> Result<Ended>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let lock = opened(file)?;
    // Waits for a call of `all_ended_within`, which holds it for a moment.
    flock(&lock, FlockOperation::LockShared).on("lock", file)?;
    run_to_end_with(Stdio::from(lock), name, arguments)
}

/// Have all programs ended that were started with a lock on this file? Waits for them up to `limit`.
pub fn all_ended_within(limit: Duration, file: &Path) -> Result<bool> {
    let lock = opened(file)?;
    let deadline = Instant::now() + limit;
    loop {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(POLL_INTERVAL);
            }
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).on("lock", file),
        }
    }
}

fn opened(file: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(open(file, flags, Mode::RUSR | Mode::WUSR).on("open the lock", file)?))
}

#[cfg(test)]
mod tests;
