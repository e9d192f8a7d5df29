//! Mounts, by the mount API of Linux 5.2 and `mount_setattr` of 5.12: a mount is complete, with
//! all its flags, before it appears anywhere.

mod device;
mod fstab;
mod lookup;
pub(crate) mod mountinfo;
pub(crate) mod options;
mod point;
mod users;

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};

pub(crate) use device::block_device_at;
pub use fstab::unmounted_above;
pub use lookup::{MountLookup, look_up};
pub use mountinfo::{MountEntry, parse_mountinfo};
pub use point::{ensure_directory, ensure_file, remove_mount_point, replace_mount_point};
pub use users::user_of;

use crate::abi;
use crate::crash;
use crate::error::{Context, Error, Result};
use crate::resolve::{ResolvedPath, open_existing, path_of};
use options::{FsOption, MountOptions};

/// A child that is being started has copies of our descriptors until it executes its program, which on
/// a busy machine has to be read first, and a scanner may look around in a mount: who is busy only so
/// gets a moment.
const UNMOUNT_PAUSES: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// All mounts of this mount namespace.
pub fn all_mounts() -> Result<Vec<MountEntry>> {
    let path = Path::new("/proc/self/mountinfo");
    let bytes = std::fs::read(path).on("read", path)?;
    Ok(mountinfo::parse(&bytes))
}

/// The mount that one meets at `path`, if `path` is a mount point: the topmost of a stack.
pub fn mount_at(path: &Path) -> Result<Option<MountEntry>> {
    match ResolvedPath::of("look for a mount at", path) {
        Ok(resolved) => mount_at_resolved(&resolved, path),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn mount_at_resolved(resolved: &ResolvedPath, path: &Path) -> Result<Option<MountEntry>> {
    let Some(id) = mount_id_at(resolved, path)? else {
        return Ok(None);
    };
    Ok(all_mounts()?.into_iter().find(|entry| entry.id == id))
}

/// The topmost mount at the place. The kernel is asked which mount an opened descriptor is on,
/// because the text of mountinfo does not tell a mount from one that another mount hides: at a
/// mount point it is another one than that of the directory around. Asked by fdinfo rather than
/// statx: a filesystem that has shut down after an error answers the latter with EIO.
fn mount_id_at(resolved: &ResolvedPath, path: &Path) -> Result<Option<u64>> {
    let fd = match resolved.open(OFlags::PATH) {
        Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
        fd => fd.on("open", path)?,
    };
    let id = mount_id(&fd, path)?;
    Ok((id != mount_id(&resolved.parent, path)?).then_some(id))
}

fn mount_id(fd: &OwnedFd, path: &Path) -> Result<u64> {
    let info = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let text = std::fs::read_to_string(info).on("read the mount id of", path)?;
    text.lines()
        .find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
        .ok_or_else(|| Error::refused("read the mount id of", path, "the kernel tells none"))
}

#[derive(Debug, Clone, Copy)]
pub struct FsMount<'a> {
    pub device: &'a Path,
    pub fs_type: &'a str,
    /// As mount(8) takes them after `-o`, one in each string.
    pub options: &'a [String],
    pub read_only: bool,
}

/// Where a mount is to go, opened: there it goes, whatever becomes of the names on the way.
pub struct MountPoint {
    fd: OwnedFd,
    path: PathBuf,
}

impl MountPoint {
    pub fn open(path: &Path) -> Result<Self> {
        let fd = open_existing("mount at", path, OFlags::PATH)?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Without links.
    pub fn real_path(&self) -> PathBuf {
        path_of(&self.fd)
    }

    fn attach(&self, tree: &OwnedFd) -> Result<()> {
        let by_descriptor =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(tree, "", &self.fd, "", by_descriptor).effect_on("attach a mount at", &self.path)
    }
}

/// Mounts a block device's filesystem at an existing directory.
pub fn mount_filesystem(mount: &FsMount<'_>, target: &Path) -> Result<()> {
    mount_filesystem_at(mount, &MountPoint::open(target)?)
}

pub fn mount_filesystem_at(mount: &FsMount<'_>, target: &MountPoint) -> Result<()> {
    let options = MountOptions::parse(mount.options, mount.read_only);
    let context = fsopen(mount.fs_type, FsOpenFlags::FSOPEN_CLOEXEC)
        .on("open a filesystem context to mount", mount.device)?;
    let tree = configure(&context, mount, &options).map_err(|errno| Error::Explained {
        operation: "mount",
        path: mount.device.to_owned(),
        errno,
        messages: messages_of(&context),
    })?;
    target.attach(&tree)
}

fn configure(
    context: &OwnedFd,
    mount: &FsMount<'_>,
    options: &MountOptions,
) -> rustix::io::Result<OwnedFd> {
    fsconfig_set_string(context, "source", mount.device)?;
    for option in &options.filesystem {
        match option {
            FsOption::Flag(key) => fsconfig_set_flag(context, key)?,
            FsOption::Value(key, value) => fsconfig_set_string(context, key, value)?,
        }
    }
    fsconfig_create(context)?;
    crash::after("bring up a filesystem");
    let tree = fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, options.attributes)?;
    crash::after("make a mount");
    Ok(tree)
}

/// What the filesystem has to say: one message a read, each marked `e`, `w` or `i` in front.
fn messages_of(context: &OwnedFd) -> String {
    let mut messages = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = rustix::io::read(context, &mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..length]);
        let text = text.trim();
        messages.push(text.split_once(' ').map_or(text, |(_, message)| message).to_owned());
    }
    if messages.is_empty() {
        return "the kernel log may say more".to_owned();
    }
    messages.join("; ")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindAccess {
    ReadWrite,
    ReadOnly,
}

/// Makes `source` appear at `target` too, without what is mounted below it: a directory on a
/// directory, a file or a device node on a file.
///
/// Read-only holds for files. A device node leads to the device whatever the mount says: what must
/// not be written has to be a read-only device.
pub fn bind(source: &Path, target: &Path, access: BindAccess) -> Result<()> {
    bind_at(source, &MountPoint::open(target)?, access)
}

pub fn bind_at(source: &Path, target: &MountPoint, access: BindAccess) -> Result<()> {
    let source_fd = open_existing("bind", source, OFlags::PATH)?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&source_fd, "", clone).effect_on("clone the mount of", source)?;
    match access {
        BindAccess::ReadWrite => {}
        // Before it is attached, so that it is never seen read-write.
        BindAccess::ReadOnly => {
            abi::set_mount_read_only(tree.as_fd())
                .effect_on("make read-only a mount of", source)?;
        }
    }
    target.attach(&tree)
}

/// Takes away all mounts stacked at `target`. Not mounted, or missing, is fine; a mount in use is
/// an error that [`Error::is_busy`].
pub fn ensure_unmounted(target: &Path) -> Result<()> {
    let resolved = match ResolvedPath::of("unmount", target) {
        Err(error) if error.is_not_found() => return Ok(()),
        resolved => resolved?,
    };
    let path = OsString::from(resolved.path_through_descriptor());
    let mut pauses = UNMOUNT_PAUSES.into_iter();
    while let Some(id) = mount_id_at(&resolved, target)? {
        match unmount(&path, UnmountFlags::NOFOLLOW) {
            Ok(()) => crash::after("unmount"),
            // Someone else was faster. If it is still there, it is a mount we may not take away.
            Err(Errno::INVAL | Errno::NOENT) if mount_id_at(&resolved, target)? != Some(id) => {}
            Err(Errno::BUSY) => match pauses.next() {
                Some(milliseconds) => std::thread::sleep(Duration::from_millis(milliseconds)),
                None => return Err(Errno::BUSY).on("unmount", target),
            },
            Err(errno) => return Err(errno).on("unmount", target),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
