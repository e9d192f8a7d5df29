//! Paths that come from callers, opened so that a link put in their way cannot redirect us.
//!
//! Links in the middle of a path are followed (a kubelet directory may be one), magic links of
//! /proc never, and the last component is never a link. What is opened is then used through its
//! descriptor.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fcntl_setfl, open, openat2};
use rustix::io::Errno;

use crate::error::{Context, Error, Result};

/// A name in an opened directory; whether something exists under it is open.
pub(crate) struct ResolvedPath {
    pub(crate) parent: OwnedFd,
    pub(crate) name: OsString,
}

impl ResolvedPath {
    pub(crate) fn of(operation: &'static str, path: &Path) -> Result<Self> {
        let name = last_component(operation, path)?;
        let parent = openat2(
            CWD,
            parent_of(path),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::NO_MAGICLINKS,
        )
        .on(operation, path)?;
        Ok(Self { parent, name: name.to_owned() })
    }

    /// Opens what is there: `ELOOP` if that is a link.
    pub(crate) fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        openat2(
            &self.parent,
            &self.name,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        )
    }

    /// A path for the few calls that take no descriptor. Its directory is the opened one whatever
    /// happens to the names above it.
    pub(crate) fn path_through_descriptor(&self) -> PathBuf {
        descriptor_path(self.parent.as_fd()).join(&self.name)
    }
}

/// Opens what `path` names, without following a link in the last component.
pub(crate) fn open_existing(
    operation: &'static str,
    path: &Path,
    flags: OFlags,
) -> Result<OwnedFd> {
    ResolvedPath::of(operation, path)?.open(flags).on(operation, path)
}

/// As [`open_existing`], of a device, by a name in /dev that is not a caller's: udev makes such names links.
pub(crate) fn open_device(
    operation: &'static str,
    device: &Path,
    flags: OFlags,
) -> Result<OwnedFd> {
    open(device, flags | OFlags::CLOEXEC, Mode::empty()).on(operation, device)
}

/// As [`open_existing`], but neither a pipe nor a lease of another program is waited for: the kernel would
/// wait 45 seconds for the holder of a lease, with all locks that the caller holds.
pub(crate) fn open_without_waiting(
    operation: &'static str,
    path: &Path,
    flags: OFlags,
) -> Result<OwnedFd> {
    let opened = ResolvedPath::of(operation, path)?.open(flags | OFlags::NONBLOCK);
    if opened.as_ref().is_err_and(|errno| *errno == Errno::AGAIN) {
        return Err(Error::Leased { path: path.to_owned() });
    }
    let file = opened.on(operation, path)?;
    // It was about the opening only.
    fcntl_setfl(&file, flags).on(operation, path)?;
    Ok(file)
}

/// The parent directory as `open` understands it: `.` for a bare name.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

pub(crate) fn last_component<'a>(operation: &'static str, path: &'a Path) -> Result<&'a OsStr> {
    path.file_name()
        .ok_or_else(|| Error::refused(operation, path, "the path does not end in a name"))
}

/// The path of an open file, for messages.
pub(crate) fn path_of(fd: impl AsFd) -> PathBuf {
    let link = descriptor_path(fd.as_fd());
    std::fs::read_link(&link).unwrap_or(link)
}

pub(crate) fn descriptor_path(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

#[cfg(test)]
mod tests;
