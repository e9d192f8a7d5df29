//! Groups of a cgroup hierarchy as they are made.
//!
//! A watch on a directory reports what is made in it, by whichever mount or mount namespace. It does
//! not report directories further below, so each group is watched. When a group is removed, its own watch
//! says nothing and stays, in contrast to other filesystems (cgroup v1 of Linux 6.18); the watch of the
//! group above reports it. That is why the group above the top is watched as well.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
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
const LIST_INTERVAL: Duration = Duration::from_secs(1);

pub struct NewGroups {
    top: PathBuf,
    inotify: OwnedFd,
    watched: HashMap<i32, PathBuf>,
    /// The same by path, in which all groups below one follow it.
    watches: BTreeMap<PathBuf, i32>,
    /// The kernel bounds how many directories a user may watch.
    unwatched: bool,
    /// An error has ended the last search early.
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
            watches: BTreeMap::new(),
            unwatched: false,
            incomplete: false,
        };
        let found = groups.look()?;
        Ok((groups, found))
    }

    /// New groups, the ones below them included; some may have been reported before. `None`: stopped.
    pub fn wait(&mut self, stop: &Stop) -> Result<Option<Vec<PathBuf>>> {
        let pause = Timespec::try_from(LIST_INTERVAL).ok();
        let is_gone = !self.watches.contains_key(&self.top);
        let pause = pause.filter(|_| self.unwatched || self.incomplete || is_gone);
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
        let found = if look || lost || is_gone || count == 0 {
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
        let gone: Vec<_> = self.watches.keys().filter(|group| !group.exists()).cloned().collect();
        gone.iter().for_each(|group| self.unwatch(group));
        // Before the top: if that is removed and made again, the group above tells.
        if let Some(above) = self.top.parent().map(Path::to_owned) {
            self.add_watch(&above)?;
        }
        self.watch(self.top.clone(), &mut found)?;
        Ok(found)
    }

    /// Watched first, listed then: a group that is made in between is found twice, not missed.
    fn watch(&mut self, group: PathBuf, found: &mut Vec<PathBuf>) -> Result<()> {
        let mut pending = vec![group];
        while let Some(group) = pending.pop() {
            if !self.add_watch(&group)? {
                continue;
            }
            pending.extend(subgroups(&group)?);
            found.push(group);
        }
        Ok(())
    }

    /// `false`: there is no such group.
    fn add_watch(&mut self, group: &Path) -> Result<bool> {
        let wanted = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        let watch = match inotify::add_watch(&self.inotify, group, wanted) {
            Ok(watch) => watch,
            Err(Errno::NOENT | Errno::NODEV | Errno::NOTDIR) => return Ok(false),
            Err(Errno::NOSPC | Errno::NOMEM) => {
                self.miss(group);
                return Ok(true);
            }
            Err(errno) => return Err(errno).on(OPERATION, group),
        };
        self.watched.insert(watch, group.to_owned());
        let before = self.watches.insert(group.to_owned(), watch);
        if let Some(before) = before.filter(|before| *before != watch) {
            self.forget(before);
        }
        Ok(true)
    }

    /// This group and all below it.
    fn unwatch(&mut self, group: &Path) {
        let below = self.watches.range(group.to_owned()..);
        let below = below.take_while(|(path, _)| path.starts_with(group));
        let below: Vec<_> = below.map(|(path, watch)| (path.clone(), *watch)).collect();
        for (path, watch) in below {
            self.watches.remove(&path);
            self.forget(watch);
        }
    }

    fn forget(&mut self, watch: i32) {
        self.watched.remove(&watch);
        // Where the kernel has removed it by itself, this fails.
        let _ = inotify::remove_watch(&self.inotify, watch);
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
        let (mut made, mut lost) = (Vec::new(), false);
        for (watch, flags, name) in self.read_events()? {
            lost |= flags.contains(ReadFlags::QUEUE_OVERFLOW);
            let Some(above) = self.watched.get(&watch) else { continue };
            let (true, Some(name)) = (flags.contains(ReadFlags::ISDIR), name) else { continue };
            let group = above.join(name);
            // Groups beside the top one are not watched.
            if !group.starts_with(&self.top) {
                continue;
            }
            if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                self.unwatch(&group);
            }
            // Also where one was removed: another one may have the name by now, and be watched before
            // this was read.
            made.push(group);
        }
        Ok((made, lost))
    }

    fn read_events(&self) -> Result<Vec<(i32, ReadFlags, Option<OsString>)>> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name();
                    let name = name.map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                    events.push((event.wd(), event.events(), name));
                }
                Err(Errno::AGAIN) => return Ok(events),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).on(OPERATION, &self.top),
            }
        }
    }
}

#[cfg(test)]
mod tests;
