//! The lock of a block device, so that programs change it one after the other.
//!
//! Tools are not killed half-way, so a tool may outlive the daemon that started it, and the next daemon may be asked
//! to run the same tool, to use the device, or to detach it. mkfs in particular inspects a device for a long time
//! before it claims it: a second mkfs would find the device free and be refused a moment later, and the number of a
//! detached device may by then belong to another volume.
//!
//! So each tool inherits a lock, which is released when the tool ends. It is not taken on the device
//! itself, which udev and some versions of mkfs lock as well, but on its directory in sysfs. That
//! is one for all processes of a network namespace; a daemon that comes back in another one, as the
//! container of a new pod, came with a new process namespace too, and the old programs are gone.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, major, minor, open, stat};
use rustix::io::Errno;

use crate::error::{Context, Error, Result};
use crate::resolve::path_of;
use crate::tool;

const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// A child that is being started has a copy of every lock for a moment.
const SHORT_LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) struct DeviceLock {
    lock: Option<File>,
}

/// Waits for a program that an earlier daemon started on a device. If it takes too long, the error
/// has a [`Error::busy_device`].
pub fn wait_until_unlocked(device: &Path) -> Result<()> {
    DeviceLock::take(device).map(drop)
}

impl DeviceLock {
    /// As [`wait_until_unlocked`], and no other program starts for as long as this is held.
    pub(crate) fn take(device: &Path) -> Result<Self> {
        Self::take_within(LOCK_TIMEOUT, device)
    }

    pub(crate) fn take_if_free(device: &Path) -> Result<Self> {
        Self::take_within(SHORT_LOCK_TIMEOUT, device)
    }

    fn take_within(timeout: Duration, device: &Path) -> Result<Self> {
        let lock = match sysfs_of(device)? {
            Some(directory) => Some(locked(&directory, device, timeout)?),
            // No other process uses a file of the caller's.
            None => None,
        };
        Ok(Self { lock })
    }

    /// As [`tool::run_accepting`].
    pub(crate) fn run<I, S>(&self, name: &str, arguments: I, accepted: &[i32]) -> Result<Output>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        tool::run_with(self.inherited()?, name, arguments, accepted)
    }

    /// The lock for the program, which has it for as long as it runs.
    fn inherited(&self) -> Result<Stdio> {
        let Some(lock) = &self.lock else { return Ok(Stdio::null()) };
        lock.try_clone().map(Stdio::from).on("duplicate the lock", &path_of(lock))
    }
}

fn sysfs_of(device: &Path) -> Result<Option<PathBuf>> {
    let found = stat(device).on("stat", device)?;
    let is_device = FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice;
    let (major, minor) = (major(found.st_rdev), minor(found.st_rdev));
    Ok(is_device.then(|| PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))))
}

fn locked(directory: &Path, device: &Path, timeout: Duration) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = open(directory, flags, Mode::empty()).on("open", directory)?;
    let deadline = Instant::now() + timeout;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(File::from(file)),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(POLL_INTERVAL)
            }
            Err(Errno::WOULDBLOCK) => return Err(Error::DeviceBusy { device: device.to_owned() }),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).on("lock", directory),
        }
    }
}

#[cfg(test)]
mod tests;
