//! Threads that are at work in a directory, also those that outlive their process.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

use crate::error::{Context, Result};

/// Says of this process that its threads work in a directory: until it is dropped or left, or, after
/// the process was killed, until the last of them has returned from the kernel. It keeps no process
/// out; that is what [`super::Lock`] is for.
#[derive(Debug)]
pub struct Presence {
    directory: File,
}

impl Presence {
    /// `None`: threads of another process are there.
    pub fn try_alone(directory: &Path) -> Result<Option<Self>> {
        let presence = Self::at(directory)?;
        match flock(&presence.directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => presence.join(directory).map(Some),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno).on("lock", directory),
        }
    }

    /// Whether or not threads of others are there.
    pub fn beside_others(directory: &Path) -> Result<Self> {
        Self::at(directory)?.join(directory)
    }

    /// No thread of this process does anything there any more.
    pub fn leave(&self) {
        if let Err(errno) = flock(&self.directory, FlockOperation::Unlock) {
            tracing::warn!(
                %errno,
                "cannot release a directory; other daemons see it as in use until this process \
                 ends"
            );
        }
    }

    /// Not beyond a link, and changes nothing: the filesystem may hang.
    fn at(directory: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = open(directory, flags, Mode::empty()).on("open", directory)?;
        Ok(Self { directory: File::from(opened) })
    }

    /// Shared, so that the next process can join while threads of this one are left.
    fn join(self, directory: &Path) -> Result<Self> {
        flock(&self.directory, FlockOperation::NonBlockingLockShared).on("lock", directory)?;
        Ok(self)
    }
}

impl Drop for Presence {
    /// Closing is not enough: a child that is being started has a copy of the descriptor until it
    /// executes its program.
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
