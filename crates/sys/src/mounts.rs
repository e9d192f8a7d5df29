//! Mounts, by the mount API of Linux 5.2 and `mount_setattr` of 5.12: a mount is complete, with
//! all its flags, before it appears anywhere.

mod device;
mod fstab;
pub(crate) mod mountinfo;
mod point;
mod releasable;
mod users;

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    AtFlags, FileType, OFlags, StatVfsMountFlags, Statx, StatxAttributes, StatxFlags, fstatvfs,
    statx,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags as Attributes, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    move_mount, open_tree, unmount,
};

pub(crate) use device::block_device_at;
pub use fstab::unmounted_above;
pub use mountinfo::{MountEntry, parse_mountinfo};
pub use point::{ensure_directory, ensure_file, remove_mount_point, replace_mount_point};
pub(crate) use releasable::releasable;
pub use users::user_of;

use crate::abi;
use crate::crash;
use crate::error::{Context, Error, Result};
use crate::resolve::{ResolvedPath, open_device, open_existing, path_of};

/// A child that is being started has copies of our descriptors until it executes its program, which on
/// a busy machine has to be read first, and a scanner may look around in a mount: who is busy only so
/// gets a moment.
const BUSY_PAUSES: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The major number of filesystems without a device, and of btrfs, which may have several.
const ANONYMOUS: u32 = 0;

/// All mounts of this mount namespace.
pub fn all_mounts() -> Result<Vec<MountEntry>> {
    let path = Path::new("/proc/self/mountinfo");
    let bytes = std::fs::read(path).on("read", path)?;
    Ok(mountinfo::parse(&bytes))
}

/// Where these devices are mounted, and their nodes bound: what is listed last comes first, as it is unmounted.
pub fn points_of(devices: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let numbers: Vec<_> = devices.iter().filter_map(|path| block_device_at(path)).collect();
    let shows = |entry: &MountEntry| {
        numbers.iter().any(|number| entry.is_of_device(*number, Path::new("/")))
    };
    let all = all_mounts()?.into_iter().rev();
    Ok(all.filter(shows).map(|entry| entry.mount_point).collect())
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

/// The number of the filesystem that a path is on, as /proc/locks has it. A file of btrfs has the number
/// of its subvolume instead.
pub(crate) fn filesystem_number(path: &Path) -> Result<Option<(u32, u32)>> {
    let fd =
        ResolvedPath::of("look for the mount of", path)?.open(OFlags::PATH).on("open", path)?;
    let id = mount_id(&fd, path)?;
    let entry = all_mounts()?.into_iter().find(|entry| entry.id == id);
    Ok(entry.map(|entry| (entry.major, entry.minor)))
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
        .ok_or_else(|| Error::refused("read the mount id of", path, "the kernel reports none"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountLookup {
    /// Nothing is mounted there, or nothing is there at all.
    NotMounted,
    /// A filesystem that can be written; with its device's major and minor number.
    Filesystem { major: u32, minor: u32 },
    /// The node of a block device.
    DeviceNode { major: u32, minor: u32 },
    /// Only [`mount_at`] knows.
    Unknown,
}

/// What is mounted at a path, found by the path alone. The list of all mounts says more, but takes longer
/// with every volume that is in use on the machine.
pub fn look_up(path: &Path) -> Result<MountLookup> {
    let resolved = match ResolvedPath::of("look for a mount at", path) {
        Err(error) if error.is_not_found() => return Ok(MountLookup::NotMounted),
        resolved => resolved?,
    };
    let fd = match resolved.open(OFlags::PATH) {
        Err(Errno::NOENT | Errno::LOOP) => return Ok(MountLookup::NotMounted),
        fd => fd.on("open", path)?,
    };
    // A filesystem that has shut down after an error answers with EIO.
    let Ok(there) = statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS) else {
        return Ok(MountLookup::Unknown);
    };
    // Linux 5.8.
    if !there.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(MountLookup::Unknown);
    }
    if !there.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(MountLookup::NotMounted);
    }
    // Read-only: the mount or the filesystem, which makes a difference.
    let writable = fstatvfs(&fd).is_ok_and(|at| !at.f_flag.contains(StatVfsMountFlags::RDONLY));
    Ok(if writable { what_is_mounted(&there) } else { MountLookup::Unknown })
}

fn what_is_mounted(there: &Statx) -> MountLookup {
    if FileType::from_raw_mode(there.stx_mode.into()) == FileType::BlockDevice {
        return MountLookup::DeviceNode {
            major: there.stx_rdev_major,
            minor: there.stx_rdev_minor,
        };
    }
    match (there.stx_dev_major, there.stx_dev_minor) {
        (ANONYMOUS, _) => MountLookup::Unknown,
        (major, minor) => MountLookup::Filesystem { major, minor },
    }
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

/// A filesystem that was unmounted a moment ago may still be there, and cannot be mounted read-only where it was
/// writable before it is gone, nor the other way round (`EBUSY`).
pub fn mount_filesystem_at(mount: &FsMount<'_>, target: &MountPoint) -> Result<()> {
    let options = MountOptions::parse(mount.options, mount.read_only);
    let mut pauses = BUSY_PAUSES.into_iter();
    loop {
        // A context that the kernel has refused once can only be closed.
        let context = fsopen(mount.fs_type, FsOpenFlags::FSOPEN_CLOEXEC)
            .on("open a filesystem context to mount", mount.device)?;
        let errno = match configure(&context, mount, &options) {
            Ok(tree) => return target.attach(&tree),
            Err(errno) => errno,
        };
        match pauses.next().filter(|_| errno == Errno::BUSY) {
            Some(milliseconds) => std::thread::sleep(Duration::from_millis(milliseconds)),
            None => {
                let (path, messages) = (mount.device.to_owned(), messages_of(&context));
                return Err(Error::Explained { operation: "mount", path, errno, messages });
            }
        }
    }
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FsOption {
    Flag(String),
    Value(String, String),
}

/// mount(8) has one list of options; the kernel takes some as attributes of the mount and all others as
/// parameters of the filesystem.
#[derive(Debug)]
pub(crate) struct MountOptions {
    pub(crate) attributes: Attributes,
    pub(crate) filesystem: Vec<FsOption>,
}

impl MountOptions {
    /// Where options contradict each other the last one counts, except that `read_only` cannot be
    /// taken back.
    pub(crate) fn parse(options: &[String], read_only: bool) -> Self {
        let mut parsed = Self { attributes: Attributes::empty(), filesystem: Vec::new() };
        // Each entry is one option: a comma may be part of a value (an SELinux category list),
        // and what was vetted as one must not become two.
        for word in
            options.iter().map(|option| option.trim()).filter(|word| !is_for_mount_program(word))
        {
            if !parsed.take_attribute(word) {
                parsed.filesystem.push(match word.split_once('=') {
                    Some((key, value)) => {
                        FsOption::Value(key.to_owned(), value.trim_matches('"').to_owned())
                    }
                    None => FsOption::Flag(word.to_owned()),
                });
            }
        }
        if read_only {
            parsed.attributes |= Attributes::MOUNT_ATTR_RDONLY;
        }
        // Both the mount and the filesystem: without the latter, mounting would write (replay a
        // journal, count the mount), which a read-only device cannot take.
        if parsed.attributes.contains(Attributes::MOUNT_ATTR_RDONLY) {
            parsed.filesystem.push(FsOption::Flag("ro".to_owned()));
        }
        parsed
    }

    /// False if the word is for the filesystem. `sync`, `dirsync`, `lazytime` and their opposites
    /// are: the kernel keeps them with the superblock.
    fn take_attribute(&mut self, word: &str) -> bool {
        let flags = &mut self.attributes;
        match word {
            "ro" => flags.insert(Attributes::MOUNT_ATTR_RDONLY),
            "rw" => flags.remove(Attributes::MOUNT_ATTR_RDONLY),
            "nosuid" => flags.insert(Attributes::MOUNT_ATTR_NOSUID),
            "suid" => flags.remove(Attributes::MOUNT_ATTR_NOSUID),
            "nodev" => flags.insert(Attributes::MOUNT_ATTR_NODEV),
            "dev" => flags.remove(Attributes::MOUNT_ATTR_NODEV),
            "noexec" => flags.insert(Attributes::MOUNT_ATTR_NOEXEC),
            "exec" => flags.remove(Attributes::MOUNT_ATTR_NOEXEC),
            "nosymfollow" => flags.insert(Attributes::MOUNT_ATTR_NOSYMFOLLOW),
            "symfollow" => flags.remove(Attributes::MOUNT_ATTR_NOSYMFOLLOW),
            "nodiratime" => flags.insert(Attributes::MOUNT_ATTR_NODIRATIME),
            "diratime" => flags.remove(Attributes::MOUNT_ATTR_NODIRATIME),
            "noatime" => set_atime(flags, Attributes::MOUNT_ATTR_NOATIME),
            "strictatime" => set_atime(flags, Attributes::MOUNT_ATTR_STRICTATIME),
            "relatime" | "atime" | "nostrictatime" => {
                set_atime(flags, Attributes::MOUNT_ATTR_RELATIME);
            }
            // As opposed to relatime; the kernel has no fourth way.
            "norelatime" => set_atime(flags, Attributes::MOUNT_ATTR_STRICTATIME),
            _ => return false,
        }
        true
    }
}

/// A field of the flags, not a bit: one of three values.
fn set_atime(flags: &mut Attributes, value: Attributes) {
    flags.remove(Attributes::MOUNT_ATTR__ATIME);
    flags.insert(value);
}

/// Words that mount(8) acts on itself; no filesystem knows them.
fn is_for_mount_program(word: &str) -> bool {
    matches!(word, "" | "defaults" | "auto" | "noauto" | "nofail" | "_netdev")
        || word.starts_with("x-")
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
    bind_opened(&open_existing("bind", source, OFlags::PATH)?, source, target, access)
}

/// As [`bind_at`], of the node of a device; its name in /dev may be a link to that.
pub fn bind_device_at(device: &Path, target: &MountPoint) -> Result<()> {
    let node = open_device("bind", device, OFlags::PATH)?;
    bind_opened(&node, device, target, BindAccess::ReadWrite)
}

fn bind_opened(
    source_fd: &OwnedFd,
    source: &Path,
    target: &MountPoint,
    access: BindAccess,
) -> Result<()> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(source_fd, "", clone).effect_on("clone the mount of", source)?;
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
    let mut pauses = BUSY_PAUSES.into_iter();
    while let Some(id) = mount_id_at(&resolved, target)? {
        match unmount(&path, UnmountFlags::NOFOLLOW) {
            Ok(()) => crash::after("unmount"),
            // Another process unmounted it first. If it is still there, this daemon may not unmount it.
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
