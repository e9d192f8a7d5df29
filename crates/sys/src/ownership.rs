//! A group that may read and write a whole tree.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, RawMode, ResolveFlags, Stat, XattrFlags, chmod,
    chownat, fchmod, fchown, fgetxattr, fsetxattr, fstat, openat2,
};
use rustix::io::{Errno, Result as CallResult};

use crate::crash;
use crate::error::{Context, Result};
use crate::resolve::{descriptor_path, open_existing};

/// Shorter than the kernel takes in one call, which is 4096 with the zero at the end.
const LONGEST_PIECE: usize = 4000;
const DEFAULT_ACL: &CStr = c"system.posix_acl_default";

/// Lets `gid` read and write everything below `root`, and everything made there later, whatever
/// the umask of its maker.
///
/// Does nothing if `root` says that it is done, and touches `root` last, so that a walk which did
/// not come to its end is walked again. Links are not followed and other mounts not entered; what
/// disappears during the walk is no concern.
pub fn apply_group(root: &Path, gid: u32) -> Result<()> {
    const OPERATION: &str = "change the group of";
    let group = Gid::from_raw(gid);
    let root_fd = open_existing(OPERATION, root, OFlags::RDONLY | OFlags::DIRECTORY)?;
    if directory_is_done(&root_fd, group).on(OPERATION, root)? {
        return Ok(());
    }
    // The tree belongs to another group, and the walk takes files from it. If a crash interrupts the walk,
    // the root must not say any more that the tree is done for that group.
    let mode = permissions(&fstat(&root_fd).on(OPERATION, root)?);
    if mode & DIRECTORY_BITS == DIRECTORY_BITS {
        fchmod(&root_fd, Mode::from_raw_mode(mode & !SET_GROUP_ID)).on(OPERATION, root)?;
        crash::after("change the group of a directory");
    }
    // Names instead of descriptors: a tree may be deeper than a process may open files.
    let mut pending = vec![PathBuf::from(".")];
    while let Some(directory) = pending.pop() {
        let found = give_directory_contents(&root_fd, &directory, group)
            .on(OPERATION, &root.join(&directory))?;
        pending.extend(found.into_iter().map(|name| directory.join(name)));
    }
    give_directory(&root_fd, group).on(OPERATION, root)
}

/// Gives a directory's entries, and itself unless it is the root. Returns its subdirectories.
fn give_directory_contents(
    root: &OwnedFd,
    directory: &Path,
    group: Gid,
) -> CallResult<Vec<PathBuf>> {
    let fd = match open_below(root, directory) {
        // Removed since, replaced by a link, or a mount of something else.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(Vec::new()),
        fd => fd?,
    };
    let mut directories = Vec::new();
    for entry in Dir::read_from(&fd)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match give_entry(&fd, name, group) {
            Ok(FileType::Directory) => {
                directories.push(PathBuf::from(OsStr::from_bytes(name.to_bytes())));
            }
            Ok(_) | Err(Errno::NOENT | Errno::XDEV) => {}
            Err(errno) => return Err(errno),
        }
    }
    if directory != Path::new(".") {
        give_directory(&fd, group)?;
    }
    Ok(directories)
}

/// In pieces: a tree may be deeper than a path may be long.
fn open_below(root: &OwnedFd, directory: &Path) -> CallResult<OwnedFd> {
    let mut left = directory.as_os_str().as_bytes();
    let mut at: Option<OwnedFd> = None;
    loop {
        let end = match left.get(..LONGEST_PIECE) {
            // Names are shorter than a piece, so there is a place to cut it.
            Some(piece) => {
                piece.iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?
            }
            None => left.len(),
        };
        let (piece, rest) = left.split_at(end);
        let is_last = rest.is_empty();
        let access = if is_last { OFlags::RDONLY } else { OFlags::PATH };
        let opened = openat2(
            at.as_ref().unwrap_or(root),
            piece,
            access | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
        )?;
        if is_last {
            return Ok(opened);
        }
        at = Some(opened);
        left = rest.get(1..).unwrap_or_default();
    }
}

/// Directories are only looked at: their turn comes when they are walked.
fn give_entry(parent: &OwnedFd, name: &CStr, group: Gid) -> CallResult<FileType> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat2(parent, name, flags, Mode::empty(), ResolveFlags::NO_XDEV)?;
    let before = fstat(&fd)?;
    let kind = FileType::from_raw_mode(before.st_mode);
    if kind == FileType::Directory {
        return Ok(kind);
    }
    if before.st_gid != group.as_raw() {
        chownat(&fd, c"", None, Some(group), AtFlags::EMPTY_PATH)?;
        crash::after("change the group of a file");
    }
    let has_useful_mode = [FileType::RegularFile, FileType::Fifo, FileType::Socket].contains(&kind);
    let wanted = file_mode(&before, group);
    // chown takes the set-user-id bit away, so the mode is due even if it looked right before.
    if has_useful_mode && (wanted != permissions(&before) || before.st_gid != group.as_raw()) {
        // The one way to change the mode of exactly what was looked at, before Linux 6.6.
        chmod(descriptor_path(fd.as_fd()), Mode::from_raw_mode(wanted))?;
        crash::after("give a group access to a file");
    }
    Ok(kind)
}

/// The group reads and writes, and executes what the owner executes. A set-group-id bit of another
/// group is not carried over to this one.
fn file_mode(before: &Stat, group: Gid) -> RawMode {
    let mode = permissions(before) | 0o060 | (before.st_mode & 0o100) >> 3;
    if before.st_gid == group.as_raw() { mode } else { mode & !0o2000 }
}

fn permissions(stat: &Stat) -> RawMode {
    stat.st_mode & 0o7777
}

const SET_GROUP_ID: RawMode = 0o2000;
const DIRECTORY_BITS: RawMode = SET_GROUP_ID | 0o070;

fn directory_is_done(directory: &OwnedFd, group: Gid) -> CallResult<bool> {
    let stat = fstat(directory)?;
    Ok(stat.st_gid == group.as_raw()
        && stat.st_mode & DIRECTORY_BITS == DIRECTORY_BITS
        && default_acl(directory)?.lets_group_write())
}

fn give_directory(directory: &OwnedFd, group: Gid) -> CallResult<()> {
    let stat = fstat(directory)?;
    if stat.st_gid != group.as_raw() {
        fchown(directory, None, Some(group))?;
        crash::after("change the group of a directory");
    }
    fchmod(directory, Mode::from_raw_mode(permissions(&stat) | DIRECTORY_BITS))?;
    crash::after("give a group access to a directory");
    if !default_acl(directory)?.lets_group_write() {
        let acl = acl_for_group(stat.st_mode);
        fsetxattr(directory, DEFAULT_ACL, &acl, XattrFlags::empty())?;
        crash::after("give a group access to files that are created later");
    }
    Ok(())
}

enum DefaultAcl {
    /// A filesystem that has no ACLs: new files follow the umask, and nothing can be done.
    Unsupported,
    Present(Vec<u8>),
}

impl DefaultAcl {
    /// An ACL that someone refined is left alone if the group has its rights in it.
    fn lets_group_write(&self) -> bool {
        match self {
            Self::Unsupported => true,
            Self::Present(acl) => {
                let entries = || acl.get(4..).unwrap_or_default().chunks_exact(8);
                let has = |tag: u16| entries().any(|entry| entry[..2] == tag.to_le_bytes());
                let grants = |tag: u16| {
                    entries().any(|entry| entry[..2] == tag.to_le_bytes() && entry[2] & 7 == 7)
                };
                grants(ACL_GROUP) && (!has(ACL_MASK) || grants(ACL_MASK))
            }
        }
    }
}

fn default_acl(directory: &OwnedFd) -> CallResult<DefaultAcl> {
    let mut buffer = vec![0; 64 << 10];
    match fgetxattr(directory, DEFAULT_ACL, buffer.as_mut_slice()) {
        Ok(length) => {
            buffer.truncate(length);
            Ok(DefaultAcl::Present(buffer))
        }
        Err(Errno::NODATA) => Ok(DefaultAcl::Present(Vec::new())),
        Err(Errno::OPNOTSUPP) => Ok(DefaultAcl::Unsupported),
        Err(errno) => Err(errno),
    }
}

const ACL_USER: u16 = 0x01;
const ACL_GROUP: u16 = 0x04;
const ACL_MASK: u16 = 0x10;
const ACL_OTHER: u16 = 0x20;

/// Owner and group have all rights, others what the directory's mode gives them. A default ACL
/// takes the place of the umask when something is created.
fn acl_for_group(mode: RawMode) -> Vec<u8> {
    const VERSION: u32 = 2;
    const NO_ID: u32 = u32::MAX;
    let others = u16::try_from(mode & 7).unwrap_or(0);
    let mut acl = VERSION.to_le_bytes().to_vec();
    for (tag, rights) in [(ACL_USER, 7), (ACL_GROUP, 7), (ACL_OTHER, others)] {
        acl.extend(tag.to_le_bytes());
        acl.extend(rights.to_le_bytes());
        acl.extend(NO_ID.to_le_bytes());
    }
    acl
}

#[cfg(test)]
mod tests;
