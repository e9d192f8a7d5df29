//! The lock of a process that lives.
//!
//! A lock belongs to an open file, and the table of open files to all threads of a process together:
//! of a process that was killed, one thread that waits in the kernel for a disk keeps every lock. So
//! a lock is held by a thread that has its own table and does nothing else: it ends with the
//! process, whatever other threads wait for. [`super::Presence`] tells of those.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{self, JoinHandle};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

use crate::abi;
use crate::error::{Context, Error, Result};

/// An exclusive lock that ends with this value, or with the process.
#[derive(Debug)]
pub struct Lock {
    /// Dropped, it ends the keeper.
    until: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        drop(self.until.take());
        if self.keeper.take().is_some_and(|keeper| keeper.join().is_err()) {
            tracing::error!("the thread that holds a file lock panicked");
        }
    }
}

/// `None`: another process holds it.
pub fn try_lock(path: &Path) -> Result<Option<Lock>> {
    let (until, end) = mpsc::channel();
    let (answer, answered) = mpsc::sync_channel(1);
    let to_lock = path.to_owned();
    let keeper = thread::Builder::new()
        .name("lock".to_owned())
        .spawn(move || keep(&to_lock, &answer, &end))
        .on("start a thread that keeps the lock", path)?;
    let lock = Lock { until: Some(until), keeper: Some(keeper) };
    match answered.recv() {
        Ok(taken) => Ok(taken?.then_some(lock)),
        Err(_panicked) => Err(Error::refused("lock", path, "the thread that keeps it panicked")),
    }
}

fn keep(path: &Path, answer: &SyncSender<Result<bool>>, end: &Receiver<()>) {
    // A handler writes to a descriptor of the table that is left here: a signal that this thread took
    // would be lost.
    if let Err(errno) = abi::block_signals() {
        return drop(answer.send(Err(errno).on("block signals to lock", path)));
    }
    if let Err(errno) = abi::leave_shared_table() {
        tracing::debug!(
            %errno,
            "the file lock stays held until the last thread of this process ends"
        );
    }
    let file = match take(path) {
        Ok(Some(file)) => file,
        // The caller waits for the answer, so it is always received.
        Ok(None) => return drop(answer.send(Ok(false))),
        Err(error) => return drop(answer.send(Err(error))),
    };
    let _ = answer.send(Ok(true));
    // Nothing is ever sent: it ends when the lock is dropped.
    let _ = end.recv();
    // Closing is not enough where the table is shared after all: a child that is being started has a
    // copy of the descriptor until it executes its program.
    if let Err(errno) = flock(&file, FlockOperation::Unlock) {
        tracing::warn!(
            %errno,
            "cannot release a file lock now; it is released when this process ends"
        );
    }
}

fn take(path: &Path) -> Result<Option<File>> {
    // Not to write: that would keep the filesystem from being remounted read-only. A pipe in its place
    // is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match open(path, flags | OFlags::CREATE, Mode::RUSR | Mode::WUSR) {
        Err(Errno::ROFS) => open(path, flags, Mode::empty()),
        opened => opened,
    };
    let file = file.effect_on("create the lock", path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(File::from(file))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno).on("lock", path),
    }
}

#[cfg(test)]
mod tests;
