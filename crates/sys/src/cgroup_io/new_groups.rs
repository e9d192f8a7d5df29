//! Groups of a cgroup hierarchy as they are made.
//!
//! A watch on a directory reports what is made in it, by whichever mount or mount namespace. It does
//! not report directories further below, so each group is watched.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::{Errno, retry_on_intr};

use super::files::subgroups;
use crate::error::{Context, Result};

const OPERATION: &str = "wait for new cgroups below";
/// Where not every group can be watched, all of them are listed this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub struct NewGroups {
    top: PathBuf,
    inotify: OwnedFd,
    watched: HashMap<i32, PathBuf>,
    /// The kernel bounds how many directories a user may watch.
    unwatched: bool,
    /// An error has cut the last look short.
    incomplete: bool,
}

/// Ends a [`NewGroups::wait`] of another thread.
#[derive(Debug)]
pub struct Stop(OwnedFd);

impl Stop {
    pub fn new() -> Result<Self> {
        let made = eventfd(0, EventfdFlags::CLOEXEC).on("open an event", Path::new("eventfd"))?;
        Ok(Self(made))
    }

    /// Holds for all waiting from now on.
    pub fn stop(&self) -> Result<()> {
        let written = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        written.map(drop).on("end the wait for new cgroups", Path::new("eventfd"))
    }
}

impl NewGroups {
    /// With all groups that are there: all others are reported by [`Self::wait`].
    pub fn below(top: &Path) -> Result<(Self, Vec<PathBuf>)> {
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        let mut groups = Self {
            top: top.to_owned(),
            inotify: inotify::init(flags).on(OPERATION, top)?,
            watched: HashMap::new(),
            unwatched: false,
            incomplete: false,
        };
        let found = groups.look()?;
        Ok((groups, found))
    }

    /// New groups, the ones below them included; some may have been reported before. `None`: stopped.
    pub fn wait(&mut self, stop: &Stop) -> Result<Option<Vec<PathBuf>>> {
        let pause = Timespec::try_from(LOOK_AGAIN).ok();
        let pause = pause.filter(|_| self.unwatched || self.incomplete);
        let mut ready =
            [PollFd::new(&stop.0, PollFlags::IN), PollFd::new(&self.inotify, PollFlags::IN)];
        let count = retry_on_intr(|| poll(&mut ready, pause.as_ref()));
        let count = count.on(OPERATION, &self.top)?;
        if !ready[0].revents().is_empty() {
            return Ok(None);
        }
        // What is read and then met by an error is not reported again by the kernel.
        let look = std::mem::replace(&mut self.incomplete, true);
        let (made, lost) = self.events()?;
        // Nothing came, so that it is time to look; or more than the kernel keeps.
        let found = if look || lost || count == 0 {
            self.look()?
        } else {
            let mut found = Vec::new();
            for group in made {
                self.watch(group, &mut found)?;
            }
            found
        };
        self.incomplete = false;
        Ok(Some(found))
    }

    /// All groups.
    fn look(&mut self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        self.unwatched = false;
        self.watch(self.top.clone(), &mut found)?;
        Ok(found)
    }

    /// Watched first, listed then: a group that is made in between is found twice, not missed.
    fn watch(&mut self, group: PathBuf, found: &mut Vec<PathBuf>) -> Result<()> {
        let mut pending = vec![group];
        while let Some(group) = pending.pop() {
            let wanted = WatchFlags::CREATE | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
            match inotify::add_watch(&self.inotify, &group, wanted) {
                Ok(watch) => {
                    self.watched.insert(watch, group.clone());
                }
                Err(Errno::NOENT | Errno::NODEV | Errno::NOTDIR) => continue,
                Err(Errno::NOSPC | Errno::NOMEM) => self.miss(&group),
                Err(errno) => return Err(errno).on(OPERATION, &group),
            }
            pending.extend(subgroups(&group)?);
            found.push(group);
        }
        Ok(())
    }

    fn miss(&mut self, group: &Path) {
        if !self.unwatched {
            tracing::warn!(
                group = %group.display(),
                "cannot watch all cgroups for new ones, so they are listed every second; raise \
                 fs.inotify.max_user_watches"
            );
        }
        self.unwatched = true;
    }

    /// Groups that were made, and whether some are missing.
    fn events(&mut self) -> Result<(Vec<PathBuf>, bool)> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let (mut made, mut lost) = (Vec::new(), false);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok((made, lost)),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno).on(OPERATION, &self.top),
            };
            let flags = event.events();
            lost |= flags.contains(ReadFlags::QUEUE_OVERFLOW);
            if flags.contains(ReadFlags::IGNORED) {
                self.watched.remove(&event.wd());
            }
            let is_group = flags.contains(ReadFlags::CREATE | ReadFlags::ISDIR);
            if let (true, Some(name)) = (is_group, event.file_name())
                && let Some(above) = self.watched.get(&event.wd())
            {
                made.push(above.join(OsStr::from_bytes(name.to_bytes())));
            }
        }
    }
}

#[cfg(test)]
mod tests;
