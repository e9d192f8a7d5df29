//! Which files differ between two directories, both of which stay as they are while they are compared.
//!
//! Both are walked side by side, in the order of names, so that only the directories above the current one are in
//! memory. No link is followed, and nothing is opened but directories and regular files.

mod entry;
mod name;

use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::interrupt::StopFlag;
use entry::Entry;
pub(crate) use entry::{FileKind, Identity};
pub(crate) use name::escaped;

/// Each level has two open directories, and a process may have 1024 open files.
const MAX_DEPTH: usize = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChangeKind {
    Added,
    Removed,
    Changed,
    Renamed,
}

#[derive(Debug, Clone)]
pub(crate) struct Difference {
    pub(crate) what: ChangeKind,
    pub(crate) kind: FileKind,
    /// Below the directory that is compared.
    pub(crate) path: Vec<u8>,
    /// Of what was renamed.
    pub(crate) from: Option<Vec<u8>>,
    /// In which respects, of what was changed or renamed.
    pub(crate) respects: Vec<&'static str>,
    pub(crate) identity: Identity,
}

pub(crate) trait Visitor {
    fn found(&mut self, difference: Difference) -> Result<()>;

    /// Called for each file and directory, so that progress can be shown.
    fn visited(&mut self);
}

/// A directory of one side.
struct Directory {
    fd: OwnedFd,
    names: Vec<CString>,
}

pub(crate) fn compare(
    old: &Path,
    new: &Path,
    visitor: &mut dyn Visitor,
    stop: &StopFlag,
) -> Result<()> {
    let mut walk = Walk { visitor, stop, path: Vec::new(), depth: 0 };
    let open = |path: &Path| {
        let fd = openat(CWD, path, directory_flags(), Mode::empty());
        fd.map_err(std::io::Error::from).and_then(Directory::read)
    };
    let cannot = |path: &Path, error: std::io::Error| {
        Failure::failed(format!("cannot read {}: {error}", path.display()))
    };
    let (old, new) = (
        open(old).map_err(|error| cannot(old, error))?,
        open(new).map_err(|error| cannot(new, error))?,
    );
    walk.both(&old, &new)
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

impl Directory {
    /// In the order of names.
    fn read(fd: OwnedFd) -> std::io::Result<Self> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&fd)? {
            let name = entry?.file_name().to_owned();
            if !matches!(name.as_bytes(), b"." | b"..") {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(Self { fd, names })
    }

    fn below(&self, name: &CStr) -> std::io::Result<Self> {
        Self::read(openat(&self.fd, name, directory_flags(), Mode::empty())?)
    }
}

struct Walk<'a> {
    visitor: &'a mut dyn Visitor,
    stop: &'a StopFlag,
    path: Vec<u8>,
    depth: usize,
}

impl Walk<'_> {
    fn both(&mut self, old: &Directory, new: &Directory) -> Result<()> {
        let (mut olds, mut news) = (old.names.iter().peekable(), new.names.iter().peekable());
        loop {
            let order = match (olds.peek(), news.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.cmp(new),
            };
            let (in_old, in_new) = match order {
                Ordering::Less => (olds.next(), None),
                Ordering::Greater => (None, news.next()),
                Ordering::Equal => (olds.next(), news.next()),
            };
            let Some(name) = in_old.or(in_new) else { return Ok(()) };
            self.entered(name, |walk| match (in_old, in_new) {
                (Some(_), Some(_)) => walk.in_both(old, new, name),
                (Some(_), None) => walk.in_one(old, name, ChangeKind::Removed),
                (None, _) => walk.in_one(new, name, ChangeKind::Added),
            })?;
        }
    }

    fn entered(&mut self, name: &CStr, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.stop.check()?;
        self.visitor.visited();
        if self.depth == MAX_DEPTH {
            return Err(Failure::failed(format!(
                "cannot compare {}: directories are nested deeper than {MAX_DEPTH}",
                escaped(&self.path)
            )));
        }
        let length = self.path.len();
        if length > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.to_bytes());
        self.depth += 1;
        let done = work(self);
        self.depth -= 1;
        self.path.truncate(length);
        done
    }

    /// With all that is below it.
    fn in_one(&mut self, directory: &Directory, name: &CStr, what: ChangeKind) -> Result<()> {
        let entry = self.entry(directory, name)?;
        self.report(what, &entry, Vec::new())?;
        if entry.identity.kind == FileKind::Directory {
            let below = directory.below(name).map_err(|error| self.cannot("read", &error))?;
            for name in &below.names {
                self.entered(name, |walk| walk.in_one(&below, name, what))?;
            }
        }
        Ok(())
    }

    fn in_both(&mut self, old: &Directory, new: &Directory, name: &CStr) -> Result<()> {
        let (before, after) = (self.entry(old, name)?, self.entry(new, name)?);
        if before.identity.kind != after.identity.kind {
            self.in_one(old, name, ChangeKind::Removed)?;
            return self.in_one(new, name, ChangeKind::Added);
        }
        if !before.is_unchanged(&after) {
            let compared = before.compare(&after, old.fd.as_fd(), new.fd.as_fd(), name, self.stop);
            let respects = match compared {
                Ok(respects) => respects,
                Err(entry::CompareError::Interrupted(failure)) => return Err(failure),
                Err(entry::CompareError::Io(error)) => return Err(self.cannot("read", &error)),
            };
            if !respects.is_empty() {
                self.report(ChangeKind::Changed, &after, respects)?;
            }
        }
        if after.identity.kind == FileKind::Directory {
            let read = |directory: &Directory| directory.below(name);
            let below_old = read(old).map_err(|error| self.cannot("read", &error))?;
            let below_new = read(new).map_err(|error| self.cannot("read", &error))?;
            self.both(&below_old, &below_new)?;
        }
        Ok(())
    }

    fn entry(&self, directory: &Directory, name: &CStr) -> Result<Entry> {
        Entry::read(directory.fd.as_fd(), name).map_err(|error| self.cannot("inspect", &error))
    }

    fn report(
        &mut self,
        what: ChangeKind,
        entry: &Entry,
        respects: Vec<&'static str>,
    ) -> Result<()> {
        self.visitor.found(Difference {
            what,
            kind: entry.identity.kind,
            path: self.path.clone(),
            from: None,
            respects,
            identity: entry.identity,
        })
    }

    fn cannot(&self, doing: &str, error: &std::io::Error) -> Failure {
        Failure::failed(format!("cannot {doing} {} of a snapshot: {error}", escaped(&self.path)))
    }
}

#[cfg(test)]
mod tests;
