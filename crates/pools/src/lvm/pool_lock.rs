//! The lock of a pool: one daemon on this machine serves it.
//!
//! Two files, beside the locks of LVM itself, so that a container which shares those, as it has to, shares these too. One
//! is named after the thin pool, by its UUID, which stays the same when it or its volume group is renamed. The other is
//! named after the pool's id: a copy of the disks has the same, and so have the devices of its volumes.
//!
//! A third file is locked by the commands of LVM that change the pool. They outlive a daemon that is killed, and the next
//! one waits for them: what they make after it has read what is there, it would not know. Commands that make the thin pool or
//! write its pool header lock another one, as there is no id yet.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use orlop_model::{Error, PoolId, Reason, Result};
use orlop_sys::file::{self, Lock, LockAttempt};
use orlop_sys::tool;

use super::report::{Group, Lv};
use crate::poison::lock;

/// As lvm.conf has it, unless it was changed there.
const DIRECTORY: &str = "/run/lock/lvm";
/// What a doctor takes at most.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than LVM takes for anything that an orderly disk answers.
const COMMANDS_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct PoolLock {
    held: Mutex<Vec<Lock>>,
}

impl PoolLock {
    pub(super) fn take(thin_pool: &Lv) -> Result<Self> {
        let locking = || format!("lock the thin pool {}", thin_pool.name);
        ensure_directory(locking)?;
        Ok(Self { held: Mutex::new(vec![taken(&of_thin_pool(thin_pool), locking)?]) })
    }

    /// Once the id is known.
    pub(super) fn add(&self, id: &PoolId) -> Result<()> {
        let locking = || format!("lock pool {id}");
        lock(&self.held).push(taken(&of_id(id), locking)?);
        Ok(())
    }

    /// For a doctor. `None`: a daemon serves the pool.
    pub(super) fn try_take_unused(thin_pool: &Lv, id: &PoolId) -> Result<Option<Self>> {
        let locking = || format!("lock pool {id}");
        ensure_directory(locking)?;
        let mut held = Vec::new();
        for path in [of_thin_pool(thin_pool), of_id(id)] {
            match file::try_lock(&path) {
                Ok(Some(lock)) => held.push(lock),
                Ok(None) => return Ok(None),
                Err(error) => return Err(Error::failed(locking(), Reason::of(error))),
            }
        }
        Ok(Some(Self { held: Mutex::new(held) }))
    }

    /// Threads that wait in the kernel may keep this value, and a successor need not wait for them.
    pub(super) fn release(&self) {
        lock(&self.held).clear();
    }
}

/// The file that commands of LVM lock.
pub(super) fn commands_lock(id: &PoolId) -> PathBuf {
    Path::new(DIRECTORY).join(format!("orlop-{id}.commands"))
}

/// The same for those that make a pool in this thin pool.
pub(super) fn making_lock(group: &Group, thin_pool: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("orlop-{}-{thin_pool}.making", group.uuid))
}

/// Where a reader of the thin pool's metadata says that it has reserved it.
pub(super) fn reader_marker(id: &PoolId) -> PathBuf {
    Path::new(DIRECTORY).join(format!("orlop-{id}.reader"))
}

/// For those that lock this file. `Unreachable` if one does not end: it waits for a disk, or for another command.
pub(super) fn wait_for_commands(pool: &str, file: &Path) -> Result<()> {
    let waiting = || format!("open pool {pool}");
    ensure_directory(waiting)?;
    match tool::all_ended_within(COMMANDS_TIMEOUT, file) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::unreachable(
            waiting(),
            "a command of LVM that an earlier daemon started is still running: it waits for a disk, or for another \
             command; `ps` and the kernel log may show for which",
        )),
        Err(error) => Err(Error::failed(waiting(), Reason::of(error))),
    }
}

fn ensure_directory(doing: impl Fn() -> String) -> Result<()> {
    file::ensure_private_directory(Path::new(DIRECTORY))
        .map_err(|error| Error::failed(doing(), Reason::of(error)))
}

fn of_thin_pool(thin_pool: &Lv) -> PathBuf {
    Path::new(DIRECTORY).join(format!("orlop-{}.thin-pool", thin_pool.uuid))
}

fn of_id(id: &PoolId) -> PathBuf {
    Path::new(DIRECTORY).join(format!("orlop-{id}.pool"))
}

fn taken(path: &Path, locking: impl Fn() -> String) -> Result<Lock> {
    let attempt = file::lock_after_brief_owners(path, LOCK_TIMEOUT)
        .map_err(|error| Error::failed(locking(), Reason::of(error)))?;
    match attempt {
        LockAttempt::Taken(lock) => Ok(lock),
        LockAttempt::HeldBy(owner) => {
            let owner = owner.map(|owner| format!(": {owner}")).unwrap_or_default();
            Err(Error::failed(
                locking(),
                format!(
                    "another process uses this pool, or one with the same id{owner}; stop it or give this daemon \
                     another thin pool"
                ),
            ))
        }
    }
}

#[cfg(test)]
mod tests;
