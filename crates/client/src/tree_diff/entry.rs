//! One file or directory, and how another version of it differs.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, StatxFlags, StatxTimestamp, fgetxattr, flistxattr, openat,
    readlinkat, statx,
};
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt::StopFlag;

const CHUNK: usize = 1 << 20;
/// The kernel's limit for the list of names, and for one value.
const MAX_ATTRIBUTE_BYTES: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileKind {
    File,
    Directory,
    Link,
    Device,
    Other,
}

/// What a file keeps when it is renamed. The inode number of a deleted file may be reused, with another birth time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) kind: FileKind,
    inode: u64,
    /// `None`: the filesystem does not record it.
    birth_time: Option<Timestamp>,
}

impl Identity {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.birth_time.is_some() && self == other
    }

    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }
}

/// Seconds and nanoseconds.
type Timestamp = (i64, u32);

pub(super) struct Entry {
    pub(super) identity: Identity,
    mode: u16,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: Timestamp,
    /// Set by the kernel at each change of the inode; programs cannot set it.
    ctime: Timestamp,
    links: u32,
    device: (u32, u32),
}

pub(super) enum CompareError {
    Io(io::Error),
    Interrupted(Failure),
}

impl From<io::Error> for CompareError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for CompareError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl Entry {
    pub(super) fn read(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
        let timestamp = |time: &StatxTimestamp| (time.tv_sec, time.tv_nsec);
        let has_birth_time = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let kind = match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Link,
            FileType::CharacterDevice | FileType::BlockDevice => FileKind::Device,
            FileType::Fifo | FileType::Socket | FileType::Unknown => FileKind::Other,
        };
        Ok(Self {
            identity: Identity {
                kind,
                inode: found.stx_ino,
                birth_time: has_birth_time.then(|| timestamp(&found.stx_btime)),
            },
            mode: found.stx_mode,
            uid: found.stx_uid,
            gid: found.stx_gid,
            size: found.stx_size,
            mtime: timestamp(&found.stx_mtime),
            ctime: timestamp(&found.stx_ctime),
            links: found.stx_nlink,
            device: (found.stx_rdev_major, found.stx_rdev_minor),
        })
    }

    /// The same inode, unchanged between the two snapshots.
    pub(super) fn is_unchanged(&self, other: &Self) -> bool {
        self.identity == other.identity
            && self.ctime == other.ctime
            && self.size == other.size
            && self.mode == other.mode
    }

    pub(super) fn compare(
        &self,
        other: &Self,
        old: BorrowedFd<'_>,
        new: BorrowedFd<'_>,
        name: &CStr,
        stop: &StopFlag,
    ) -> Result<Vec<&'static str>, CompareError> {
        let mut respects = Vec::new();
        let mut add_if = |differs: bool, respect: &'static str| {
            if differs {
                respects.push(respect);
            }
        };
        match self.identity.kind {
            FileKind::File => {
                let (before, after) = (open(old, name)?, open(new, name)?);
                add_if(self.size != other.size, "size");
                add_if(
                    self.size != other.size
                        || !has_same_contents(&before, &after, self.size, stop)?,
                    "contents",
                );
                add_if(attributes(before.as_fd())? != attributes(after.as_fd())?, "attributes");
            }
            // Files that were added or removed in it are reported themselves; its size and times change with them.
            FileKind::Directory => {
                let (before, after) = (open(old, name)?, open(new, name)?);
                add_if(attributes(before.as_fd())? != attributes(after.as_fd())?, "attributes");
            }
            FileKind::Link => add_if(
                readlinkat(old, name, Vec::new())? != readlinkat(new, name, Vec::new())?,
                "target",
            ),
            FileKind::Device => add_if(self.device != other.device, "device"),
            FileKind::Other => {}
        }
        add_if(self.mode != other.mode, "mode");
        add_if((self.uid, self.gid) != (other.uid, other.gid), "owner");
        if self.identity.kind != FileKind::Directory {
            add_if(self.mtime != other.mtime, "mtime");
            add_if(self.links != other.links, "links");
        }
        Ok(respects)
    }
}

fn open(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(openat(directory, name, flags, Mode::empty())?))
}

fn has_same_contents(
    one: &File,
    other: &File,
    size: u64,
    stop: &StopFlag,
) -> Result<bool, CompareError> {
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut offset = 0;
    while offset < size {
        stop.check().map_err(CompareError::Interrupted)?;
        let length = usize::try_from(size - offset).unwrap_or(CHUNK).min(CHUNK);
        one.read_exact_at(&mut left[..length], offset)?;
        other.read_exact_at(&mut right[..length], offset)?;
        if left[..length] != right[..length] {
            return Ok(false);
        }
        offset += u64::try_from(length).unwrap_or(u64::MAX);
    }
    Ok(true)
}

/// The extended attributes, in the order of their names; empty if the filesystem has none.
fn attributes(file: BorrowedFd<'_>) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut buffer = vec![0; MAX_ATTRIBUTE_BYTES];
    let length = match flistxattr(file, &mut buffer[..]) {
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
        listed => listed?,
    };
    let names = buffer[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
    names.sort_unstable();
    let mut found = Vec::new();
    for name in names {
        let length = fgetxattr(file, name.as_slice(), &mut buffer[..])?;
        found.push((name, buffer[..length].to_vec()));
    }
    Ok(found)
}
